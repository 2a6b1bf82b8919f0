"""Runs whose results nobody wants any more are stopped: deadlines and cancellations reach inside of a run."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from runtime_service.executors.stop import Stop

_POLL_SECONDS = 0.02
"""Between two looks at the runs; a run outlives its deadline by about as much."""
_IDLE_SECONDS = 1.0
"""After which a watch that has nothing to look at waits to be woken."""


class Watch:
    """Looks at the runs of this process, from a thread of its own that starts with the first of them.

    A run that is over before the next look costs an entry in a table.
    """

    def __init__(self) -> None:
        self._runs: dict[Stop, Callable[[], bool]] = {}
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self, unwanted: Callable[[], bool]) -> Stop:
        """A flag for a run that is set when ``unwanted`` is true."""
        stop = Stop()
        with self._lock:
            self._runs[stop] = unwanted
            if self._thread is None:
                self._thread = threading.Thread(target=self._look, name="watch", daemon=True)
                self._thread.start()
        if not self._wake.is_set():
            self._wake.set()
        return stop

    def end(self, stop: Stop) -> None:
        """The run of ``stop`` is over."""
        with self._lock:
            self._runs.pop(stop, None)

    def stop_all(self) -> None:
        """End every run that is under way."""
        with self._lock:
            for stop in self._runs:
                stop.set()

    def _look(self) -> None:
        busy = time.monotonic()
        while True:
            now = time.monotonic()
            if self._look_at_runs():
                busy = now
            elif now - busy > _IDLE_SECONDS:
                self._wake.clear()
                with self._lock:
                    is_idle = not self._runs
                if is_idle:
                    self._wake.wait()
                busy = time.monotonic()
                continue
            time.sleep(_POLL_SECONDS)

    def _look_at_runs(self) -> bool:
        """Whether there are any. NOTE: nothing of them is kept between two looks."""
        with self._lock:
            runs = tuple(self._runs.items())
        for stop, unwanted in runs:
            if not stop.is_set and unwanted():
                stop.set()
        return bool(runs)


WATCH = Watch()
"""Of this process."""
