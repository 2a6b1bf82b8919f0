"""Calls that are put off by the thread of an event loop until a place is free, without a thread of their own.

Where many quick calls have come to wait in threads of a lane, each of them takes several times as long as in the loop, and those that come
meanwhile would wait behind them in the lane as well: the server would stay in that state for as long as clients ask. Put off for a moment,
they let the lane run empty. Where it does not, as others keep the place busy by right, it is not tried again for a while.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from weakref import WeakKeyDictionary

from shared_ir.service_kit.waiting import Place

_LOOK_SECONDS = 0.001
_MOST_SECONDS = 0.025
"""For which a call is put off; 64 quick ones leave a lane within that."""
_PAUSE_SECONDS = 1.0
"""In which nobody is put off any more where that was in vain."""

Later = Callable[[float, Callable[[], None]], object]


class PuttingOff:
    """``later`` calls a function of the thread of the loop after some seconds. All of it runs in that thread."""

    def __init__(self, later: Later, clock: Callable[[], float] = time.monotonic) -> None:
        self._later = later
        self._clock = clock
        self._held: dict[Place, tuple[float, list[Callable[[], None]]]] = {}
        """With the moment at which the first of them came."""
        self._vain: WeakKeyDictionary[Place, float] = WeakKeyDictionary()
        self._is_looking = False

    def until_free(self, place: Place | None, go_on: Callable[[], None]) -> bool:
        """Call ``go_on`` when ``place`` is free, or has not become so for long; False where there is nothing to wait for."""
        now = self._clock()
        if place is None or now - self._vain.get(place, now - _PAUSE_SECONDS) < _PAUSE_SECONDS:
            return False
        self._held.setdefault(place, (now, []))[1].append(go_on)
        if not self._is_looking:
            self._is_looking = True
            self._later(_LOOK_SECONDS, self._look)
        return True

    def _look(self) -> None:
        now = self._clock()
        for place, (since, waiting) in tuple(self._held.items()):
            is_late = now - since >= _MOST_SECONDS
            if not (is_late or place.is_free):
                continue
            del self._held[place]
            if is_late and not place.is_free:
                self._vain[place] = now
            for go_on in waiting:
                self._later(0.0, go_on)
        self._is_looking = bool(self._held)
        if self._is_looking:
            self._later(_LOOK_SECONDS, self._look)
