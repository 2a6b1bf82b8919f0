"""Memory that large messages leave behind goes back to the system.

The malloc of glibc keeps what is free between blocks that are not: after a wave of large messages most of a process may be such holes
(1.6 GB of which 0.2 GB were in use). ``malloc_trim(3)`` gives them back, in a thread of its own, when it has been quiet for a moment. It
leaves the end of each arena but the first, of up to 64 MB, and there are eight for each core as soon as so many threads ask for memory: so
there are two (:func:`share_arenas`).
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable

LARGE_BYTES = 1 << 20
"""Of a message or answer that is worth it."""
_MUCH_BYTES = 16 << 20
"""Of many things that were small each."""
_QUIET_SECONDS = 1.0
_LONGEST_SECONDS = 30.0
"""Without a quiet moment it is done all the same."""


_M_ARENA_MAX = -8
"""Of ``mallopt(3)``."""
_ARENAS = 2


def share_arenas() -> None:
    """From now on threads take memory from two arenas together; to be called before there are any. Does nothing where the C library is
    another one. NOTE: they hardly ever meet there, since most of them hold the interpreter's lock while they take some."""
    options = getattr(ctypes.CDLL(None), "mallopt", None)
    if options is not None:
        options(_M_ARENA_MAX, _ARENAS)


def trim_memory() -> None:
    """Does nothing where the C library is another one."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(ctypes.c_size_t(0))


class Trimming:
    """Asks for ``trim`` a moment after something large came or went."""

    def __init__(self, trim: Callable[[], None] = trim_memory, quiet: float = _QUIET_SECONDS) -> None:
        self._trim = trim
        self._quiet = quiet
        self._asked = threading.Event()
        self._lock = threading.Lock()
        self._passed = 0
        self._thread: threading.Thread | None = None

    def soon(self, size: int) -> None:
        """Something of ``size`` bytes came or went."""
        if size < LARGE_BYTES or self._asked.is_set():
            return
        self._asked.set()
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, name="trimming", daemon=True)
                self._thread.start()

    def passed(self, size: int) -> None:
        """Something of ``size`` bytes has gone that is one of many: what they were together counts."""
        with self._lock:
            self._passed += size
            is_much = self._passed >= _MUCH_BYTES
            if is_much:
                self._passed = 0
        if is_much:
            self.soon(_MUCH_BYTES)

    def _serve(self) -> None:
        while True:
            self._asked.wait()
            began = time.monotonic()
            while self._asked.is_set() and time.monotonic() - began < _LONGEST_SECONDS:
                self._asked.clear()
                self._asked.wait(self._quiet)
            self._asked.clear()
            self._trim()
