"""Namespaces of its own for a process: users, network, processes, System V memory, host name.

A user namespace is what lets a process without privileges make the others. Kernels, containers and security modules may
forbid it, some of them only half, so it is tried in a process that may break.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

from compiler_service.boundary.kernel import PR_SET_DUMPABLE, PR_SET_PDEATHSIG, prctl, unshare

_NEW_UTS, _NEW_IPC, _NEW_USER, _NEW_PID, _NEW_NET = 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000
_ALL = _NEW_USER | _NEW_NET | _NEW_PID | _NEW_IPC | _NEW_UTS
_RESERVED_IDS = 301
"""The kernel takes no smaller bound of process ids; as many are not given again once the ids have gone round."""
_SIGNAL_OFFSET = 128
_ODD = 128


def why_not_permitted() -> str:
    """Why this process cannot have namespaces of its own; empty where it can."""
    child = os.fork()
    if child == 0:
        try:
            enter_namespaces()
        except OSError as error:
            os._exit(error.errno or 1)
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return f"user namespaces are not permitted here: {os.strerror(abs(status))}" if status else ""


def enter_namespaces() -> None:
    """The user stays who he is; the process namespace begins with the next child.

    Raises:
        OSError: not permitted. The process is of no more use then.
    """
    user, group = os.geteuid(), os.getegid()
    unshare(_ALL)
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
    Path("/proc/self/gid_map").write_text(f"{group} {group} 1")


def bound_processes(count: int) -> None:
    """At most so many processes and threads in this process namespace, whoever owns them; for the first process in it.

    Raises:
        OSError: the kernel has one bound for all namespaces (before Linux 6.14).
    """
    Path("/proc/sys/kernel/pid_max").write_text(str(_RESERVED_IDS + count))


def be_first() -> None:
    """In the first process of a process namespace: go on in a child, and end when it ends, which ends all others.

    Signals without a handler do not reach the first process, so that what must be able to abort runs one further on.
    """
    child = os.fork()
    if child == 0:
        return
    os._exit(_wait_for(child, odd=_ODD))


def stay_outside(*, follows: bool) -> None:
    """Go on in the first process of the namespace that :func:`enter_namespaces` prepared; here, end as it ends.

    Args:
        follows: be killed with the thread that started this process.
    """
    child = os.fork()
    if child == 0:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        prctl(PR_SET_DUMPABLE, 0)
        return
    if follows:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    prctl(PR_SET_DUMPABLE, 0)
    status = _wait_for(child)
    if status > _SIGNAL_OFFSET:
        _die_of(status - _SIGNAL_OFFSET)
    os._exit(status)


def _die_of(number: int) -> None:
    """Python ignores some signals."""
    if number not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def _wait_for(child: int, odd: int = 0) -> int:
    """Exit status of ``child`` in the manner of a shell; collects whoever else ends meanwhile.

    Args:
        odd: what stands for statuses of a program that leaves with one which stands for a signal.
    """
    while True:
        ended, status = os.wait()
        if ended == child:
            code = os.waitstatus_to_exitcode(status)
            if odd and code > _SIGNAL_OFFSET:
                return odd
            return code if code >= 0 else _SIGNAL_OFFSET - code
