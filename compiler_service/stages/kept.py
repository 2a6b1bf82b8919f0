"""The nursery of this process: started at the first order, kept for the process's life, its children one for each order."""

from __future__ import annotations

import atexit
import contextlib
import os
import socket
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

from compiler_service.boundary.policy import Policy
from compiler_service.boundary.state import LAUNCH, descriptor_path, through_pipe
from compiler_service.stages.nursery_protocol import READY, STATUS
from compiler_service.stages.runner import inherited_environment
from shared_ir.errors import ErrorCode, IngotError

_COMMAND = (sys.executable, "-m", "compiler_service.stages.nursery")
_SHUTDOWN_SECONDS = 5.0


@dataclass
class KeptChild:
    """A child that works on one order. Closing the leash kills it and what it started."""

    leash: socket.socket
    status: int | None = None

    def poll(self) -> int | None:
        if self.status is None:
            with contextlib.suppress(BlockingIOError):
                told = self.leash.recv(STATUS.size, socket.MSG_DONTWAIT)
                self.status = STATUS.unpack(told)[0] if len(told) == STATUS.size else 1
        return self.status

    def wait(self) -> int:
        """Its exit status."""
        while (status := self.poll()) is None:
            self.leash.recv(1, socket.MSG_PEEK)
        return status


class KeptNursery:
    """A running nursery."""

    def __init__(self) -> None:
        self.owner = os.getpid()
        self._orders, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        environment = inherited_environment() | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        policy = Policy(descriptors=(theirs.fileno(),), stays=True, closes_later=True)
        with theirs, through_pipe(policy) as reader:
            self._process = subprocess.Popen(
                [*LAUNCH, descriptor_path(reader), *_COMMAND, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(), reader),
                start_new_session=True,
                env=environment,
            )
        self._is_ready = False

    def start(self, work: Path, progress: int, printed: int) -> KeptChild:
        """Have a child work on the order in ``work``; it writes to the two descriptors."""
        self._wait()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            socket.send_fds(self._orders, [os.fsencode(work)], [theirs.fileno(), progress, printed])
        return KeptChild(ours)

    def _wait(self) -> None:
        """Until it takes orders."""
        if not self._is_ready and self._orders.recv(len(READY)) != READY:
            raise IngotError(
                ErrorCode.UNAVAILABLE,
                "the process that compiles models of others did not start",
                remedy="What it printed says more; with `in_process=True` the model is read in this process.",
            )
        self._is_ready = True

    def is_there(self) -> bool:
        """Whether it takes orders from this process: it does not after a fork, nor when it has died."""
        return self.owner == os.getpid() and self._process.poll() is None

    def close(self) -> None:
        self._orders.close()
        if self.owner != os.getpid():
            self._process.returncode = 0  # it is not this process's to wait for
        else:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_SHUTDOWN_SECONDS)
            self._process.kill()
            self._process.wait()


_LOCK = threading.Lock()
_KEPT: list[KeptNursery] = []


def start_child(work: Path, progress: int, printed: int) -> KeptChild:
    """A child of this process's nursery, as :meth:`KeptNursery.start`."""
    with _LOCK:
        return _nursery().start(work, progress, printed)


def warm_up() -> None:
    """Start the nursery, and do not wait for it: it imports the compiler while the caller prepares his order."""
    with _LOCK:
        _nursery()


def _nursery() -> KeptNursery:
    if _KEPT and not _KEPT[0].is_there():
        _KEPT.pop().close()
    if not _KEPT:
        _KEPT.append(KeptNursery())
    return _KEPT[0]


def _forget() -> None:
    """After a fork: the lock may have been held, and the nursery is the other process's."""
    global _LOCK
    _LOCK = threading.Lock()
    _close()


os.register_at_fork(after_in_child=_forget)


@atexit.register
def _close() -> None:
    while _KEPT:
        _KEPT.pop().close()
