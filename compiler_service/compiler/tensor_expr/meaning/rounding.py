"""Elementary functions rounded correctly: the same bits on every machine, whose libraries take other kernels on other processors.

numpy's result has a few digits more than are kept. Where these do not say to which of two neighbours it rounds, many more do.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from mpmath.ctx_mp import MPContext

from shared_ir.arrays import dtype_of
from shared_ir.dtype import DType

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"
Conversion: TypeAlias = Callable[[Array, DType], Array]

EXACT = MPContext()
"""Functions of numbers of :data:`_PRECISION_BITS`."""
_PRECISION_BITS = 240
EXACT.prec = _PRECISION_BITS
_LOCK = threading.Lock()
"""Functions of :data:`EXACT` raise its precision while they compute."""

_MOST_ERROR_EPSILONS = 16
"""By how much a result of numpy, or of a few operations, may be off: four times what its functions state for themselves."""


def correctly_rounded(
    function: Callable[..., Array],
    exact: Callable[..., Any],
    convert: Conversion,
    *,
    wide: type[np.floating[Any]] | None = None,
) -> Callable[..., Array]:
    """``function`` with results of the dtype of its first operand, each the number of it that is nearest to the ``exact`` one.

    It computes in float64, for float64 in long double, or in ``wide``.
    """

    def rounded(*operands: Array) -> Array:
        kept = np.asarray(operands[0]).dtype
        within = wide or (np.longdouble if kept == np.float64 else np.float64)
        found = np.asarray(function(*(np.asarray(x).astype(within) for x in operands)))
        if kept != np.float64:
            found = found.astype(np.float64)
        dtype, slack = dtype_of(np.empty(0, kept)), np.abs(found) * (_MOST_ERROR_EPSILONS * np.finfo(found.dtype).eps)
        low, high = convert(found - slack, dtype), convert(found + slack, dtype)
        doubtful = np.flatnonzero((low != high) & np.isfinite(found))
        result = convert(found, dtype)
        if doubtful.size:
            chosen = [np.broadcast_to(x, found.shape).ravel()[doubtful] for x in operands]
            result = result.ravel()
            result[doubtful] = _nearest(low.ravel()[doubtful], high.ravel()[doubtful], exact, chosen)
            result = result.reshape(found.shape)
        return np.where(np.isnan(found), np.asarray(np.nan).astype(kept), result)  # libraries differ in the bits of NaN

    return rounded


def _nearest(low: Array, high: Array, exact: Callable[..., Any], operands: list[Array]) -> Array:
    """Of each pair of neighbours the one that is nearer to the exact number; the even one between two that are as near."""
    patterns = low.view(f"u{low.itemsize}")
    result = low.copy()
    with _LOCK:
        for i, (a, b, *numbers) in enumerate(zip(low, high, *operands, strict=True)):
            number = exact(*(EXACT.mpf(float(n)) for n in numbers))
            if low.dtype == np.float64:  # where long double is no longer, a and b may be some numbers apart
                result[i] = float(number)
                continue
            middle = (EXACT.mpf(float(a)) + EXACT.mpf(float(b))) / 2
            if number > middle or (number == middle and patterns[i] & 1):
                result[i] = b
    return result
