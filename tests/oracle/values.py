"""Elements of drawn arrays: tame ones, and those where implementations part."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

Array = np.ndarray

_SPECIAL = (np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 3.0, 1e-3, 88.0, -88.0, 100.5)
_LARGE = (1e4, -1e5, 3e7, -2.5e9, 1e30, -3e38, 1e-30, -1e-20, 16777216.0, 2147483648.0)


def drawn_array(
    numbers: np.random.Generator,
    shape: tuple[int, ...],
    dtype: Any,
    values: str = "any",
    style: int = 0,
    low: float = -8,
    high: float = 8,
) -> Array:
    """An array of ``shape``.

    ``values``: ``tame`` (between ``low`` and ``high``), ``any`` (tame, or with special values when the style says so), ``numbers``
    (any but NaN), ``distinct`` (no two equal, exactly representable). ``style`` below 6 is tame.
    """
    kind = np.dtype(dtype)
    size = int(np.prod(shape, dtype=np.int64))
    extreme = values in ("any", "numbers") and style >= 6
    if kind == np.bool_:
        return numbers.integers(0, 2, shape).astype(np.bool_)
    if values == "distinct":
        return (numbers.permutation(np.arange(size)).reshape(shape) - size // 2).astype(kind)
    if kind.kind in "iu":
        return _integers(numbers, shape, kind, low, high, extreme)
    tame = (
        numbers.uniform(low, high, shape) if style % 2 else numbers.integers(int(8 * low), int(8 * high) + 1, shape) / 8
    )
    array = np.asarray(tame).clip(low, high).astype(kind)
    if extreme and size:
        special = _SPECIAL if values == "any" else _SPECIAL[1:]
        pool = (*special, *(_LARGE if style == 7 and kind.itemsize >= 4 else ()))
        chosen = numbers.random(shape) < 0.6
        array = np.where(chosen, numbers.choice(np.array(pool), shape).astype(kind), array)
    return array


def _integers(
    numbers: np.random.Generator, shape: tuple[int, ...], kind: np.dtype[Any], low: float, high: float, extreme: bool
) -> Array:
    limits = np.iinfo(kind)
    if extreme:
        pool = np.array([limits.min, limits.max, limits.max - 1, limits.min + 1, 0, 1, 2, 3], kind)
        return numbers.choice(pool, shape)
    return numbers.integers(max(int(low), limits.min), min(int(high), limits.max) + 1, shape).astype(kind)


def is_narrow(dtype: Any) -> bool:
    return np.dtype(dtype) in (np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16))
