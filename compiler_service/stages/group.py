"""Ending a group of processes, so that nothing of it goes on when what it left behind is read.

A process that is killed in the middle of a system call may finish the call first: many that wait for the same file to write to
it, one after the other, long after the signal. Where no process namespace ends with its first process, somebody has to see them end.
"""

from __future__ import annotations

import contextlib
import os
import signal

from compiler_service.boundary.kernel import PR_SET_CHILD_SUBREAPER, prctl


def adopt_orphans() -> None:
    """From now on what was started by a child of this process, and outlives it, is this process's child."""
    prctl(PR_SET_CHILD_SUBREAPER, 1)


def end_group(leader: int) -> None:
    """Kill the group of ``leader``, a child of this process that has been waited for or is now, and wait until no process of it is left.

    NOTE: of a group whose processes may leave it, or whose orphans others adopt, it waits for fewer.
    """
    kill_group(leader)
    with contextlib.suppress(ChildProcessError):
        while True:
            os.waitpid(-leader, 0)


def kill_group(leader: int) -> None:
    """The signal alone."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)
