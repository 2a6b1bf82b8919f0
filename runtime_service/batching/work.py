"""A request on its way through a batcher, and the rows of it that one execution computes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from runtime_service.arrays import Array
from runtime_service.batching.execution import BatchResult, Execution
from runtime_service.batching.messages import Cancellation
from runtime_service.batching.rows import Arrays, Joined
from shared_ir.errors import ErrorCode, IngotError

Outcome: TypeAlias = BatchResult | Exception
Key: TypeAlias = tuple[tuple[int, ...], ...]


@dataclass(eq=False, slots=True)
class Work:
    """A request, in the hands of one thread at a time: that which waits for it, or that which computes a batch with it.

    Attributes:
        rows: 0 where nothing is merged.
        weight: rows that count against the limit of an execution. Rows of nothing, of which there may be any number, do not.
        key: requests with equal keys may be merged.
        deadline: on the clock of the batcher, in seconds.
        level: of its priority; lower ones go first.
        begun: rows that have been computed, or are.
        waited: seconds in the queue so far; ``since`` when it last came there.
        leads: it is for this request's thread to form the next batch.
        outcome: once it is known.
    """

    inputs: Arrays
    rows: int
    weight: int
    key: Key
    deadline: float | None
    cancellation: Cancellation | None
    since: float
    level: int = 0
    begun: int = 0
    waited: float = 0.0
    leads: bool = False
    outcome: Outcome | None = None
    joined: Joined | None = None
    execution: Execution | None = None
    _signal: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._signal.acquire()

    @property
    def left(self) -> int:
        """Rows that count and are not begun."""
        return self.weight - self.begun

    def cut(self, room: int) -> RequestRows:
        """The next rows, at most ``room`` of those that count; they are begun with that."""
        if not self.weight:
            return RequestRows(self, 0, self.rows)
        piece = RequestRows(self, self.begun, min(self.left, room))
        self.begun += piece.rows
        return piece

    def is_late(self, now: float) -> bool:
        return self.deadline is not None and self.deadline <= now

    def unwanted(self, now: float) -> IngotError | None:
        """Why nobody waits for the result any more."""
        return why_unwanted(self.deadline, self.cancellation, now)

    def wake(self) -> None:
        """There is news for the thread that waits: once is enough."""
        with suppress(RuntimeError):  # it was woken already
            self._signal.release()

    def sleep(self, seconds: float) -> None:
        """Until there is news, or for so long."""
        self._signal.acquire(timeout=max(0.0, seconds))


class RequestRows(NamedTuple):
    """Rows ``begin`` to ``begin + rows`` of a request."""

    work: Work
    begin: int
    rows: int

    @property
    def inputs(self) -> Arrays:
        if self.rows == self.work.rows:
            return self.work.inputs
        return {name: array[self.begin : self.begin + self.rows] for name, array in self.work.inputs.items()}

    def result(
        self, outputs: dict[str, Array], execution: Execution, require: Callable[[int], None]
    ) -> BatchResult | None:
        """That of the request, once ``outputs`` are those of its last rows.

        Raises:
            IngotError: as :class:`Joined`.
        """
        work = self.work
        work.execution = execution.after(work.execution)
        if self.rows == work.rows:
            return BatchResult(outputs, work.waited, work.execution)
        if work.joined is None:
            work.joined = Joined(work.rows, require)
        work.joined.add(outputs, self.rows)
        return None if work.left > 0 else BatchResult(work.joined.arrays, work.waited, work.execution)


def why_unwanted(deadline: float | None, cancellation: Cancellation | None, now: float) -> IngotError | None:
    """Why nobody waits for what a request asks for any more."""
    if cancellation is not None and cancellation.cancelled:
        return IngotError(ErrorCode.CANCELLED, "the request was cancelled by the client")
    if deadline is None or deadline > now:
        return None
    return IngotError(
        ErrorCode.DEADLINE_EXCEEDED,
        "the deadline of the request passed before its result was computed",
        remedy="Allow more time, or send fewer requests at once.",
    )
