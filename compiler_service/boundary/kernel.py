"""System calls that Python has no function for. Standard library only: this runs before anything else is imported."""

from __future__ import annotations

import ctypes
import os

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_CAPBSET_DROP = 24
PR_SET_SECUREBITS = 28
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38
PR_CAP_AMBIENT = 47
PR_CAP_AMBIENT_CLEAR_ALL = 4

_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.syscall.restype = ctypes.c_long


def prctl(option: int, *arguments: int) -> int:
    """Raises OSError."""
    padded = (*arguments, 0, 0, 0, 0)[:4]
    return _checked(_LIBC.prctl(ctypes.c_int(option), *(ctypes.c_ulong(argument) for argument in padded)), "prctl")


def call(number: int, *arguments: int | ctypes.c_void_p | ctypes.Array[ctypes.c_char]) -> int:
    """The system call ``number``. Raises OSError."""
    return _checked(_LIBC.syscall(ctypes.c_long(number), *map(_word, arguments)), f"system call {number}")


def unshare(flags: int) -> None:
    """Raises OSError."""
    _checked(_LIBC.unshare(ctypes.c_int(flags)), "unshare")


def _word(argument: object) -> object:
    return ctypes.c_long(argument) if isinstance(argument, int) else argument


def _checked(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result
