"""Which requests take so little time that handing them to another thread would take longer.

A model whose steps do not depend on its data takes as long for one request as for another of the same size; how long that was is
remembered by the size of the message. One run that was slow may have waited for the processor; several have not.

A run of several requests in one batch tells less: one alone takes no longer than all of them, and no less than its share. Where that
decides nothing, as it goes where many clients keep all instances busy and nobody runs alone, some such runs put the size of messages on
trial: it counts as quick until a lone run has shown what it is.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

MOST_MESSAGE_BYTES = 64 * 1024
_QUICK_SECONDS, _SLOW_SECONDS, _LONG_SECONDS = 200e-6, 1e-3, 20e-3
_ENOUGH, _MOST = 4, 8
"""Points that make a size of messages quick, and that it has at most: a quick run gives one, another takes one, a slow one two."""
_LEAST = -50
"""After a long run. One size of messages may have several shapes of tensors, of which one is quick and another is not: who sends them in
turns keeps others waiting for one run in fifty at most."""
_FORGIVEN = 1000
"""After so many quick runs a long one counts as slow: on a shared machine a thread may seem to compute while
another one has its processor."""
_LEAST_PATIENCE, _MOST_PATIENCE = 16, 4096
"""Requests whose runs decide nothing before a trial; twice as many after each trial that a slow run has ended, so that a model that is
slow alone and quick in a batch is run alone for one request in thousands."""
_MOST_KEPT = 4096


@dataclass(slots=True)
class _Record:
    """What the runs of one model with messages of one size have shown."""

    points: int = 0
    undecided: int = 0
    patience: int = _LEAST_PATIENCE
    since_long: int = 0
    """Quick runs since the last long one."""

    @property
    def is_on_trial(self) -> bool:
        return self.undecided >= self.patience and self.points >= 0

    @property
    def is_quick(self) -> bool:
        return self.points >= _ENOUGH or self.is_on_trial

    def note(self, seconds: float) -> None:
        """A lone run takes so long."""
        if seconds < _QUICK_SECONDS:
            self.since_long += 1
        elif seconds >= _LONG_SECONDS:
            seconds = _SLOW_SECONDS if self.since_long >= _FORGIVEN else seconds
            self.since_long = 0
        if seconds >= _QUICK_SECONDS and self.is_on_trial:
            self.undecided, self.patience = 0, min(_MOST_PATIENCE, 2 * self.patience)
        self.points = _after(self.points, seconds)
        if self.points >= _ENOUGH:
            self.undecided, self.patience = 0, _LEAST_PATIENCE


class Quick:
    """Records of runs, by model and size of the message."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._records: dict[tuple[str, int], _Record] = {}

    def is_quick(self, model: str, size: int) -> bool:
        record = self._records.get((model, size))
        return record is not None and record.is_quick

    def note(self, model: str, size: int, seconds: float, requests: int) -> None:
        """A run of so many requests, one of which was of this model and size, took so long."""
        key = model, size
        record = self._records.get(key)
        if (
            record is not None
            and seconds < _QUICK_SECONDS
            and record.points == _MOST
            and record.since_long >= _FORGIVEN
        ):
            return
        share = seconds / requests
        with self._lock:
            record = self._record(key)
            if share < _QUICK_SECONDS <= seconds and requests > 1:
                record.undecided += 1
            else:
                record.note(seconds if seconds < _QUICK_SECONDS else share)

    def _record(self, key: tuple[str, int]) -> _Record:
        if len(self._records) >= _MOST_KEPT and key not in self._records:
            self._records.clear()
        return self._records.setdefault(key, _Record())


def _after(points: int, seconds: float) -> int:
    """What ``points`` become by a run."""
    if seconds < _QUICK_SECONDS:
        return min(_MOST, points + 1)
    if seconds >= _LONG_SECONDS:
        return _LEAST
    return points if points <= 0 else max(0, points - (1 if seconds < _SLOW_SECONDS else 2))
