"""Trials on this machine, in a child on a core of its own."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, BinaryIO, cast

from compiler_service.compiler.codegen.toolchain.frames import read_frame, write_frame
from compiler_service.compiler.codegen.toolchain.host import machine_name
from compiler_service.compiler.tune.measuring.parts import parts
from compiler_service.compiler.tune.measuring.trial import Outcome, OutcomeKind, Trial, TrialTiming
from shared_ir.printable import printable

_COMMAND = (sys.executable, "-m", "compiler_service.compiler.tune.measuring.worker")
_START_SECONDS = 30.0
"""Seconds that a child may take to begin, on a machine that is busy."""
_SECONDS_OF_FIRST_RUN = 10.0
"""Seconds that a candidate may take for its first run: no kernel of a model that is worth tuning takes as long."""
_END_SECONDS = 2.0
"""Seconds that a child may take to end, once it has closed its end of the pipe."""
_MOST_SAID_BYTES = 1 << 16
_MOST_KEPT_BYTES = 1 << 30
"""Bytes of contents that the child keeps from one trial to the next."""


class LocalMeasurer:
    """Implements :class:`Measurer` on this machine. A child that crashes or hangs is replaced by another.

    Args:
        core: that the child runs on; by default the last one that this process may use, where it may use several: what compiles
            meanwhile keeps off it (:func:`beside`).
    """

    def __init__(self, core: int | None = None) -> None:
        self._core = measuring_core() if core is None else core
        self._child: _Child | None = None
        self.machine = machine_name()
        self.size = 1

    def run(self, trials: Sequence[Trial], seconds: float) -> tuple[Outcome, ...]:
        child = self._child or _Child(self._core)
        self._child = child
        outcomes = child.run(trials, seconds)
        if not child.lives:
            child.close()
            self._child = None
        return outcomes

    def close(self) -> None:
        if self._child is not None:
            self._child.close()
            self._child = None


class _Child:
    def __init__(self, core: int | None) -> None:
        end, written = os.pipe()  # the child may write to no file
        self._errors = os.fdopen(end, "rb", buffering=0)
        os.set_blocking(end, False)
        os.set_blocking(written, False)  # what is too much is lost, since nobody reads it before the child has ended
        try:
            self._process = subprocess.Popen(_COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=written)
        finally:
            os.close(written)
        if core is not None:
            with contextlib.suppress(OSError):  # it has died already
                os.sched_setaffinity(self._process.pid, {core})
        self._sent: dict[str, int] = {}
        self._is_late = False
        self._is_fresh = True
        self.lives = True

    def run(self, trials: Sequence[Trial], seconds: float) -> tuple[Outcome, ...]:
        limit = _SECONDS_OF_FIRST_RUN * len(trials) + 4 * seconds * len(trials) + _START_SECONDS * self._is_fresh
        self._is_fresh = False
        watchdog = threading.Timer(limit, self._end_late)
        watchdog.start()
        began, results, rounds = -1, list[tuple[bytes, ...]](), None
        try:
            self._send(trials, seconds)
            while rounds is None and (frame := self._receive()) is not None:
                header, body = frame
                if "began" in header:
                    began = header["began"]
                elif "results" in header:
                    results.append(tuple(parts(body, header["results"])))
                else:
                    rounds = header["rounds"]
        except OSError:
            pass  # the child is gone, and says so below
        finally:
            watchdog.cancel()
        if rounds is None:
            return self._failed(len(trials), began if len(results) <= began else len(trials) - 1)
        return tuple(
            Outcome(OutcomeKind.MEASURED, TrialTiming(tuple(own)), found)
            for own, found in zip(rounds, results, strict=True)
        )

    def _send(self, trials: Sequence[Trial], seconds: float) -> None:
        stdin = cast(BinaryIO, self._process.stdin)
        if sum(self._sent.values()) > _MOST_KEPT_BYTES:
            write_frame(stdin, {"op": "forget"})
            self._sent.clear()
        for content in (b.content for t in trials for b in t.buffers):
            if content is not None and content.digest not in self._sent:
                write_frame(stdin, {"op": "content", "digest": content.digest}, content.data)
                self._sent[content.digest] = len(content.data)
        request = {"op": "run", "seconds": seconds, "trials": [_described(t) for t in trials]}
        write_frame(stdin, request, b"".join(data for t in trials for data in t.code))

    def _receive(self) -> tuple[dict[str, Any], bytes] | None:
        assert self._process.stdout is not None
        try:
            return read_frame(self._process.stdout.read)
        except (ValueError, KeyError):  # the candidate wrote over what the child would have said
            return None

    def _failed(self, count: int, culprit: int) -> tuple[Outcome, ...]:
        """Outcomes where the child ended while it ran trial ``culprit``; those beside it were not measured either."""
        self.lives = False
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_SECONDS)  # how it ends by itself is what people are told
        self._process.kill()
        status = self._process.wait()
        if self._is_late:
            own = Outcome(OutcomeKind.LATE, reason="it ran longer than it may")
        else:
            how = f"signal {-status}" if status < 0 else f"exit status {status}"
            own = Outcome(OutcomeKind.CRASHED, reason=f"the process that ran it ended with {how}{self._said()}")
        beside = Outcome(OutcomeKind.CRASHED, reason="the process ended while it ran another one")
        return tuple(own if number == culprit else beside for number in range(count))

    def _said(self) -> str:
        """The last line that it wrote, which is the error of a child that an exception has ended."""
        lines = (self._errors.read(_MOST_SAID_BYTES) or b"").decode(errors="replace").split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), "")
        return f": {printable(last)[:200]}" if last else ""

    def _end_late(self) -> None:
        self._is_late = True
        self._process.kill()

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._errors):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()


def _described(trial: Trial) -> dict[str, Any]:
    return {
        "key": trial.digest,
        "sizes": [len(data) for data in trial.code],
        "launches": [
            {
                "symbol": launch.symbol,
                "buffers": launch.buffers,
                "symbols": launch.symbols,
                "tasks": launch.tasks,
                "scratch": launch.scratch,
            }
            for launch in trial.launches
        ],
        "buffers": [
            {
                "size": b.size,
                "content": "" if b.content is None else b.content.digest,
                "copies": b.copies,
                "is_result": b.is_result,
            }
            for b in trial.buffers
        ],
    }


def measuring_core() -> int | None:
    """The core that measures; None where there is but one."""
    usable = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    return usable[-1] if len(usable) > 1 else None


@contextmanager
def beside(core: int | None) -> Iterator[None]:
    """This thread, and the processes that it starts, keep off ``core`` meanwhile."""
    if core is None:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, before - {core} or before)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
