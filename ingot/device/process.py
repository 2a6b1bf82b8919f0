"""The process of one trial: the tuner's own program (``native/measure.c``) with the candidate in it, and what it may use.

Nobody has tried the code before. It gets an address space of its own, descriptors of what it was ordered with and no others, no
environment, and limits; the program locks itself before it runs the first instruction of it. It is killed with all that it started.
"""

from __future__ import annotations

import contextlib
import os
import resource
import select
import signal
import struct
import subprocess
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from ingot.device.contents import size_of
from shared_ir.device.order import OrderedTrial

_VERSION = 1
_LACKING, _BROKEN = 3, 4
"""Exit statuses of ``native/load_elf.h``."""
_MOST_REASON = 400
_ROOM_BYTES = 128 << 20
"""For the program itself, its stack, and what aligning large blocks takes."""
_EMULATOR_BYTES = 8 << 30
_OWN_FILES = 64
_PARTING_SECONDS = 1.0
"""In which a process that has closed its pipes ends."""


class TrialFailed(Exception):
    """``kind`` as outcomes have it: crashed, late or refused."""

    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(reason)
        self.kind = kind
        self.reason = reason


@dataclass(frozen=True)
class RunnerSettings:
    """How trials run on this device.

    Attributes:
        emulator: command before the program; empty where the machine runs it by itself.
        core: the only one that they use; None for any.
        locks: whether the kernel must keep the program from any system call.
    """

    emulator: tuple[str, ...] = ()
    core: int | None = None
    locks: bool = True


class RunnerProcess:
    """A started trial; :meth:`kill` may be called by any thread.

    Args:
        runner: descriptor of the program.
        contents: descriptors by digest, of all that ``trial`` names.
        cpu_seconds: of processor time.
    """

    def __init__(
        self,
        settings: RunnerSettings,
        runner: int,
        trial: OrderedTrial,
        contents: Mapping[str, int],
        cpu_seconds: float,
    ) -> None:
        self._lock = threading.Lock()
        self._result_bytes = sum(b.size for b in trial.buffers if b.is_result)
        self._locks = settings.locks and not settings.emulator
        libraries = [os.dup(contents[digest]) for digest in trial.libraries]
        # NOTE: each buffer's content has a descriptor of its own, since the program closes what it has read.
        own = [os.dup(contents[b.content]) if b.content else -1 for b in trial.buffers]
        held = [runner, *libraries, *(descriptor for descriptor in own if descriptor >= 0)]
        try:
            self._process = _started(settings, runner, held)
            _limit(self._process.pid, settings, _memory(settings, trial, contents), cpu_seconds, max(held))
        finally:
            for descriptor in held[1:]:
                os.close(descriptor)
        self._plan = _plan(trial, libraries, own, self._locks)

    def prepare(self, seconds: float) -> None:
        """Load the library and fill the buffers. Raises TrialFailed; RuntimeError where the machine does not lock the program."""
        deadline = time.monotonic() + seconds
        self._send(self._plan, deadline)
        version, is_locked = struct.unpack("<2q", self._receive(16, deadline))
        if version != _VERSION:
            raise TrialFailed("refused", f"the program speaks version {version} and not {_VERSION}")
        if self._locks and not is_locked:
            raise RuntimeError("the kernel of this machine has no seccomp")

    def run(self, times: int, seconds: float) -> float:
        """Seconds that ``times`` runs took. Raises TrialFailed."""
        deadline = time.monotonic() + seconds
        self._send(struct.pack("<q", times), deadline)
        return float(struct.unpack("<q", self._receive(8, deadline))[0]) * 1e-9

    def results(self, seconds: float) -> bytes:
        """What the result buffers hold, one after the other. Raises TrialFailed."""
        deadline = time.monotonic() + seconds
        self._send(struct.pack("<q", 0), deadline)
        return self._receive(self._result_bytes, deadline)

    def kill(self) -> None:
        """With its children; nothing where it has ended."""
        with self._lock:
            self._kill()

    def close(self) -> None:
        self._reap()
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()

    def _kill(self) -> None:
        """NOTE: as long as nobody has asked how the process ended, no other one has its number."""
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def _reap(self) -> int:
        with self._lock:
            self._kill()
            return self._process.wait()

    def _send(self, data: bytes, deadline: float) -> None:
        assert self._process.stdin is not None
        descriptor, view = self._process.stdin.fileno(), memoryview(data)
        while view:
            self._await(descriptor, select.POLLOUT, deadline)
            try:
                view = view[os.write(descriptor, view) :]
            except BrokenPipeError as error:
                raise self._ended() from error

    def _receive(self, count: int, deadline: float) -> bytes:
        assert self._process.stdout is not None
        descriptor, found = self._process.stdout.fileno(), bytearray()
        while len(found) < count:
            self._await(descriptor, select.POLLIN, deadline)
            piece = os.read(descriptor, min(count - len(found), 1 << 20))
            if not piece:
                raise self._ended()
            found += piece
        return bytes(found)

    def _await(self, descriptor: int, what: int, deadline: float) -> None:
        poll = select.poll()
        poll.register(descriptor, what)
        if not poll.poll(max(deadline - time.monotonic(), 0.0) * 1000):
            self.kill()
            raise TrialFailed("late", "it did not answer within its limit")

    def _ended(self) -> TrialFailed:
        """Why it is gone."""
        status = self._exit_status()
        said = self._said()
        if status in (_LACKING, _BROKEN):
            return TrialFailed("refused", said or f"the program cannot load it (exit status {status})")
        if status == -signal.SIGXCPU:
            return TrialFailed("late", "it used up its processor time")
        if status == -signal.SIGSYS:
            return TrialFailed("crashed", "SIGSYS: it made a system call")
        if status < 0:
            return TrialFailed("crashed", signal.Signals(-status).name)
        return TrialFailed("crashed", f"it ended with exit status {status}")

    def _exit_status(self) -> int:
        """As :class:`subprocess.Popen` has it; what it has started is killed before its number is free."""
        until = time.monotonic() + _PARTING_SECONDS
        while self._process.returncode is None and time.monotonic() < until:
            if os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None:
                break
            time.sleep(0.002)
        return self._reap()

    def _said(self) -> str:
        assert self._process.stderr is not None
        descriptor = self._process.stderr.fileno()
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        data = os.read(descriptor, _MOST_REASON) if poll.poll(0) else b""
        return data.decode(errors="replace").strip()


