"""A filter of system calls, as a program of the kernel's packet filter.

It lists what is refused, not what is allowed: NumPy, LLVM, the linker and every new C library bring calls of their own, and
an allow-list that is wide enough for all of them would differ little. What a list of refusals usually misses, calls that are
newer than it, is refused by number. ``ioctl`` and ``fcntl``, to which file systems and devices add their own, have lists of what
is allowed. A refused call answers EPERM, so that code which only tries goes on.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from collections.abc import Sequence

from compiler_service.boundary.kernel import call
from compiler_service.boundary.syscalls import ARCHITECTURES, LOOKED_INTO, NEWEST, REFUSED

_SECCOMP = {"x86_64": 317, "aarch64": 277}
_SET_MODE_FILTER, _ALL_THREADS = 1, 1

_LOAD, _EQUAL, _GREATER, _ANY_BIT, _RETURN = 0x20, 0x15, 0x25, 0x45, 0x06
_ALLOW, _KILL_PROCESS, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16

_NEW_NAMESPACE_FLAGS = 0x7E020000
_DEVICE_REQUESTS = (
    *(0x5401, 0x802C542A, 0x5413),  # TCGETS, TCGETS2, TIOCGWINSZ: is it a terminal, and how wide
    *(0x541B, 0x5421),  # FIONREAD, FIONBIO: how much is there to read, and whether to wait for it
    *(0x5450, 0x5451),  # FIONCLEX, FIOCLEX: whether a descriptor outlives execve
)
"""All that ``ioctl`` may ask: others change attributes of files open for reading, type for the user, name owners and interfaces."""
_OF_DESCRIPTORS = (
    *range(5),  # F_DUPFD to F_SETFL
    *(1030, 1032, 1033, 1034),  # F_DUPFD_CLOEXEC, how large a pipe is, seals of memory
)
"""All that ``fcntl`` may do: the rest is locks, leases, watches, signals to owners, hints that stay with a file, and larger pipes, of
which all processes of a user share an allowance."""
_OWN_TURN = ("sched_setaffinity", "sched_setscheduler", "sched_setparam", "sched_setattr")
"""How a process or thread gets the processor, by its number: 0, the caller's own, is all that is let through."""
_UNIX = 1
_NO_STREAM = 0b1110  # bits of every kind of socket but SOCK_STREAM (1)
_NEVER_A_PROGRAM = 0b1000  # MFD_NOEXEC_SEAL; kernels before 6.3 know no such memory, and refuse it

Instruction = tuple[int, int, int, int]
"""Operation, instructions to jump over when it is true, when it is false, operand."""


def refuse_calls(*, locks: bool = False) -> None:
    """Install the filter in every thread of this process. It stays across ``execve`` and in all children.

    Args:
        locks: ``flock`` is not refused.

    Raises:
        OSError: the kernel refuses, or there is no table for this architecture.
    """
    machine = os.uname().machine
    if machine not in ARCHITECTURES:
        raise OSError(errno.ENOSYS, f"no table of system calls for {machine}")
    code = b"".join(struct.pack("=HBBI", *instruction) for instruction in program(machine, locks=locks))
    instructions = ctypes.create_string_buffer(code, len(code))
    header = ctypes.create_string_buffer(struct.pack("@HP", len(code) // 8, ctypes.addressof(instructions)))
    call(_SECCOMP[machine], _SET_MODE_FILTER, _ALL_THREADS, header)


def program(machine: str, *, locks: bool = False) -> Sequence[Instruction]:
    """The filter for a machine as ``uname`` names it."""
    identity, column = ARCHITECTURES[machine]
    refused = [numbers[column] for name, numbers in REFUSED.items() if name != "flock" or not locks]
    looked_into = {name: numbers[column] or 0 for name, numbers in LOOKED_INTO.items()}
    return (
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 1, 0, identity),
        (_RETURN, 0, 0, _KILL_PROCESS),  # calls of a 32-bit program: the numbers mean other things
        (_LOAD, 0, 0, _NUMBER),
        (_GREATER, 0, 1, NEWEST),
        (_RETURN, 0, 0, _ERRNO | errno.ENOSYS),
        # Its flags lie in memory, out of a filter's sight; C libraries then take clone.
        (_EQUAL, 0, 1, looked_into["clone3"]),
        (_RETURN, 0, 0, _ERRNO | errno.ENOSYS),
        *(instruction for number in refused if number is not None for instruction in _refused(number)),
        *_refused_if(looked_into["clone"], 0, (_ANY_BIT, _NEW_NAMESPACE_FLAGS)),
        *_refused_if(looked_into["kill"], 0, (_EQUAL, 0xFFFFFFFF)),  # everyone
        *_refused_if(looked_into["prlimit64"], 0, (_GREATER, 0)),  # of another process
        *(i for name in _OWN_TURN for i in _refused_if(looked_into[name], 0, (_GREATER, 0))),
        *_refused_but(looked_into["ioctl"], 1, (_EQUAL, _DEVICE_REQUESTS)),
        *_refused_but(looked_into["fcntl"], 1, (_EQUAL, _OF_DESCRIPTORS)),
        # What lies in memory has no folder that Landlock could refuse to execute in.
        *_refused_but(looked_into["memfd_create"], 1, (_ANY_BIT, (_NEVER_A_PROGRAM,))),
        # A pair is connected, but one of datagrams sends to every other address as well.
        *_refused_if(looked_into["socketpair"], 0, (_GREATER, _UNIX)),
        *_refused_if(looked_into["socketpair"], 1, (_ANY_BIT, _NO_STREAM)),
        *(i for half in (0, 4) for i in _refused_if(looked_into["sendto"], 4, (_GREATER, 0), half)),
        (_RETURN, 0, 0, _ALLOW),
    )


def _refused(number: int) -> Sequence[Instruction]:
    return (_EQUAL, 0, 1, number), (_RETURN, 0, 0, _ERRNO | errno.EPERM)


def _refused_if(number: int, argument: int, test: tuple[int, int], half: int = 0) -> Sequence[Instruction]:
    """NOTE: looks at the lower half of the argument, which is all that the kernel takes of most; loads the number again."""
    operation, operand = test
    return (
        (_EQUAL, 0, 4, number),
        (_LOAD, 0, 0, _ARGUMENTS + 8 * argument + half),
        (operation, 0, 1, operand),
        (_RETURN, 0, 0, _ERRNO | errno.EPERM),
        (_LOAD, 0, 0, _NUMBER),
    )


def _refused_but(number: int, argument: int, test: tuple[int, Sequence[int]]) -> Sequence[Instruction]:
    """Unless one of the operands fits. NOTE: looks at the lower half as :func:`_refused_if` does, and loads the number again."""
    operation, operands = test
    return (
        (_EQUAL, 0, len(operands) + 3, number),
        (_LOAD, 0, 0, _ARGUMENTS + 8 * argument),
        *((operation, len(operands) - place, 0, operand) for place, operand in enumerate(operands)),
        (_RETURN, 0, 0, _ERRNO | errno.EPERM),
        (_LOAD, 0, 0, _NUMBER),
    )
