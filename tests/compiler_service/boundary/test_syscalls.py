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
    "ioctl",
    "prlimit64",
    "socketpair",
    "sendto",
    "fcntl",
    "memfd_create",
)
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
        expected = EPERM if name in REFUSED else ENOSYS if name == "clone3" else ALLOW
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
        ("ioctl", (0, 0x5401), ALLOW),
        ("ioctl", (0, 0x5412), EPERM),
        ("ioctl", (0, 0x541C), EPERM),
        ("ioctl", (0, 0x541B), ALLOW),  # FIONREAD
        ("ioctl", (0, 0x8901), EPERM),  # FIOSETOWN
        ("ioctl", (0, 0x8912), EPERM),  # SIOCGIFCONF
        ("ioctl", (0, 0x8BFF), EPERM),
        ("ioctl", (0, 0x8C00), ALLOW),
        ("fcntl", (0, 4), ALLOW),  # F_SETFL
        *(("fcntl", (0, command), EPERM) for command in (6, 7, 8, 10, 15, 37, 38, 1024, 1026, 1040, 2**31)),
        ("fcntl", (0, 1030), ALLOW),  # F_DUPFD_CLOEXEC
        ("fcntl", (0, 1033), ALLOW),  # F_ADD_SEALS
        ("socketpair", (1, 0x80801), ALLOW),  # Unix, a stream, with SOCK_CLOEXEC and SOCK_NONBLOCK
        ("socketpair", (1, 5), ALLOW),  # SOCK_SEQPACKET
        ("socketpair", (1, 2), EPERM),  # SOCK_DGRAM
        ("socketpair", (1, 0x80802), EPERM),
        ("socketpair", (1, 3), EPERM),  # SOCK_RAW, which is SOCK_DGRAM there
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