def _started(settings: RunnerSettings, runner: int, held: Collection[int]) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        [*settings.emulator, f"/proc/self/fd/{runner}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
        pass_fds=tuple(held),
        env={},
        cwd="/",
        start_new_session=True,
    )
    assert process.stdin is not None
    os.set_blocking(process.stdin.fileno(), False)
    return process


def _limit(process: int, settings: RunnerSettings, memory: int, cpu_seconds: float, highest: int) -> None:
    """NOTE: from outside, once it has started and before it is told what to load: between fork and exec Python may not run in a process
    with threads."""
    seconds = int(cpu_seconds) + 2
    limits = {
        resource.RLIMIT_AS: memory,
        resource.RLIMIT_CPU: seconds,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_FSIZE: 0,
        resource.RLIMIT_NOFILE: highest + _OWN_FILES,
    }
    with contextlib.suppress(ProcessLookupError):
        for what, amount in limits.items():
            resource.prlimit(process, what, (amount, amount))
        if settings.core is not None:
            os.sched_setaffinity(process, {settings.core})
    with contextlib.suppress(OSError), open(f"/proc/{process}/oom_score_adj", "w") as file:
        file.write("1000")  # where memory is short, this goes before the server does


def _memory(settings: RunnerSettings, trial: OrderedTrial, contents: Mapping[str, int]) -> int:
    """Bytes of address space: buffers, scratch, libraries twice, the largest content while it is copied."""
    copied = max((size_of(contents[b.content]) for b in trial.buffers if b.content), default=0)
    padding = 64 * sum(b.copies for b in trial.buffers)
    own = (
        trial.memory + padding + copied + 2 * sum(size_of(contents[digest]) for digest in trial.libraries) + _ROOM_BYTES
    )
    return own + (_EMULATOR_BYTES if settings.emulator else 0)


def _plan(trial: OrderedTrial, libraries: Sequence[int], contents: Sequence[int], locks: bool) -> bytes:
    """As the comment at the top of ``native/measure.c`` has it."""
    pieces = [_row(_VERSION, int(locks), len(libraries), len(trial.buffers), len(trial.launches)), _row(*libraries)]
    pieces += [
        _row(b.size, descriptor, b.copies, int(b.is_result))
        for b, descriptor in zip(trial.buffers, contents, strict=True)
    ]
    for launch in trial.launches:
        name = launch.symbol.encode()
        pieces.append(
            _row(launch.library, launch.tasks, launch.scratch, len(launch.buffers), len(launch.symbols), len(name))
        )
        pieces += [name, _row(*launch.buffers), _row(*launch.symbols)]
    return b"".join(pieces)


def _row(*numbers: int) -> bytes:
    return struct.pack(f"<{len(numbers)}q", *numbers)
