"""Runs whose results nobody wants any more are stopped: deadlines and cancellations reach inside of a run. And whatever else
of a process is to be looked at after some time."""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
import time
from collections.abc import Callable

from runtime_service.executors.stop import Stop

_LOG = logging.getLogger(__name__)
_POLL_SECONDS = 0.02
"""Between two looks at the runs; a run outlives its deadline by about as much."""
_IDLE_SECONDS = 1.0
"""After which a watch that has nothing to look at waits to be woken."""


class Watch:
    """Looks at the runs of this process, from a thread of its own that starts with the first of them, or with the first reminder.

    A run that is over before the next look costs an entry in a table.
    """

    def __init__(self) -> None:
        self._runs: dict[Stop, Callable[[], bool]] = {}
        self._reminders: list[tuple[float, int, Callable[[], object]]] = []
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self, unwanted: Callable[[], bool]) -> Stop:
        """A flag for a run that is set when ``unwanted`` is true."""
        stop = Stop()
        with self._lock:
            self._runs[stop] = unwanted
            self._require_thread()
        if not self._wake.is_set():
            self._wake.set()
        return stop

    def remind(self, seconds: float, action: Callable[[], object]) -> None:
        """Call ``action``, which takes no time, once, after so many seconds or a little more."""
        with self._lock:
            heapq.heappush(self._reminders, (time.monotonic() + seconds, next(self._numbers), action))
            self._require_thread()
        self._wake.set()

    def _require_thread(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._look, name="watch", daemon=True)
            self._thread.start()

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
            self._remind_of_what_is_due(now)
            if self._look_at_runs():
                busy = now
            elif now - busy > _IDLE_SECONDS:
                self._wake.clear()
                with self._lock:
                    is_idle = not self._runs
                    due = self._reminders[0][0] if self._reminders else None
                if is_idle:
                    self._wake.wait(None if due is None else max(0.0, due - now))
                busy = time.monotonic()
                continue
            time.sleep(_POLL_SECONDS)

    def _remind_of_what_is_due(self, now: float) -> None:
        while True:
            with self._lock:
                if not self._reminders or self._reminders[0][0] > now:
                    return
                action = heapq.heappop(self._reminders)[-1]
            try:
                action()
            except Exception:  # it is no matter of others
                _LOG.exception("a reminder failed")

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
