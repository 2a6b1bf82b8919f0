"""A process that has no privileges and cannot gain any."""

from __future__ import annotations

import ctypes
import os

from compiler_service.boundary.kernel import (
    PR_CAP_AMBIENT,
    PR_CAP_AMBIENT_CLEAR_ALL,
    PR_CAPBSET_DROP,
    PR_SET_DUMPABLE,
    PR_SET_NO_NEW_PRIVS,
    PR_SET_SECUREBITS,
    call,
    prctl,
)

_CAPSET = {"x86_64": 126, "aarch64": 91}
_CAPABILITY_VERSION_3 = 0x20080522
_CAPABILITIES = 64
_NO_ROOT_LOCKED = 0b1111  # SECBIT_NOROOT and SECBIT_NO_SETUID_FIXUP, both locked: user 0 is a user like any other


def drop_privileges() -> None:
    """No new privileges, no capabilities: neither held nor given to user 0 by ``execve``.

    Raises:
        OSError: the kernel refuses.
    """
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)
    _where_allowed(PR_SET_SECUREBITS, _NO_ROOT_LOCKED)
    for capability in range(_CAPABILITIES):
        _where_allowed(PR_CAPBSET_DROP, capability)
    if not _holds_any():
        return
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    nothing = (ctypes.c_uint32 * 6)()
    call(_CAPSET[os.uname().machine], ctypes.byref(header), ctypes.byref(nothing))  # type: ignore[arg-type]


def _holds_any() -> bool:
    with open("/proc/self/status") as status:
        return any(line.startswith("CapPrm:") and int(line.split()[1], 16) for line in status)


def hide() -> None:
    """Nobody without privileges may trace this process or read its memory and environment in /proc."""
    prctl(PR_SET_DUMPABLE, 0)


def _where_allowed(option: int, argument: int) -> None:
    """Dropping what one has not is refused, and needs no doing: with no new privileges nothing comes back."""
    try:
        prctl(option, argument)
    except OSError:
        return
