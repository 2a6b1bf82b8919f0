"""What the buffers of a trial hold, and whether two candidates computed the same of it."""

from __future__ import annotations

import math

import numpy as np

from shared_ir.arrays import storage_dtype
from shared_ir.dtype import DType

_SEED = 20260
_RANDOM_BITS = 8
"""Integers up to this width are data, and drawn from all that there are; wider ones may be positions, and are 0: inside of
everything that has elements."""
_SHARE_OF_STEPS = 0.005
"""Largest share of integer results of float arithmetic that may be a step off: sums that are added in another order round otherwise."""
TOLERANCES = {DType.FLOAT64: 1e-10, DType.FLOAT32: 1e-4, DType.FLOAT16: 1e-2, DType.BFLOAT16: 5e-2}
"""Largest difference of two candidates relative to the largest element: of a sum of 4608 products of random numbers in float32 that is
ten times what any order of adding them gives, and a fiftieth of what one missing product does."""


def drawn(shape: tuple[int, ...], dtype: DType, number: int) -> np.ndarray:
    """The elements of argument ``number``: seeded; floats in [-1, 1)."""
    rng = np.random.default_rng((_SEED, number))
    storage = storage_dtype(dtype)
    if dtype.is_float:
        return rng.uniform(-1, 1, shape).astype(storage)
    if dtype is DType.BOOL:
        return rng.integers(0, 2, shape).astype(storage)
    if dtype.is_integer and dtype.bits <= _RANDOM_BITS:
        low, high = dtype.limits
        return rng.integers(low, high + 1, shape).astype(storage)
    return np.zeros(shape, storage)


def disagreement(expected: bytes, found: bytes, dtype: DType) -> str:
    """How ``found`` differs from ``expected``, elements of ``dtype``, as a sentence; empty where it is the same but for rounding."""
    storage = storage_dtype(dtype)
    if len(expected) != len(found):
        return f"it gives {len(found)} bytes in place of {len(expected)}"
    if expected == found:
        return ""
    one, other = (np.frombuffer(data, storage) for data in (expected, found))
    if dtype.is_integer or dtype is DType.BOOL:
        return _steps(one.astype(np.int64), other.astype(np.int64))
    kind = np.complex128 if one.dtype.kind == "c" else np.float64
    return _difference(one.astype(kind), other.astype(kind), TOLERANCES.get(dtype, 0.25))


def _steps(expected: np.ndarray, found: np.ndarray) -> str:
    apart = np.abs(expected - found)
    if apart.max() > 1:
        return f"an element is {int(found[apart.argmax()])} in place of {int(expected[apart.argmax()])}"
    share = float(np.mean(apart > 0))
    return "" if share <= _SHARE_OF_STEPS else f"{share:.1%} of the elements are a step off"


def _difference(expected: np.ndarray, found: np.ndarray, tolerance: float) -> str:
    finite = np.isfinite(expected)
    if not np.array_equal(finite, np.isfinite(found)) or not np.array_equal(np.isnan(expected), np.isnan(found)):
        return "infinities and numbers that are none stand at other places"
    if not finite.any():
        return ""
    largest = float(np.abs(expected[finite]).max())
    apart = float(np.abs(expected[finite] - found[finite]).max())
    if apart <= tolerance * largest or math.isclose(apart, 0.0):
        return ""
    return f"an element differs by {apart:.3g}, where the largest one is {largest:.3g}"
