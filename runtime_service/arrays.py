"""Arrays in memory: their type, and memory that kernels take as it is."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
"""An array of numpy, of any element type."""


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


_HEADER = object.__basicsize__
"""Bytes of an array object before its data pointer (``PyArrayObject_fields`` in numpy/ndarraytypes.h, a public, stable layout)."""


def _read_address(array: Array) -> int:
    """Read from the object itself: ``array.ctypes`` takes six times as long, which a small model would feel."""
    return _pointer_at(id(array) + _HEADER).value or 0


def _ask_address(array: Array) -> int:
    return array.ctypes.data


def _read_pointer(array: Array) -> ctypes.c_void_p:
    return _pointer_at(id(array) + _HEADER)


def _lies_as_expected() -> bool:
    if sys.implementation.name != "cpython":
        return False
    sample = aligned_bytes(64)
    return _read_address(sample) == sample.ctypes.data


_pointer_at = ctypes.c_void_p.from_address
address_of: Callable[[Array], int] = _read_address if _lies_as_expected() else _ask_address
"""The address of an array's first element; 0 of no memory at all."""
pointer_of: Callable[[Array], ctypes.c_void_p | int] = _read_pointer if _lies_as_expected() else _ask_address
"""The same in the form that the pointer of a structure takes fastest; it is to be copied while the array lives."""
