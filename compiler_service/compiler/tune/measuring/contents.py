"""What the buffers of a trial hold, and whether two candidates computed the same of it."""

from __future__ import annotations

import numpy as np

from compiler_service.compiler.tune.measuring.scales import scales
from shared_ir.arrays import storage_dtype
from shared_ir.dtype import DType

_SEED = 20260
_RANDOM_BITS = 8
"""Integers up to this width are drawn from all that there are."""
_SMALL = 8
"""Largest of the wider ones: sums of many products of them are no larger than what they are held in."""
_SHARE_OF_STEPS = 0.005
"""Largest share of integer results of float arithmetic that may be a step off: sums that are added in another order round otherwise."""
TOLERANCES = {DType.FLOAT64: 1e-10, DType.FLOAT32: 1e-4, DType.FLOAT16: 1e-2, DType.BFLOAT16: 5e-2}
"""Largest difference of two candidates relative to the largest element: of a sum of 4608 products of random numbers in float32 that is
ten times what any order of adding them gives, and a fiftieth of what one missing product does."""
_OTHER_TOLERANCE = 0.25
_ROUNDING = {DType.FLOAT64: 2.0**-52, DType.FLOAT32: 2.0**-23, DType.FLOAT16: 2.0**-10, DType.BFLOAT16: 2.0**-7}
_OTHER_ROUNDING = 2.0**-2
_LEAST_NORMAL = {DType.FLOAT64: 2.0**-1022, DType.FLOAT16: 2.0**-14}
"""Some machines take what is smaller for 0."""
_LEAST_OTHER = 2.0**-126
NO_NUMBER = "its results have no finite number, so that nothing can be compared with them"


def drawn(shape: tuple[int, ...], dtype: DType, number: int, *, is_position: bool = False) -> np.ndarray:
    """The elements of argument ``number``: seeded; floats in [-1, 1).

    Args:
        is_position: whether wide integers are positions, or sizes: then they are 0, which is inside of everything that has elements.
    """
    rng = np.random.default_rng((_SEED, number))
    storage = storage_dtype(dtype)
    if dtype.is_float:
        return rng.uniform(-1, 1, shape).astype(storage)
    if storage.kind == "c":
        return (rng.uniform(-1, 1, shape) + 1j * rng.uniform(-1, 1, shape)).astype(storage)
    if dtype is DType.BOOL:
        return rng.integers(0, 2, shape).astype(storage)
    if not dtype.is_integer or (is_position and dtype.bits > _RANDOM_BITS):
        return np.zeros(shape, storage)
    low, high = dtype.limits if dtype.bits <= _RANDOM_BITS else (-_SMALL if dtype.is_signed else 0, _SMALL)
    return rng.integers(low, high + 1, shape).astype(storage)


def proves_something(results: bytes, dtype: DType) -> bool:
    """Whether others can be compared with ``results``, elements of ``dtype``: one of them is a finite number, or there are none."""
    found = np.frombuffer(results, storage_dtype(dtype))
    return not found.size or dtype.is_integer or dtype is DType.BOOL or bool(np.isfinite(_wide(found)).any())


def disagreement(expected: bytes, found: bytes, dtype: DType, *, is_exact: bool = False) -> str:
    """How ``found`` differs from ``expected``, elements of ``dtype``, as a sentence; empty where it is the same but for rounding.

    Args:
        is_exact: nothing is rounded on the way to them.
    """
    if len(expected) != len(found):
        return f"it gives {len(found)} bytes in place of {len(expected)}"
    if expected == found:
        return ""
    one, other = (np.frombuffer(data, storage_dtype(dtype)) for data in (expected, found))
    if dtype.is_integer or dtype is DType.BOOL:
        return _steps(one.astype(np.int64), other.astype(np.int64), is_exact)
    return _difference(_wide(one), _wide(other), dtype)


def _wide(elements: np.ndarray) -> np.ndarray:
    return elements.astype(np.complex128 if elements.dtype.kind == "c" else np.float64)


def _steps(expected: np.ndarray, found: np.ndarray, is_exact: bool) -> str:
    apart = (np.maximum(expected, found) - np.minimum(expected, found)).view(np.uint64)  # also where that is no int64
    if apart.max() > (0 if is_exact else 1):
        place = int(apart.argmax())
        return f"an element is {int(found[place])} in place of {int(expected[place])}"
    share = float(np.mean(apart > 0))
    return "" if share <= _SHARE_OF_STEPS else f"{share:.1%} of the elements are a step off"


def _difference(expected: np.ndarray, found: np.ndarray, dtype: DType) -> str:
    finite = np.isfinite(expected)
    if not np.array_equal(finite, np.isfinite(found)):
        return "infinities and numbers that are none stand at other places"
    if not np.array_equal(expected[~finite], found[~finite], equal_nan=True):
        return "infinities have another sign, or numbers that are none stand in their place"
    magnitudes, apart = np.abs(expected[finite]), np.abs(expected[finite] - found[finite])
    tolerance = TOLERANCES.get(dtype, _OTHER_TOLERANCE)
    if not magnitudes.size or (apart <= tolerance * magnitudes).all():
        return ""
    scale = scales(magnitudes, tolerance, _ROUNDING.get(dtype, _OTHER_ROUNDING))
    over = apart - np.maximum(tolerance * scale, _LEAST_NORMAL.get(dtype, _LEAST_OTHER))
    place = int(over.argmax())
    if over[place] <= 0:
        return ""
    return f"an element differs by {apart[place]:.3g}, where the largest one that it is compared with is {scale[place]:.3g}"
