"""Which requests take so little time that handing them to another thread would take longer.

A model whose steps do not depend on its data takes as long for one request as for another of the same size; how long that was is
remembered by the size of the message. What is not known, or was slow once, gets a thread of its own.
"""

from __future__ import annotations

import threading

MOST_MESSAGE_BYTES = 64 * 1024
_QUICK_SECONDS, _SLOW_SECONDS = 200e-6, 1e-3
_ENOUGH, _PAUSE = 4, 256
"""Runs that were quick before the next is taken for quick; and that have to be once one was slow."""
_MOST_KEPT = 4096


class Quick:
    """Counts quick runs by model and size of the message."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._left: dict[tuple[str, int], int] = {}
        """Runs that have still to be quick."""

    def is_quick(self, model: str, size: int) -> bool:
        return self._left.get((model, size), _ENOUGH) <= 0

    def note(self, model: str, size: int, seconds: float) -> None:
        """A run took so long."""
        key = model, size
        left = self._left.get(key, _ENOUGH)
        if seconds < _QUICK_SECONDS and left <= 0:
            return
        with self._lock:
            if len(self._left) >= _MOST_KEPT and key not in self._left:
                self._left.clear()
            if seconds < _QUICK_SECONDS:
                self._left[key] = left - 1
            elif seconds > _SLOW_SECONDS:
                self._left[key] = _PAUSE
            else:
                self._left[key] = max(left, 1)
