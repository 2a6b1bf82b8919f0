"""The table of system calls against the kernel's own headers, and the filter made of it, instruction by instruction."""

from __future__ import annotations

import errno
import importlib.util
import re
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from compiler_service.boundary.seccomp import _OWN_TURN, Instruction, program
from compiler_service.boundary.syscalls import ARCHITECTURES, LOOKED_INTO, NEWEST, REFUSED

HEADERS = {"x86_64": "x86-linux-any/asm/unistd_64.h", "aarch64": "aarch64-linux-any/asm/unistd_64.h"}
ALLOWED = (
    "read",
    "write",
    "openat",
    "mmap",
    "clone",
    "futex",
    "execve",
    "wait4",
    "kill",
    "prlimit64",
    "socketpair",
    "sendto",
    "fcntl",
)
HIGH = 1 << 32
"""The kernel takes the lower half of what follows."""
ASKED_OF_DEVICES = (0x5401, 0x802C542A, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)
NOT_ASKED = {
    "TCSETS": 0x5402,
    "TIOCSTI": 0x5412,
    "TIOCLINUX": 0x541C,
    "FIOASYNC": 0x5452,
    "FIOSETOWN": 0x8901,
    "SIOCSPGRP": 0x8902,
    "SIOCGIFCONF": 0x8912,
    "FS_IOC_SETFLAGS": 0x40086602,
    "FS_IOC32_SETFLAGS": 0x40046602,
    "FS_IOC_GETFLAGS": 0x80086601,
    "FS_IOC_FSSETXATTR": 0x401C5820,
    "FS_IOC_SETVERSION": 0x40087602,
    "FS_IOC_SET_ENCRYPTION_POLICY": 0x800C6613,
    "FICLONE": 0x40049409,
    "FS_IOC_ENABLE_VERITY": 0x40806685,
    "FIFREEZE": 0xC0045877,
    "FS_IOC_SETFSLABEL": 0x41009432,
}
ALLOW, EPERM, ENOSYS, KILL = 0x7FFF0000, 0x50000 | errno.EPERM, 0x50000 | errno.ENOSYS, 0x80000000


def numbers(machine: str) -> Mapping[str, int]:
    """From the headers of Linux that the C compiler brings."""
    spec = importlib.util.find_spec("ziglang")
    assert spec is not None
    assert spec.submodule_search_locations
    text = Path(spec.submodule_search_locations[0], "lib/libc/include", HEADERS[machine]).read_text()
    return {name: int(number) for name, number in re.findall(r"#define __NR_(\w+)\s+(\d+)\b", text)}


@pytest.mark.parametrize("machine", ARCHITECTURES)
def test_the_table_is_that_of_the_kernel(machine: str) -> None:
    known, column = numbers(machine), ARCHITECTURES[machine][1]
    for name, own in {**REFUSED, **LOOKED_INTO}.items():
        assert known.get(name) == own[column], name
    assert max(known.values()) >= NEWEST
    assert {name for name, number in known.items() if number > NEWEST} == set()


@pytest.mark.parametrize("machine", ARCHITECTURES)
def test_what_the_filter_answers(machine: str) -> None:
    known, code = numbers(machine), program(machine)
    identity = ARCHITECTURES[machine][0]
    for name, number in known.items():
        expected = (
            EPERM if name in REFUSED or name in ("ioctl", "memfd_create") else ENOSYS if name == "clone3" else ALLOW
        )
        assert answer(code, identity, number) == expected, name
    for name in ALLOWED:
        assert answer(code, identity, known[name]) == ALLOW, name
    assert answer(code, identity, NEWEST + 1) == ENOSYS
    assert answer(code, identity, 0x40000000 | known["read"]) == ENOSYS
    assert answer(code, 0x40000003, known["read"]) == KILL


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("clone", (0x01200011,), ALLOW),  # fork
        ("clone", (0x003D0F00,), ALLOW),  # a thread
        ("clone", (0x10000011,), EPERM),  # a user namespace
        ("clone", (0x40000011,), EPERM),
        ("kill", (1234, 9), ALLOW),
        ("kill", (2**64 - 1, 9), EPERM),
        ("prlimit64", (0, 7), ALLOW),
        ("prlimit64", (1234, 7), EPERM),
        *((name, (0, 8), ALLOW) for name in _OWN_TURN),
        *((name, (1234, 8), EPERM) for name in _OWN_TURN),
        *((name, (2**32 - 1, 8), EPERM) for name in _OWN_TURN),
        *(("ioctl", (0, half | asked), ALLOW) for asked in ASKED_OF_DEVICES for half in (0, HIGH)),
        *(("ioctl", (0, half | asked), EPERM) for asked in NOT_ASKED.values() for half in (0, HIGH)),
        *(("fcntl", (0, half | command), ALLOW) for command in (0, 4, 1030, 1032, 1033, 1034) for half in (0, HIGH)),
        *(("fcntl", (0, command), EPERM) for command in (5, 6, 7, 8, 10, 15, 37, 38, 1024, 1026, 1031, 1040, 2**31)),
        *(("fcntl", (0, half | command), EPERM) for command in (1036, 1038) for half in (0, HIGH)),  # F_SET_RW_HINT
        ("memfd_create", (0, 0b1000), ALLOW),  # MFD_NOEXEC_SEAL
        ("memfd_create", (0, 0b1011), ALLOW),
        *(("memfd_create", (0, flags), EPERM) for flags in (0, 0b11, 0x10, 8 << 32)),  # MFD_EXEC
        ("socketpair", (1, 0x80801), ALLOW),  # Unix, a stream, with SOCK_CLOEXEC and SOCK_NONBLOCK
        *(("socketpair", (1, half | kind), EPERM) for kind in (2, 3, 4, 5, 6, 10, 0x80802) for half in (0, HIGH)),
        ("socketpair", (30, 1), EPERM),  # TIPC
        ("sendto", (3, 0, 1, 0, 0, 0), ALLOW),
        ("sendto", (3, 0, 1, 0, 0x1000, 20), EPERM),
        ("sendto", (3, 0, 1, 0, 0x100000000, 20), EPERM),
    ],
)
def test_calls_that_depend_on_their_arguments(name: str, arguments: Sequence[int], expected: int) -> None:
    for machine, (identity, column) in ARCHITECTURES.items():
        number = LOOKED_INTO[name][column]
        assert number is not None
        assert answer(program(machine), identity, number, arguments) == expected


@pytest.mark.parametrize("machine", ARCHITECTURES)
def test_files_are_locked_where_the_policy_says_so(machine: str) -> None:
    identity, column = ARCHITECTURES[machine]
    number = REFUSED["flock"][column]
    assert number is not None
    assert answer(program(machine), identity, number) == EPERM
    assert answer(program(machine, locks=True), identity, number) == ALLOW


def answer(code: Sequence[Instruction], identity: int, number: int, arguments: Sequence[int] = ()) -> int:
    """What the kernel would read from the filter."""
    data = struct.pack("=iIQ6Q", number, identity, 0, *(*arguments, 0, 0, 0, 0, 0, 0)[:6])
    loaded, place = 0, 0
    while True:
        operation, true, false, operand = code[place]
        match operation:
            case 0x20:
                (loaded,) = struct.unpack_from("=I", data, operand)
                taken = 0
            case 0x06:
                return operand
            case _:
                holds = {0x15: loaded == operand, 0x25: loaded > operand, 0x45: bool(loaded & operand)}[operation]
                taken = true if holds else false
        place += 1 + taken
