"""Dynamic batching: a bounded queue in front of the instances of one model version.

A batch is formed when an instance is free to run it, never before, so requests that arrive while all instances are
busy are merged. Only rows are merged, never shapes: requests whose other dims differ run apart. A failed merged
execution is repeated request by request, so that nobody answers for a neighbour.
"""

from __future__ import annotations

import enum
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass
from typing import Protocol

from runtime_service.arrays import Array
from runtime_service.batching.messages import Cancellation
from runtime_service.batching.rows import Arrays, Joined, chunks, concatenate, group_key, row_count, split
from runtime_service.batching.watch import WATCH, Watch
from runtime_service.executors.resources import UNBOUNDED, Resources
from runtime_service.executors.stop import Stop
from shared_ir.errors import ErrorCode, IngotError

_LOOK_SECONDS = 0.25
"""How often a request that waits for its turn is asked whether its client is still there."""


class ReleaseReason(enum.StrEnum):
    """Why a batch was released from the queue."""

    FULL = "full"  # max_batch_size rows were waiting
    DELAY = "delay"  # the oldest request had waited max_queue_delay
    IDLE = "idle"  # an instance was free and no delay is configured
    CLOSING = "closing"  # the version is being unloaded
    UNBATCHED = "unbatched"  # the model has no batch dim, or batching is off


class Runner(Protocol):
    """One instance of a model: runs one batch at a time."""

    def run(self, inputs: Arrays, /, stop: Stop | None = None) -> dict[str, Array]: ...


@dataclass(frozen=True, slots=True)
class BatchOptions:
    """Bounds of a batcher.

    Attributes:
        max_batch_size: rows of one execution; larger requests are computed in pieces. 0 turns merging off.
        max_queue_delay: how long the oldest request may wait for company while an instance is free, in seconds.
        max_queue_size: waiting requests beyond which new ones are refused.
        resources: of an instance; what a request that is computed in pieces gives may take as much as one run.
    """

    max_batch_size: int = 0
    max_queue_delay: float = 0.0
    max_queue_size: int = 512
    resources: Resources = UNBOUNDED


@dataclass(frozen=True, slots=True)
class Execution:
    """What one run of an instance took. Times in seconds; ``rows`` is 0 for models without a batch dim."""

    requests: int
    rows: int
    merge_time: float
    compute_time: float
    split_time: float
    reason: ReleaseReason


@dataclass(frozen=True, slots=True)
class BatchResult:
    """The rows of one caller, and what they took. ``queue_time`` in seconds."""

    outputs: dict[str, Array]
    queue_time: float
    execution: Execution


class BatchObserver(Protocol):
    """Is told of every execution and of every change of the queue length."""

    def executed(self, execution: Execution, /) -> None: ...

    def pending(self, requests: int, /) -> None: ...


@dataclass(eq=False, slots=True)
class _Work:
    inputs: Arrays
    rows: int
    key: tuple[tuple[int, ...], ...]
    deadline: float | None
    enqueued: float
    cancellation: Cancellation | None = None
    waiting: Future[BatchResult] | None = None

    @property
    def future(self) -> Future[BatchResult]:
        """What the caller of a queued request waits for; one that runs at once has none."""
        assert self.waiting is not None
        return self.waiting

    def unwanted(self, now: float) -> IngotError | None:
        """Why nobody waits for the result any more."""
        return why_unwanted(self.deadline, self.cancellation, now)


