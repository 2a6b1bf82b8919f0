"""How long a client waits for a service that is away, and what it takes up again: restarts of a service end no upload and no watch."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from ingot.channel import check_timeout
from shared_ir.errors import ErrorCode, IngotError

AWAY_SECONDS = 300.0
"""For which a service that has answered may be away, where nobody set a deadline: a rollout, and a machine that starts anew."""
NEVER_SEEN_SECONDS = 2.0
"""The same of one that has not answered yet: perhaps there is none."""
_FIRST_PAUSE_SECONDS = 0.1
_LONGEST_PAUSE_SECONDS = 2.0
_PASSING = frozenset(
    {
        ErrorCode.UNAVAILABLE,
        ErrorCode.CANCELLED,  # a server that stops ends the calls that run
        ErrorCode.DEADLINE_EXCEEDED,
    }
)

_T = TypeVar("_T")


def passes(error: IngotError) -> bool:
    """Whether the same call may succeed a little later."""
    return error.code in _PASSING or is_gap(error)


def is_gap(error: IngotError) -> bool:
    """Whether the service lost what it had of an upload."""
    return error.code is ErrorCode.INVALID_ARGUMENT and error.field == "offset"


class OutagePatience:
    """Counts how long a service has been away from somebody who waits for it.

    Args:
        timeout: seconds until the deadline; None for as long as the service is there.
        known: whether the service has answered before.
    """

    def __init__(self, timeout: float | None = None, known: bool = False) -> None:
        self._deadline = None if timeout is None else time.monotonic() + check_timeout(timeout)
        self._known = known
        self._seen = time.monotonic()
        self._pause = _FIRST_PAUSE_SECONDS

    @property
    def remaining(self) -> float | None:
        """Seconds until the deadline, at least none."""
        return None if self._deadline is None else max(0.0, self._deadline - time.monotonic())

    def at_most(self, seconds: float) -> float:
        """The time for one call."""
        return seconds if self.remaining is None else min(seconds, self.remaining)

    def is_over(self, error: IngotError) -> bool:
        """Whether ``error`` is that of a call which the deadline has ended."""
        return error.code is ErrorCode.DEADLINE_EXCEEDED and self.remaining == 0.0

    def answered(self) -> None:
        """The service is there."""
        self._known = True
        self._seen = time.monotonic()
        self._pause = _FIRST_PAUSE_SECONDS

    def wait(self, error: IngotError, crowd: bool = False) -> None:
        """Let a moment pass before another try.

        Args:
            crowd: try again too where others hold all places (RESOURCE_EXHAUSTED), which a quota never gives back.

        Raises:
            IngotError: ``error``, no other try may be made, or none would help.
        """
        if not passes(error) and not (crowd and error.code is ErrorCode.RESOURCE_EXHAUSTED):
            raise error
        away = AWAY_SECONDS if self._known else NEVER_SEEN_SECONDS
        end = self._deadline if self._deadline is not None else self._seen + away
        left = end - time.monotonic()
        if left <= 0:
            raise error
        time.sleep(min(self._pause, left))
        self._pause = min(2 * self._pause, _LONGEST_PAUSE_SECONDS)

    def call(self, function: Callable[[], _T]) -> _T:
        """``function()``, again where it fails for a while."""
        while True:
            try:
                return function()
            except IngotError as error:
                self.wait(error)
