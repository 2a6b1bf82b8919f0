"""Dynamic batching: a bounded queue in front of the instances of one model version.

A batch is formed when an instance is free to run it, never before, so requests that arrive while all instances are
busy are merged. Only rows are merged, never shapes: requests whose other dims differ run apart. A failed merged
execution is repeated request by request, so that nobody answers for a neighbour.

There are no threads but those of the requests. One that comes while an instance is free and nobody waits runs at once. Otherwise the
thread of the request at the head of the queue leads: it forms the next batch, runs it, and tells the others of theirs; it would have
to be woken anyway. Before that it hands the lead to the thread of the next head, if there is another free instance.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from runtime_service.arrays import Array
from runtime_service.batching.execution import (
    BatchObserver,
    BatchOptions,
    BatchResult,
    Execution,
    ReleaseReason,
    Runner,
)
from runtime_service.batching.forming import Forming, Release
from runtime_service.batching.messages import Cancellation
from runtime_service.batching.rows import Arrays, concatenate, group_key, row_count, split
from runtime_service.batching.waiting import Waiting
from runtime_service.batching.watch import WATCH, Watch
from runtime_service.batching.work import Outcome, RequestRows, Work
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.service_kit.waiting import WouldWait

_LOOK_SECONDS = 0.25
"""How often a request that waits for its turn is asked whether its client is still there."""


class Batcher:
    """Runs requests on ``runners``, merged along the leading axis when ``options.max_batch_size`` > 0."""

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
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._waiting = Waiting(options.max_batch_size)
        self._forming = Forming(options)
        self._leader: Work | None = None
        self._idle = list(runners)
        self._instances = len(self._idle)
        self._closed = False

    def run(
        self,
        inputs: Arrays,
        deadline: float | None = None,
        cancellation: Cancellation | None = None,
        priority: int = 0,
        waits: bool = True,
    ) -> BatchResult:
        """Compute ``inputs``; blocks until done. ``priority`` from 1 on; 0 is that of requests that name none. What does not want to wait
        is computed now or not at all.

        Raises:
            WouldWait: no instance is free, or there is more of ``inputs`` than one run takes.
            IngotError: RESOURCE_EXHAUSTED (queue full), DEADLINE_EXCEEDED (not computed in time), CANCELLED,
                UNAVAILABLE (closed), INVALID_ARGUMENT (no such priority), or what the model raised.
        """
        work = self._work(inputs, deadline, cancellation, priority)
        if (unwanted := work.unwanted(work.since)) is not None:
            raise unwanted
        runner = self._enter(work, waits)
        if runner is not None:
            self._execute(runner, [work.cut(self._options.max_batch_size)], self._own_reason, work)
        if work.outcome is None:
            self._await(work, cancellation or Cancellation())
        if isinstance(work.outcome, BatchResult):
            return work.outcome
        assert work.outcome is not None
        raise work.outcome

    def close(self) -> None:
        """Finish what waits, refuse what comes."""
        with self._lock:
            self._closed = True
            self._changed.notify_all()
            while self._waiting or len(self._idle) < self._instances:
                self._changed.wait()

    @property
    def is_free(self) -> bool:
        """Whether an instance is, and nobody waits for it."""
        return self._closed or (bool(self._idle) and not self._waiting)

    @property
    def oldest_wait(self) -> float:
        """Age of the oldest waiting request in seconds; 0 when none waits."""
        with self._lock:
            oldest = self._waiting.oldest
        return 0.0 if oldest is None else self._clock() - oldest

    def _work(self, inputs: Arrays, deadline: float | None, cancellation: Cancellation | None, priority: int) -> Work:
        level, now = self._level(priority), self._clock()
        if self._options.max_batch_size == 0:
            return Work(inputs, 0, 0, (), deadline, cancellation, now, level)
        rows = row_count(inputs)
        weight = rows if any(array.size for array in inputs.values()) else 0
        return Work(inputs, rows, weight, group_key(inputs), deadline, cancellation, now, level)

    def _level(self, priority: int) -> int:
        levels = self._options.priority_levels
        if not 0 <= priority <= levels:
            raise IngotError(
                ErrorCode.INVALID_ARGUMENT,
                "the model has no such priority",
                field="priority",
                expected=f"1 to {levels}, or 0 for the usual one"
                if levels
                else "none: requests of this model have no priorities",
                received=str(priority),
            )
        return priority or self._options.default_priority_level

    def _enter(self, work: Work, waits: bool) -> Runner | None:
        """Take an instance for ``work``, or queue it where it ``waits``."""
        with self._lock:
            if self._closed:
                raise IngotError(
                    ErrorCode.UNAVAILABLE, "this version of the model is being unloaded", remedy="Send it again."
                )
            is_first = self._idle and not self._waiting and self._forming.is_immediate(work, work.since)
            if is_first and (waits or work.rows <= self._options.max_batch_size):
                return self._idle.pop()
            if not waits:
                # where there are priorities, those who wait may have to let it go first
                raise WouldWait(None if self.is_free or self._options.priority_levels else self)
            waiting = self._waiting.of_level(work.level)
            if waiting >= self._options.max_queue_size:
                raise IngotError(
                    ErrorCode.RESOURCE_EXHAUSTED,
                    "the queue of the model is full",
                    expected=f"fewer than {self._options.max_queue_size} waiting requests",
                    received=f"{waiting} waiting",
                    remedy="Retry after a pause, or add replicas.",
                )
            self._queue(work)
            if self._leader is not None and self._idle:
                self._changed.notify()  # it waits for company
            self._promote()
            return None

    @property
    def _own_reason(self) -> ReleaseReason:
        return ReleaseReason.IDLE if self._options.max_batch_size else ReleaseReason.UNBATCHED

    def _queue(self, work: Work) -> None:
        self._waiting.add(work)
        self._observer.pending(len(self._waiting))

    def _promote(self) -> None:
        """Let the head of the queue lead where an instance is free; called with the lock."""
        head = self._waiting.head
        if head is not None and self._leader is None and self._idle:
            self._leader, head.leads = head, True
            head.wake()

    def _await(self, work: Work, cancellation: Cancellation) -> None:
        """The outcome of ``work``, whose thread this is, and which leads where that is its turn."""

        def turn_away() -> None:
            self._turn_away(work)

        cancellation.add_callback(turn_away)
        try:
            while work.outcome is None:
                if work.leads:
                    self._lead(work)
                else:
                    self._wait(work)
        finally:
            cancellation.remove_callback(turn_away)

    def _wait(self, work: Work) -> None:
        """Until there is news for ``work``, or nobody wants it any more."""
        now = self._clock()
        work.sleep(_LOOK_SECONDS if work.deadline is None else min(_LOOK_SECONDS, work.deadline - now))
        if work.outcome is None:
            self._turn_away(work)

    def _turn_away(self, work: Work) -> None:
        """Forget ``work`` if nobody wants it any more."""
        if (unwanted := work.unwanted(self._clock())) is not None:
            with self._lock:
                self._leave(work, unwanted)
            work.wake()

    def _leave(self, work: Work, unwanted: IngotError) -> None:
        """Nobody waits for ``work`` any more, though it may be running; called with the lock."""
        if work.outcome is None:
            work.outcome = unwanted
        if self._waiting.remove(work):
            self._observer.pending(len(self._waiting))
        if self._leader is work:
            self._abdicate(work)
        elif self._closed:
            self._changed.notify_all()

    def _abdicate(self, work: Work) -> None:
        self._leader, work.leads = None, False
        self._promote()
        if self._closed:
            self._changed.notify_all()

    def _lead(self, work: Work) -> None:
        """Form the next batch and run it, unless another request has come to the head of the queue."""
        with self._lock:
            release = self._release(work)
            if release is None:
                return
            now = self._clock()
            pieces, late = self._waiting.take(now, release.rows)
            for gone in late:
                gone.outcome = gone.unwanted(now)
                gone.wake()
            for piece in pieces:
                piece.work.waited += now - piece.work.since
            self._observer.pending(len(self._waiting))
            runner = self._idle.pop() if pieces else None
            self._abdicate(work)
        if runner is not None:
            self._execute(runner, pieces, release.reason, work)

    def _release(self, work: Work) -> Release | None:
        """Wait until a batch may run that begins with ``work``; None where it is not for ``work`` to lead any more."""
        while True:
            now = self._clock()
            if (unwanted := work.unwanted(now)) is not None:
                self._leave(work, unwanted)
                return None
            if self._waiting.head is not work or not self._idle:
                self._abdicate(work)
                return None
            release = self._forming.release(self._waiting, self._closed, now)
            if isinstance(release, Release):
                return release
            ends = release if work.deadline is None else min(release, work.deadline - now)
            self._changed.wait(max(0.0, min(ends, _LOOK_SECONDS)))

    def _execute(self, runner: Runner, pieces: list[RequestRows], reason: ReleaseReason, own: Work) -> None:
        """Run the pieces in this thread, which is that of ``own``; the runner is given back before anybody learns of theirs."""
        begin = self._clock()
        outcomes: list[Outcome | None] = []
        try:
            outcomes = self._outcomes(runner, pieces, reason)
        finally:
            now = self._clock()
            outcomes = outcomes or [_shut_down() for _ in pieces]
            answered = sum(outcome is not None for outcome in outcomes)
            with self._lock:
                self._idle.append(runner)
                for piece, outcome in zip(pieces, outcomes, strict=True):
                    self._conclude(piece.work, outcome, now)
                self._forming.executed(answered, now - begin, len(self._waiting), now)
                self._promote()
                if self._closed:
                    self._changed.notify_all()
            for piece in pieces:
                if piece.work is not own and piece.work.outcome is not None:
                    piece.work.wake()

    def _conclude(self, work: Work, outcome: Outcome | None, now: float) -> None:
        """What has come of ``work``, or of a piece of it; called with the lock."""
        if work.outcome is None:  # nobody has turned away
            work.outcome = outcome
            if outcome is None:
                work.since = now
                self._queue(work)

    def _outcomes(self, runner: Runner, pieces: list[RequestRows], reason: ReleaseReason) -> list[Outcome | None]:
        """One for each piece; None where rows of its request are left."""
        try:
            outputs, execution = self._run(runner, pieces, reason)
        except Exception as error:
            if isinstance(error, IngotError) and error.code is ErrorCode.CANCELLED:  # the run was stopped
                now = self._clock()
                return [piece.work.unwanted(now) or _shut_down() for piece in pieces]
            if len(pieces) == 1:
                return [error]
            return [outcome for piece in pieces for outcome in self._outcomes(runner, [piece], reason)]
        self._observer.executed(execution)
        return [self._outcome(piece, rows, execution) for piece, rows in zip(pieces, outputs, strict=True)]

    def _outcome(self, piece: RequestRows, outputs: dict[str, Array], execution: Execution) -> Outcome | None:
        try:
            return piece.result(outputs, execution, lambda size: self._options.resources.require(size, "the outputs"))
        except Exception as error:
            return error

    def _run(
        self, runner: Runner, pieces: list[RequestRows], reason: ReleaseReason
    ) -> tuple[list[dict[str, Array]], Execution]:
        rows = [piece.rows for piece in pieces]
        begin = self._clock()
        inputs = concatenate([piece.inputs for piece in pieces])
        merged = self._clock()
        before = time.thread_time()
        found = self._computed(runner, pieces, inputs)
        spent, computed = time.thread_time() - before, self._clock()
        results = split(found, rows) if self._options.max_batch_size else [found]
        ended = self._clock()
        took = (merged - begin, computed - merged, ended - computed)
        return results, Execution(len(pieces), sum(rows), *took, reason, begin, spent)

    def _computed(self, runner: Runner, pieces: Sequence[RequestRows], inputs: Arrays) -> dict[str, Array]:
        """Results of ``inputs``, unless all requests are unwanted before they are there."""
        stop = self._watch.begin(lambda: all(piece.work.unwanted(self._clock()) is not None for piece in pieces))
        try:
            return runner.run(inputs, stop)
        finally:
            self._watch.end(stop)


def _shut_down() -> IngotError:
    return IngotError(ErrorCode.UNAVAILABLE, "the server ended before the result was computed", remedy="Send it again.")
