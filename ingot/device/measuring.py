"""Trials that take turns: what disturbs the machine for a while disturbs all of them alike."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from ingot.device.process import TrialFailed

ROUND_SECONDS = 0.002
_MOST_TIMES = 1_000_000
_FEWEST_ROUNDS, _ENOUGH_ROUNDS, _MOST_ROUNDS = 3, 5, 100
_SMALL_SPREAD = 0.005
"""Half the distance between the quartiles, of the median: more rounds would tell no more."""


class TrialProcess(Protocol):
    """A trial in a process of its own; each call raises TrialFailed where it crashes or is late."""

    def prepare(self, seconds: float) -> None: ...

    def run(self, times: int, seconds: float) -> float: ...

    def results(self, seconds: float) -> bytes: ...

    def close(self) -> None: ...


@dataclass
class MeasuredTrial:
    """What came of a trial: seconds of one run by round, and what its result buffers held after the first one."""

    kind: str = "measured"
    rounds: list[float] = field(default_factory=list)
    results: bytes = b""
    reason: str = ""


class _Turn:
    def __init__(self, start: Callable[[], TrialProcess], limit: float) -> None:
        self.found = MeasuredTrial()
        self._limit = limit
        self._times = 1
        self._process: TrialProcess | None = None
        self._attempt(lambda: self._begin(start))

    @property
    def is_alive(self) -> bool:
        return self.found.kind == "measured"

    @property
    def is_settled(self) -> bool:
        """Whether more rounds would tell nothing new."""
        rounds = self.found.rounds
        if len(rounds) < _ENOUGH_ROUNDS:
            return False
        low, middle, high = statistics.quantiles(rounds, n=4)
        return high - low <= 2 * _SMALL_SPREAD * middle

    def round(self) -> None:
        self._attempt(self._round)

    def close(self) -> None:
        if self._process is not None:
            self._process.close()

    def _begin(self, start: Callable[[], TrialProcess]) -> None:
        self._process = start()
        self._process.prepare(self._limit)
        self._process.run(1, self._limit)
        self.found.results = self._process.results(self._limit)
        once = self._process.run(1, self._limit)
        self._times = max(1, min(int(ROUND_SECONDS / max(once, 1e-9)), _MOST_TIMES))

    def _round(self) -> None:
        assert self._process is not None
        if self._times > 1:  # what the others have put into the caches leaves them
            self._process.run(1, self._limit)
        seconds = self._process.run(self._times, self._limit + 2 * ROUND_SECONDS)
        self.found.rounds.append(seconds / self._times)

    def _attempt(self, step: Callable[[], None]) -> None:
        try:
            step()
        except TrialFailed as error:
            self.found = MeasuredTrial(error.kind, reason=error.reason)
            self.close()


def measure(
    starts: Sequence[Callable[[], TrialProcess]],
    seconds: float,
    limit: float,
    is_wanted: Callable[[], bool] = lambda: True,
    clock: Callable[[], float] = time.monotonic,
) -> list[MeasuredTrial]:
    """Each trial is loaded, run once for its results, and then timed in rounds that take turns, there and back, until spreads are small
    or ``seconds`` are spent; three rounds at least.

    Args:
        limit: seconds that one may take for one answer.
        is_wanted: asked between rounds; what is there when it says no is returned.
    """
    deadline = clock() + seconds
    turns: list[_Turn] = []
    try:
        for start in starts:
            if not is_wanted():
                break
            turns.append(_Turn(start, limit))
        for number in range(_MOST_ROUNDS):
            for turn in turns if number % 2 == 0 else reversed(turns):
                if turn.is_alive and is_wanted():
                    turn.round()
            is_over = clock() >= deadline and number + 1 >= _FEWEST_ROUNDS
            if is_over or not is_wanted() or all(t.is_settled for t in turns if t.is_alive):
                break
        return [turn.found for turn in turns]
    finally:
        for turn in turns:
            turn.close()
