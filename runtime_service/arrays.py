"""Arrays in memory: their type, and memory that kernels take as it is."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]


def aligned_bytes(size: int, alignment: int = 64) -> Array:
    """Uninitialised memory of ``size`` bytes whose address is a multiple of ``alignment``."""
    block = np.empty(size + alignment, np.uint8)
    start = -block.ctypes.data % alignment
    return block[start : start + size]


def aligned_copy(array: Array, alignment: int = 64) -> Array:
    """The elements of ``array``, C-contiguous in memory of its own whose address is a multiple of ``alignment``."""
    copy = aligned_bytes(array.nbytes, alignment).view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy
