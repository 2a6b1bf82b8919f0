"""Calls that are put off by the thread of an event loop until a place is free, without a thread of their own.

Where many quick calls have come to wait in threads of a lane, each of them takes several times as long as in the loop, and those that come
meanwhile would wait behind them in the lane as well: the server would stay in that state for as long as clients ask. Put off for a moment,
they let the lane run empty. Where it does not, as others keep the place busy by right, it is not tried again for a while.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from weakref import WeakKeyDictionary

from shared_ir.service_kit.waiting import Place

_LOOK_SECONDS = 0.001
MOST_SECONDS = 0.025
"""For which a call is put off; 64 quick ones leave a lane within that."""
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 1.0, 60.0
"""In which nobody is put off any more where that was in vain; twice as long each time, until it was not."""
_AT_ONCE = 32
"""Calls that go on before others have their turn."""

Later = Callable[[float, Callable[[], None]], object]


class PuttingOff:
    """``later`` calls a function of the thread of the loop after some seconds. All of it runs in that thread."""

    def __init__(self, later: Later, clock: Callable[[], float] = time.monotonic) -> None:
        self._later = later
        self._clock = clock
        self._held: dict[Place, tuple[float, list[Callable[[], None]]]] = {}
        """With the moment at which the first of them came."""
        self._pauses: WeakKeyDictionary[Place, tuple[float, float]] = WeakKeyDictionary()
        """Until when, and for how long, nobody is put off."""
        self._going: deque[Callable[[], None]] = deque()
        self._is_looking = False

    def until_free(self, place: Place | None, go_on: Callable[[], None], remaining: float | None = None) -> bool:
        """Call ``go_on`` when ``place`` is free, or has not become so for long; False where there is nothing to wait for, or the call has
        no more than ``remaining`` seconds, which waiting might take up."""
        now = self._clock()
        if place is None or (remaining is not None and remaining < 2 * MOST_SECONDS):
            return False
        if now < self._pauses.get(place, (now, 0.0))[0]:
            return False
        self._held.setdefault(place, (now, []))[1].append(go_on)
        if not self._is_looking:
            self._is_looking = True
            self._later(_LOOK_SECONDS, self._look)
        return True

    def _look(self) -> None:
        now = self._clock()
        for place, (since, waiting) in tuple(self._held.items()):
            is_free = place.is_free
            if not is_free and now - since < MOST_SECONDS:
                continue
            del self._held[place]
            _, pause = self._pauses.pop(place, (now, _FIRST_PAUSE_SECONDS / 2))
            if not is_free:
                pause = min(_LONGEST_PAUSE_SECONDS, 2 * pause)
                self._pauses[place] = now + pause, pause
            if not self._going:
                self._later(0.0, self._go)
            self._going.extend(waiting)
        self._is_looking = bool(self._held)
        if self._is_looking:
            self._later(_LOOK_SECONDS, self._look)

    def _go(self) -> None:
        """NOTE: the next turn is asked for before these are, one of which may fail."""
        turn = [self._going.popleft() for _ in range(min(_AT_ONCE, len(self._going)))]
        if self._going:
            self._later(0.0, self._go)
        for go_on in turn:
            go_on()
