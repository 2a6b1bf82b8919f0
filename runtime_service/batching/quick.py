"""Which requests take so little time that handing them to another thread would take longer.

A model whose steps do not depend on its data takes as long for one request as for another of the same size; how long that was is
remembered by the size of the message. One run that was slow may have waited for the processor; several have not.
"""

from __future__ import annotations

import threading

MOST_MESSAGE_BYTES = 64 * 1024
_QUICK_SECONDS, _SLOW_SECONDS, _LONG_SECONDS = 200e-6, 1e-3, 20e-3
_ENOUGH, _MOST = 4, 8
"""Points that make a size of messages quick, and that it has at most: a quick run gives one, another takes one, a slow one two."""
_LEAST = -50
"""After a long run. One size of messages may have several shapes of tensors, of which one is quick and another is not: who sends them in
turns keeps others waiting for one run in fifty at most."""
_MOST_KEPT = 4096


class Quick:
    """Points of runs, by model and size of the message."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._points: dict[tuple[str, int], int] = {}

    def is_quick(self, model: str, size: int) -> bool:
        return self._points.get((model, size), 0) >= _ENOUGH

    def note(self, model: str, size: int, seconds: float) -> None:
        """A run took so long."""
        key = model, size
        points = self._points.get(key, 0)
        if seconds < _QUICK_SECONDS and points == _MOST:
            return
        with self._lock:
            if len(self._points) >= _MOST_KEPT and key not in self._points:
                self._points.clear()
            self._points[key] = _after(points, seconds)


def _after(points: int, seconds: float) -> int:
    """What ``points`` become by a run."""
    if seconds < _QUICK_SECONDS:
        return min(_MOST, points + 1)
    if seconds >= _LONG_SECONDS:
        return _LEAST
    return points if points <= 0 else max(0, points - (1 if seconds < _SLOW_SECONDS else 2))
