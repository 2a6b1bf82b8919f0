"""How much of what leads to nothing a peer may send: pings, settings, hasty resets, empty frames.

Each of them costs a server more than its peer: CVE-2019-9512 to -9518 (floods), CVE-2023-44487 (rapid reset). Who makes calls that are
answered earns some; time gives some back.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from shared_ir.service_kit.http2.frames import Code, ConnectionFault

_MOST_FRAMES = 4000.0
_FRAMES_PER_SECOND = 100.0


class WasteAllowance:
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._left, self._at = _MOST_FRAMES, clock()

    def earn(self, count: float) -> None:
        self._left = min(_MOST_FRAMES, self._left + count)

    def spend(self, count: float) -> None:
        """Raises ConnectionFault ENHANCE_YOUR_CALM: nothing is left."""
        self._left -= count
        if self._left < 0:
            now = self._clock()
            self._left = min(_MOST_FRAMES, self._left + (now - self._at) * _FRAMES_PER_SECOND)
            self._at = now
            if self._left < 0:
                raise ConnectionFault(Code.ENHANCE_YOUR_CALM, "too many frames that lead to nothing")
