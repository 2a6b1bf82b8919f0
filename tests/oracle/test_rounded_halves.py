"""A half that float32 is cast to is what the model reads: what was rounded off decides nothing."""

from __future__ import annotations

import copy

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from shared_ir.errors import IngotError
from tests.conformance.compiled import run_compiled
from tests.oracle.case import Array, Case
from tests.oracle.families import FAMILIES
from tests.oracle.generate import drawn_case

HALVES = {TensorProto.FLOAT16: np.dtype(np.float16), TensorProto.BFLOAT16: np.dtype(ml_dtypes.bfloat16)}
TRIES, ENOUGH = 300, 20
"""Seeds that are looked through for a model with so many halves among its inputs."""
QUANTIZE = ("QuantizeLinear", "DynamicQuantizeLinear")
"""What is no float there changes by a step, as any sum in another order changes it."""


def halves_of(model: onnx.ModelProto) -> dict[str, int]:
    """The inputs that are halves, with their element types."""
    given = {i.name: i.type.tensor_type for i in model.graph.input if i.type.HasField("tensor_type")}
    return {name: kind.elem_type for name, kind in given.items() if kind.elem_type in HALVES}


def case_with_halves(family: str) -> Case | None:
    """The first with enough of them that some are equal, or the one with the most; None for an operator of other types."""
    best: Case | None = None
    for case in (drawn_case(family, seed)[0] for seed in range(TRIES)):
        if halves_of(case.model) and not case.aliases and (best is None or _size(case) > _size(best)):
            best = case
        if best is not None and _size(best) >= ENOUGH:
            break
    return best


def _size(case: Case) -> int:
    return sum(case.runs[0][name].size for name in halves_of(case.model))


def behind_casts(model: onnx.ModelProto) -> onnx.ModelProto:
    """The same model, given float32 in place of each half, which it casts."""
    cast = copy.deepcopy(model)
    halves = halves_of(model)
    for value in cast.graph.input:
        if value.name in halves:
            value.type.tensor_type.elem_type = TensorProto.FLOAT
            value.name = f"{value.name}.wide"
    for name, kind in halves.items():
        cast.graph.node.insert(0, helper.make_node("Cast", [f"{name}.wide"], [name], to=kind))
    return cast


def coarse(array: Array) -> Array:
    """Halves of which many are equal, or integers."""
    with np.errstate(all="ignore"):
        found = (np.rint(array.astype(np.float32) * 2) / 2).astype(array.dtype)
    return np.where(np.isfinite(found) & (found != 0), found, array)


def spread(array: Array, seed: int) -> Array:
    """float32 that is rounded to ``array``, mostly without being it."""
    wide = array.astype(np.float32)
    step = float(ml_dtypes.finfo(array.dtype).eps) / 5
    with np.errstate(all="ignore"):
        moved = wide * (1 + np.random.default_rng(seed).uniform(-step, step, wide.shape)).astype(np.float32)
        same = moved.astype(array.dtype) == array
    return np.where(same, moved, wide)


@pytest.mark.slow
@pytest.mark.sampled
@pytest.mark.parametrize("family", sorted(set(FAMILIES) - set(QUANTIZE)))
def test_what_was_rounded_off_decides_nothing(family: str) -> None:
    case = case_with_halves(family)
    if case is None:
        pytest.skip("an operator of other types")
    halves = halves_of(case.model)
    feeds = {n: coarse(a) if n in halves else a for n, a in case.runs[0].items()}
    wide = {f"{n}.wide" if n in halves else n: spread(a, 5) if n in halves else a for n, a in feeds.items()}
    try:
        wanted = run_compiled(case.model, dict(feeds), 3)
    except IngotError as error:
        pytest.skip(f"refused, whatever it is given: {error.code}")
    for found, own in zip(run_compiled(behind_casts(case.model), wide, 3), wanted, strict=True):
        if isinstance(own, np.ndarray) and own.dtype.kind in "biuOSU":
            np.testing.assert_array_equal(found, own)
