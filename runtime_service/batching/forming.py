"""When a batch is formed, once an instance is free."""

from __future__ import annotations

from typing import NamedTuple

from runtime_service.batching.execution import BatchOptions, ReleaseReason
from runtime_service.batching.waiting import Waiting
from runtime_service.batching.work import Work

_PATIENCE_SHARE = 0.03
"""Of the time that an execution took: so long those whom it has answered may take to come again."""
_SHORTEST_SECONDS = 20e-6
"""Below that it is not waited for: a thread takes as long to go to sleep."""
_MOST_PASSED_OVER = 15
"""Executions after one whose clients did not come again; the first time it is one, then twice as many each time."""


class Release(NamedTuple):
    """A batch of at most ``rows`` rows may run."""

    reason: ReleaseReason
    rows: int


class Forming:
    """Not safe to be used by several threads at once.

    Clients that send a request when they have the answer to the last one are away for a moment when an execution ends. If the next one
    began at once, it would be that of those who waited meanwhile, and the others would wait for its end: of ``c`` clients 1 and
    ``c - 1`` by turns, half a batch on average. So it is waited for them, for a small part of the time that they have just
    waited themselves; unless they were seen not to come.
    """

    def __init__(self, options: BatchOptions) -> None:
        self._options = options
        self._expected = self._answered = 0
        self._until = 0.0
        self._passing = 0
        self._passed_over = 1

    def executed(self, answered: int, seconds: float, waiting: int, now: float) -> None:
        """An execution of so many requests has ended, and so many others wait."""
        if self._passing:
            self._passing -= 1
            return
        patience = _PATIENCE_SHARE * seconds
        if self._options.max_batch_size and patience >= _SHORTEST_SECONDS:
            self._answered, self._expected, self._until = answered, waiting + answered, now + patience

    def is_immediate(self, work: Work, now: float) -> bool:
        """Whether a request that nobody waits beside is computed at once."""
        options = self._options
        if options.max_batch_size == 0 or work.weight >= options.max_batch_size:
            return True
        return options.max_queue_delay == 0 and (self._expected <= 1 or now >= self._until)

    def release(self, waiting: Waiting, closed: bool, now: float) -> Release | float:
        """What may run now of the requests that wait, of which there are some; or for how many seconds it may stay as it is."""
        options = self._options
        if options.max_batch_size == 0:
            return Release(ReleaseReason.UNBATCHED, 0)
        head = waiting.head
        assert head is not None
        rows, most = waiting.rows(head.key), options.max_batch_size
        if rows >= most:
            return Release(ReleaseReason.FULL, most)
        if closed:
            return Release(ReleaseReason.CLOSING, most)
        preferred = max((size for size in options.preferred_batch_sizes if size <= rows), default=0)
        if preferred:
            return Release(ReleaseReason.PREFERRED, max(preferred, min(head.left, most)))
        if options.max_queue_delay:
            left = (waiting.oldest or now) + options.max_queue_delay - now
            return Release(ReleaseReason.DELAY, most) if left <= 0 else left
        left = self._until - now
        if left > 0 and len(waiting) < self._expected:
            return left
        self._learn(len(waiting), left <= 0)
        return Release(ReleaseReason.IDLE, most)

    def _learn(self, waiting: int, has_waited: bool) -> None:
        """From how many have come in the time that they had."""
        if self._until and 2 * (self._expected - waiting) <= self._answered:
            self._passed_over = 1
        elif self._until and has_waited:
            self._passing = self._passed_over
            self._passed_over = min(2 * self._passed_over, _MOST_PASSED_OVER)
        self._expected = self._answered = 0
        self._until = 0.0
