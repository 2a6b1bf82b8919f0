"""First runs of a freshly loaded model: pages touched, threads started, and rows tried out.

That rows are independent is the compiler's to prove (``Plan.batch``), or the operator's to say. Two rows computed together that are
not those computed apart show that it was wrong; that they are equal shows nothing.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

import numpy as np

from runtime_service.arrays import Array
from runtime_service.batching.datatypes import numpy_dtype
from runtime_service.batching.rows import concatenate, split
from shared_ir.dtype import DType
from shared_ir.errors import IngotError
from shared_ir.expr.dim import dim_symbols, evaluate
from shared_ir.plan.program import TensorSpec

TRIAL_EXTENTS = (1, 8, 32, 64, 224, 128, 256, 640)
"""Sizes to try, in this order, for symbols other than the batch when none are configured."""

_WORDS = ("", "a", "b")
"""Synthetic strings."""

Run = Callable[[Mapping[str, Array]], dict[str, Array]]


class Runnable(Protocol):
    def run(self, inputs: Mapping[str, Array], /) -> dict[str, Array]: ...


def warm_up(model: Runnable, inputs: tuple[TensorSpec, ...], sizes: Mapping[str, int], batch: str | None) -> bool:
    """Run the model once at batch 1; whether a size was found that it accepts."""
    return _accepted(model, inputs, sizes, batch) is not None


def rows_mix(model: Runnable, inputs: tuple[TensorSpec, ...], sizes: Mapping[str, int], batch: str) -> bool:
    """Whether two random rows are seen to change each other; not where the model refuses every synthetic input."""
    extents = _accepted(model, inputs, sizes, batch)
    if extents is None:
        return False
    rows = [_synthetic(inputs, extents | {batch: 1}, seed) for seed in (1, 2)]
    try:
        apart = [model.run(row) for row in rows]
        together = split(model.run(concatenate(rows)), [1, 1])
    except IngotError:
        return True
    return not all(_close(a[name], t[name]) for a, t in zip(apart, together, strict=True) for name in a)


def _accepted(
    model: Runnable, inputs: tuple[TensorSpec, ...], sizes: Mapping[str, int], batch: str | None
) -> dict[str, int] | None:
    """Values of all symbols at which the model runs, the batch being 1."""
    for extents in _candidates(inputs, sizes, batch):
        try:
            model.run(_synthetic(inputs, extents, seed=0))
        except IngotError:
            continue
        return extents
    return None


def _candidates(
    inputs: tuple[TensorSpec, ...], sizes: Mapping[str, int], batch: str | None
) -> Iterable[dict[str, int]]:
    symbols = dim_symbols(dim for spec in inputs for dim in spec.shape)
    fixed = {name: sizes[name] for name in symbols & sizes.keys()}
    if batch is not None:
        fixed[batch] = 1
    free = symbols - fixed.keys()
    for extent in TRIAL_EXTENTS if free else TRIAL_EXTENTS[:1]:
        yield dict.fromkeys(free, extent) | fixed


def _synthetic(inputs: tuple[TensorSpec, ...], extents: Mapping[str, int], seed: int) -> dict[str, Array]:
    """Deterministic inputs, but for optional ones: normal floats; integers and booleans 0 or 1, so that indices are in range."""
    arrays = {}
    for spec in inputs:
        if spec.is_optional:
            continue
        generator = np.random.default_rng([seed, zlib.crc32(spec.name.encode())])
        shape = [evaluate(dim, extents) for dim in spec.shape]
        dtype = numpy_dtype(spec.dtype, spec.name)
        if spec.dtype is DType.STRING:
            arrays[spec.name] = generator.choice(_WORDS, shape).astype(object)
            continue
        if spec.dtype.is_float:
            arrays[spec.name] = generator.standard_normal(shape, dtype=np.float32).astype(dtype)
        else:
            arrays[spec.name] = generator.integers(0, 2, shape).astype(dtype)
    return arrays


def _close(a: Array, b: Array) -> bool:
    if a.shape != b.shape:
        return False
    if a.dtype.kind in "fV":
        return bool(np.allclose(a.astype(np.float64), b.astype(np.float64), rtol=1e-3, atol=1e-4, equal_nan=True))
    return bool(np.array_equal(a, b))
