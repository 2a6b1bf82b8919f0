"""Arrays between pages that nobody may touch, full of a byte that shows where it is handed out."""

from __future__ import annotations

import ctypes
import os
import weakref
from typing import Any

import numpy as np

from runtime_service.arrays import Array

_PAGE = 4096
_GUARD_BYTES = 1 << 22
_MAP_PRIVATE_ANONYMOUS = 0x22
_PROT_NONE, _PROT_READ_WRITE = 0, 3

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
_libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]


def poison() -> int:
    """The byte that memory is full of: the one that the C runtime takes too."""
    return int(os.environ.get("INGOT_POISON", "0"))


def empty(shape: Any, dtype: Any = np.float64) -> Array:
    """What ``numpy.empty`` gives, but full of poison, and with a guard behind the last element and one before the first page.

    Raises:
        MemoryError: there is none.
    """
    dtype = np.dtype(dtype)
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    if dtype.hasobject:
        return np.empty(shape, dtype)
    size = dtype.itemsize
    for extent in shape:
        size *= extent
    body = max(_PAGE, -(-size // _PAGE) * _PAGE)
    whole = body + 2 * _GUARD_BYTES
    if whole >= 1 << 47:
        raise MemoryError(f"{size} bytes")
    base = _libc.mmap(None, whole, _PROT_NONE, _MAP_PRIVATE_ANONYMOUS, -1, 0)
    if base in (None, ctypes.c_void_p(-1).value):
        raise MemoryError(f"{size} bytes")
    if _libc.mprotect(base + _GUARD_BYTES, body, _PROT_READ_WRITE):
        _libc.munmap(base, whole)
        raise MemoryError(f"{size} bytes")
    ctypes.memset(base + _GUARD_BYTES, poison(), body)
    # an empty array points into the guard: none of its bytes may be touched
    start = base + _GUARD_BYTES + body - size if size else base + _GUARD_BYTES // 2
    buffer = (ctypes.c_char * max(size, 1)).from_address(start)
    weakref.finalize(buffer, _libc.munmap, base, whole)
    return np.ndarray(shape, dtype, buffer=buffer)


def guarded(array: Array) -> Array:
    """A copy of ``array`` between guards."""
    copy = empty(array.shape, array.dtype)
    if array.size:
        copy[...] = array
    return copy
