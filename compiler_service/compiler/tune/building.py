"""Candidates made in processes of their own: scheduled, lowered and compiled at the lowest priority, on whatever core is free.

Such a process is a copy of this one: it knows the problems, templates of a user included, and is told a problem's number and the answers.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import pickle
import queue
import select
import signal
import stat
import threading
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Any, NoReturn, Self

from compiler_service.compiler.backends.table import backend_of
from compiler_service.compiler.schedule.language.knobs import Knobs
from compiler_service.compiler.tune.problem import BuiltCandidate, Candidate, SchedulingProblem
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.machine.cores import usable_cores
from shared_ir.machine.target import Target

_LIMIT_SECONDS = 60.0
"""Of one candidate: one whose code takes longer to make is none."""
_LENGTH_BYTES = 8
_LOWEST_PRIORITY = 19
_PR_SET_PDEATHSIG = 1
_MOST_DESCRIPTORS = 1 << 16


class Builders(AbstractContextManager["Builders"]):
    """Processes that make candidates of ``problems`` for a target; as many as there are cores."""

    def __init__(self, problems: Sequence[SchedulingProblem], target: Target) -> None:
        self._problems, self._target = tuple(problems), target
        self._numbers = {id(problem): number for number, problem in enumerate(self._problems)}
        self._idle: queue.SimpleQueue[_BuildingProcess] = queue.SimpleQueue()
        self._living: list[_BuildingProcess] = []
        self._replacing, self._is_over = threading.Lock(), False
        self._threads: ThreadPoolExecutor | None = None

    def __enter__(self) -> Self:
        count = usable_cores()
        for _ in range(count):  # before there are threads
            self._living.append(_BuildingProcess(self._problems, self._target))
            self._idle.put(self._living[-1])
        self._threads = ThreadPoolExecutor(count, thread_name_prefix="building")
        return self

    def __exit__(self, *_: object) -> None:
        """At once: what is being made nobody waits for any more."""
        assert self._threads is not None
        self._threads.shutdown(wait=False, cancel_futures=True)
        with self._replacing:
            self._is_over = True
            for process in self._living:
                process.kill()
        self._threads.shutdown(wait=True)
        for process in self._living:
            process.close()

    def submit(self, problem: SchedulingProblem, candidate: Candidate) -> Future[BuiltCandidate]:
        """The candidate as code, to come. The future raises IngotError: a step does not fit; COMPILER_FAULT, the process that made it died
        of it; DEADLINE_EXCEEDED."""
        assert self._threads is not None, "Builders is used outside of its context"
        return self._threads.submit(self._built, self._numbers[id(problem)], candidate)

    def _built(self, number: int, candidate: Candidate) -> BuiltCandidate:
        process = self._idle.get()
        try:
            layouts, code = process.built(number, dict(candidate.values))
        finally:
            self._idle.put(process if process.lives else self._instead_of(process))
        return BuiltCandidate(candidate, layouts, code)

    def _instead_of(self, process: _BuildingProcess) -> _BuildingProcess:
        with self._replacing:
            if self._is_over:
                return process
            self._living.remove(process)
            process.close()
            self._living.append(_BuildingProcess(self._problems, self._target))
            return self._living[-1]


class _BuildingProcess:
    def __init__(self, problems: Sequence[SchedulingProblem], target: Target) -> None:
        orders, self._orders = os.pipe()
        self._answers, answers = os.pipe()
        self.lives = True
        parent, self._pid = os.getpid(), os.fork()
        if self._pid == 0:
            os.close(self._orders)
            os.close(self._answers)
            _stand_alone(parent)
            _serve(problems, target, orders, answers)
        os.close(orders)
        os.close(answers)

    def built(self, number: int, values: dict[str, Any]) -> Any:
        """Layouts and objects."""
        deadline = time.monotonic() + _LIMIT_SECONDS
        try:
            _send(self._orders, (number, values))
            found = _receive(self._answers, deadline)
        except BrokenPipeError:
            found = None
        if found is None:
            self.lives = False
            is_late = time.monotonic() >= deadline
            raise IngotError(
                ErrorCode.DEADLINE_EXCEEDED if is_late else ErrorCode.COMPILER_FAULT,
                "its code takes too long to make" if is_late else "the process that made its code died",
            )
        layouts, code, fault = found
        if fault is not None:
            raise IngotError.from_dict(fault)
        return layouts, code

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)

    def close(self) -> None:
        self.kill()
        with contextlib.suppress(ChildProcessError):  # a program that ignores SIGCHLD
            os.waitpid(self._pid, 0)
        os.close(self._orders)
        os.close(self._answers)


def _stand_alone(parent: int) -> None:
    """The process has no regular file of its parent's open, since a lock on one of them would be held as long as it lives, and dies with
    it, also in the midst of a candidate. Other descriptors stay: threads of libraries that begin anew after a fork poll theirs."""
    try:
        for descriptor in _descriptors():
            with contextlib.suppress(OSError):
                if descriptor > 2 and stat.S_ISREG(os.fstat(descriptor).st_mode):
                    os.close(descriptor)
        with contextlib.suppress(OSError, AttributeError):  # no Linux
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it had died before
            os._exit(0)
    except BaseException:
        os._exit(1)


def _descriptors() -> Iterable[int]:
    try:
        return [int(name) for name in os.listdir("/proc/self/fd")]
    except OSError:  # no such place, or none that may be looked at
        return range(min(os.sysconf("SC_OPEN_MAX"), _MOST_DESCRIPTORS))


def _serve(problems: Sequence[SchedulingProblem], target: Target, orders: int, answers: int) -> NoReturn:
    """The process: ends when nobody orders any more. Never returns."""
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # who is interrupted ends this too
        with contextlib.suppress(OSError):  # what the boundary answers
            os.nice(_LOWEST_PRIORITY)
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, range(os.cpu_count() or 1))
        while (order := _receive(orders, None)) is not None:
            number, values = order
            _send(answers, _made(problems[number], values, target))
    finally:
        os._exit(0)


def _made(problem: SchedulingProblem, values: dict[str, Any], target: Target) -> Any:
    try:
        lowered = problem.lowered(problem.candidate(Knobs(values)))
        with backend_of(target).objects(target, 0) as maker:
            code = tuple(future.result() for future in lowered.submit(maker))
    except IngotError as error:
        return (), (), error.to_dict()
    except Exception as error:  # whatever a rule or a step met
        fault = IngotError(ErrorCode.COMPILER_FAULT, f"{type(error).__name__}: {error}"[:300])
        return (), (), fault.to_dict()
    return lowered.layouts, code, None


def _send(descriptor: int, message: Any) -> None:
    data = pickle.dumps(message)
    rest = memoryview(len(data).to_bytes(_LENGTH_BYTES) + data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _receive(descriptor: int, deadline: float | None) -> Any:
    """The next message of a process of ours; None where it has ended, or the time is over."""
    head = _read(descriptor, _LENGTH_BYTES, deadline)
    body = None if head is None else _read(descriptor, int.from_bytes(head), deadline)
    return None if body is None else pickle.loads(body)


def _read(descriptor: int, count: int, deadline: float | None) -> bytes | None:
    parts: list[bytes] = []
    while count:
        wait = None if deadline is None else max(0.0, deadline - time.monotonic())
        if not _is_readable(descriptor, wait):
            return None
        part = os.read(descriptor, min(count, 1 << 20))
        if not part:
            return None
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def _is_readable(descriptor: int, seconds: float | None) -> bool:
    """NOTE: ``select`` takes no descriptors above 1023, and a program may have as many files open."""
    waiting = select.poll()
    waiting.register(descriptor, select.POLLIN)
    return bool(waiting.poll(None if seconds is None else math.ceil(seconds * 1000)))
