"""The file view of a process: Landlock rules, with what each version of the kernel's interface knows.

https://docs.kernel.org/userspace-api/landlock.html
"""

from __future__ import annotations

import ctypes
import os
import stat
import struct
from collections.abc import Iterable, Mapping

from compiler_service.boundary.kernel import call

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION, _PATH_BENEATH = 1, 1

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR, REMOVE_DIR, REMOVE_FILE = (1 << bit for bit in range(6))
MAKE_CHAR, MAKE_DIR, MAKE_REG, MAKE_SOCK, MAKE_FIFO, MAKE_BLOCK, MAKE_SYM = (1 << bit for bit in range(6, 13))
REFER, TRUNCATE, IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
_OF_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV
_BIND_AND_CONNECT_TCP = 0b11
_ABSTRACT_SOCKETS_AND_SIGNALS = 0b11
_FIRST_WITH_NETWORK, FIRST_WITH_SCOPES = 4, 6

RIGHTS: Mapping[str, int] = {
    "list": READ_DIR,
    "read": READ_FILE | READ_DIR,
    "execute": READ_FILE | READ_DIR | EXECUTE,
    "device": READ_FILE | WRITE_FILE,
    # Regular files and folders only: a name that leads elsewhere (a symbolic link, a fifo, a socket) would deceive
    # whoever reads the folder afterwards with more rights.
    "write": READ_FILE | READ_DIR | WRITE_FILE | REMOVE_DIR | REMOVE_FILE | MAKE_DIR | MAKE_REG | REFER | TRUNCATE,
}
"""What a path may be granted for."""


def version() -> int:
    """Version of the kernel's interface; 0 where there is none."""
    try:
        return call(_CREATE_RULESET, 0, 0, _VERSION)
    except OSError:
        return 0


def restrict_files(grants: Iterable[tuple[str, str]]) -> None:
    """From now on this thread and its children reach nothing but ``(path, what for)``; paths that are not there do not count.

    Raises:
        OSError: the kernel refuses.
    """
    known = version()
    handled = _handled(known)
    ruleset = _create(known, handled)
    try:
        for path, purpose in grants:
            _grant(ruleset, path, RIGHTS[purpose] & handled)
        call(_RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)


def _handled(known: int) -> int:
    """Every right of files that version ``known`` can refuse; REFER came with 2, TRUNCATE with 3, IOCTL_DEV with 5."""
    return (1 << (13 + (known >= 2) + (known >= 3) + (known >= 5))) - 1


def _create(known: int, handled: int) -> int:
    words = [handled]
    if known >= _FIRST_WITH_NETWORK:
        words.append(_BIND_AND_CONNECT_TCP)
    if known >= FIRST_WITH_SCOPES:
        words.append(_ABSTRACT_SOCKETS_AND_SIGNALS)
    attributes = struct.pack(f"={len(words)}Q", *words)
    return call(_CREATE_RULESET, ctypes.create_string_buffer(attributes, len(attributes)), len(attributes), 0)


def _grant(ruleset: int, path: str, rights: int) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            rights &= _OF_FILES
        if rights:
            rule = ctypes.create_string_buffer(struct.pack("=Qi", rights, descriptor), 12)
            call(_ADD_RULE, ruleset, _PATH_BENEATH, rule, 0)
    finally:
        os.close(descriptor)