class Batcher:
    """Runs requests on ``runners``, merged along the leading axis when ``options.max_batch_size`` > 0.

    The thread of a request runs it itself when an instance is free and nothing waits (no thread is switched on an
    idle server); otherwise a worker thread does.
    """

    def __init__(
        self,
        runners: Sequence[Runner],
        options: BatchOptions,
        observer: BatchObserver,
        clock: Callable[[], float] = time.monotonic,
        watch: Watch = WATCH,
    ) -> None:
        self._options = options
        self._watch = watch
        self._observer = observer
        self._clock = clock
        self._changed = threading.Condition()
        self._queue: deque[_Work] = deque()
        self._idle = list(runners)
        self._instances = len(self._idle)
        self._closed = False
        self._workers = [
            threading.Thread(target=self._serve, name=f"batcher-{i}", daemon=True) for i in range(self._instances)
        ]
        for worker in self._workers:
            worker.start()

    def run(
        self, inputs: Arrays, deadline: float | None = None, cancellation: Cancellation | None = None
    ) -> BatchResult:
        """Compute ``inputs``; blocks until done.

        Raises:
            IngotError: RESOURCE_EXHAUSTED (queue full), DEADLINE_EXCEEDED (not computed in time), CANCELLED,
                UNAVAILABLE (closed), or what the model raised.
        """
        batched = self._options.max_batch_size > 0
        now = self._clock()
        if (unwanted := why_unwanted(deadline, cancellation, now)) is not None:
            raise unwanted
        rows, key = (row_count(inputs), group_key(inputs)) if batched else (0, ())
        work = _Work(inputs, rows, key, deadline, now, cancellation)
        runner = self._enter(work)
        if runner is not None:
            (outcome,) = self._execute(runner, [work], ReleaseReason.IDLE if batched else ReleaseReason.UNBATCHED)
            if isinstance(outcome, BatchResult):
                return outcome
            raise outcome
        if cancellation is not None:
            cancellation.add_callback(lambda: self._leave(work))
        return self._wait(work)

    def close(self) -> None:
        """Finish what waits, refuse what comes, and stop the workers."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for worker in self._workers:
            worker.join()
        with self._changed:  # requests that run in the threads of their callers
            while len(self._idle) < self._instances:
                self._changed.wait()

    @property
    def oldest_wait(self) -> float:
        """Age of the oldest waiting request in seconds; 0 when none waits."""
        with self._changed:
            return self._clock() - self._queue[0].enqueued if self._queue else 0.0

    def _enter(self, work: _Work) -> Runner | None:
        """Take an instance for ``work``, or queue it."""
        with self._changed:
            if self._closed:
                raise IngotError(
                    ErrorCode.UNAVAILABLE, "this version of the model is being unloaded", remedy="Send it again."
                )
            if self._idle and not self._queue and self._immediate(work):
                return self._idle.pop()
            if len(self._queue) >= self._options.max_queue_size:
                raise IngotError(
                    ErrorCode.RESOURCE_EXHAUSTED,
                    "the queue of the model is full",
                    expected=f"fewer than {self._options.max_queue_size} waiting requests",
                    received=f"{len(self._queue)} waiting",
                    remedy="Retry after a pause, or add replicas.",
                )
            work.waiting = Future()
            self._queue.append(work)
            self._observer.pending(len(self._queue))
            self._changed.notify()
            return None

    def _immediate(self, work: _Work) -> bool:
        options = self._options
        return options.max_batch_size == 0 or options.max_queue_delay == 0 or work.rows >= options.max_batch_size

    def _wait(self, work: _Work) -> BatchResult:
        while True:
            timeout = (
                _LOOK_SECONDS if work.deadline is None else max(0.0, min(_LOOK_SECONDS, work.deadline - self._clock()))
            )
            try:
                return work.future.result(timeout)
            except FutureTimeoutError as error:
                unwanted = work.unwanted(self._clock())
                if unwanted is not None and not work.future.done():
                    self._leave(work)
                    raise unwanted from error
            except CancelledError as error:
                raise _cancelled() from error

    def _leave(self, work: _Work) -> None:
        """Forget ``work`` if it is not running yet."""
        if not work.future.cancel():
            return
        with self._changed:
            if work in self._queue:
                self._queue.remove(work)
                self._observer.pending(len(self._queue))

    def _serve(self) -> None:
        while (released := self._release()) is not None:
            runner, batch, reason = released
            for work, outcome in zip(batch, self._execute(runner, batch, reason), strict=True):
                if isinstance(outcome, BatchResult):
                    work.future.set_result(outcome)
                else:
                    work.future.set_exception(outcome)

    def _release(self) -> tuple[Runner, list[_Work], ReleaseReason] | None:
        """Wait until a batch may run; ``None`` when the batcher is closed and empty."""
        with self._changed:
            while True:
                self._expire()
                wait: float | None = None
                if self._queue and self._idle:
                    reason, wait = self._reason()
                    if reason is not None and (batch := self._take()):
                        return self._idle.pop(), batch, reason
                elif self._closed and not self._queue:
                    return None
                self._changed.wait(wait)

    def _reason(self) -> tuple[ReleaseReason | None, float | None]:
        """Why the batch of the oldest request may run now, or how long it may still wait."""
        options = self._options
        if options.max_batch_size == 0:
            return ReleaseReason.UNBATCHED, None
        head = self._queue[0]
        if sum(work.rows for work in self._queue if work.key == head.key) >= options.max_batch_size:
            return ReleaseReason.FULL, None
        if self._closed:
            return ReleaseReason.CLOSING, None
        if options.max_queue_delay == 0:
            return ReleaseReason.IDLE, None
        left = head.enqueued + options.max_queue_delay - self._clock()
        return (ReleaseReason.DELAY, None) if left <= 0 else (None, left)

    def _take(self) -> list[_Work]:
        """Remove the oldest request and what fits beside it from the queue. May be empty: all of it was cancelled."""
        head = self._queue.popleft()
        batch, rows, rest = [head], head.rows, deque[_Work]()
        if self._options.max_batch_size:
            for work in self._queue:
                if work.key == head.key and rows + work.rows <= self._options.max_batch_size:
                    batch.append(work)
                    rows += work.rows
                else:
                    rest.append(work)
            self._queue = rest
        self._observer.pending(len(self._queue))
        return [work for work in batch if work.future.set_running_or_notify_cancel()]

    def _expire(self) -> None:
        """Answer the requests whose deadline has passed: nobody waits for the result."""
        now = self._clock()
        expired = [work for work in self._queue if work.deadline is not None and work.deadline <= now]
        for work in expired:
            self._queue.remove(work)
            if work.future.set_running_or_notify_cancel():
                work.future.set_exception(_deadline_exceeded())
        if expired:
            self._observer.pending(len(self._queue))

    def _execute(self, runner: Runner, batch: list[_Work], reason: ReleaseReason) -> list[BatchResult | Exception]:
        """One outcome per request; the runner is given back before anybody learns of theirs."""
        try:
            return self._outcomes(runner, batch, reason, self._clock())
        finally:
            with self._changed:
                self._idle.append(runner)
                if self._queue or self._closed:
                    self._changed.notify_all()

    def _outcomes(
        self, runner: Runner, batch: list[_Work], reason: ReleaseReason, started: float
    ) -> list[BatchResult | Exception]:
        try:
            outputs, execution = self._run(runner, batch, reason)
        except Exception as error:
            if isinstance(error, IngotError) and error.code is ErrorCode.CANCELLED:  # the run was stopped
                now = self._clock()
                return [work.unwanted(now) or _shut_down() for work in batch]
            if len(batch) == 1:
                return [error]
            return [outcome for work in batch for outcome in self._outcomes(runner, [work], reason, started)]
        self._observer.executed(execution)
        return [
            BatchResult(rows, started - work.enqueued, execution) for work, rows in zip(batch, outputs, strict=True)
        ]

    def _run(
        self, runner: Runner, batch: list[_Work], reason: ReleaseReason
    ) -> tuple[list[dict[str, Array]], Execution]:
        requests, rows = len(batch), sum(work.rows for work in batch)
        begin = self._clock()
        limit = self._options.max_batch_size
        if limit == 0:
            outputs = self._computed(runner, batch, batch[0].inputs)
            return [outputs], Execution(requests, rows, 0.0, self._clock() - begin, 0.0, reason)
        inputs = concatenate([work.inputs for work in batch])
        merged = self._clock()
        found = self._computed(runner, batch, inputs)
        computed = self._clock()
        results = split(found, [work.rows for work in batch])
        ended = self._clock()
        return results, Execution(requests, rows, merged - begin, computed - merged, ended - computed, reason)

    def _computed(self, runner: Runner, batch: Sequence[_Work], inputs: Arrays) -> dict[str, Array]:
        """Results of ``inputs``, unless all of ``batch`` is unwanted before they are there."""
        stop = self._watch.begin(lambda: all(work.unwanted(self._clock()) is not None for work in batch))
        rows, limit = sum(work.rows for work in batch), self._options.max_batch_size
        try:
            if limit == 0 or rows <= limit:
                return runner.run(inputs, stop)
            joined = Joined(rows, lambda size: self._options.resources.require(size, "the outputs"))
            for piece in chunks(inputs, limit):
                joined.add(runner.run(piece, stop), row_count(piece))
            return joined.arrays
        finally:
            self._watch.end(stop)


def why_unwanted(deadline: float | None, cancellation: Cancellation | None, now: float) -> IngotError | None:
    """Why nobody waits for what a request asks for any more."""
    if cancellation is not None and cancellation.cancelled:
        return _cancelled()
    return _deadline_exceeded() if deadline is not None and deadline <= now else None


def _deadline_exceeded() -> IngotError:
    return IngotError(
        ErrorCode.DEADLINE_EXCEEDED,
        "the deadline of the request passed before its result was computed",
        remedy="Allow more time, or send fewer requests at once.",
    )


def _shut_down() -> IngotError:
    return IngotError(ErrorCode.UNAVAILABLE, "the server ended before the result was computed", remedy="Send it again.")


def _cancelled() -> IngotError:
    return IngotError(ErrorCode.CANCELLED, "the request was cancelled by the client")
