"""Whether this worker takes work: not whether a loop turns, but whether it asks for messages while it has room for one.

A worker may live and never work again, such as one whose connection to the broker came back without its consumer. It then starts
itself anew. The liveness file says the same: it is touched while the worker takes work, or has its hands full, or Redis is away,
which no restart mends.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from redis.exceptions import RedisError

from compiler_service.jobs.persistence.store import JobStore
from compiler_service.worker.stages import StageWorker
from compiler_service.worker.transport import Polls
from shared_ir.service_kit.telemetry.descriptors import DESCRIPTORS

LIVENESS_SECONDS = 2.0
MOST_SILENT_SECONDS = 20.0
"""A worker with room for a stage asks the broker every second. After so long without, it does not any more."""
_STOP_SECONDS = 10.0
"""For running stages to be handed on, before the process starts anew."""

logger = logging.getLogger(__name__)


class Consuming:
    """Watches over a worker.

    Args:
        room: stages that may run at once.
        path: the liveness file.
    """

    def __init__(self, store: JobStore, worker: StageWorker, room: int, path: Path) -> None:
        self._store = store
        self._worker = worker
        self._room = room
        self._path = path
        self._since = time.monotonic()

    def watch(self, stopping: threading.Event, start_anew: Callable[[], None]) -> None:
        """Until ``stopping`` is set; calls ``start_anew`` once, when the worker takes no work any more."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        while not stopping.is_set():
            if self.is_silent(time.monotonic()):
                logger.critical(
                    "no message was asked for in %g s, with room for one: starting anew", MOST_SILENT_SECONDS
                )
                start_anew()
                return
            self._path.touch()
            stopping.wait(LIVENESS_SECONDS)

    def is_silent(self, now: float) -> bool:
        """Whether there was reason to ask for a message for so long, and nobody did."""
        if self._worker.running >= self._room or not self._redis_is_there():
            self._since = now
        return now - max(self._since, Polls.last) > MOST_SILENT_SECONDS

    def _redis_is_there(self) -> bool:
        try:
            return bool(self._store.redis.ping())
        except RedisError:
            return False


def start_process_anew(stopping: threading.Event) -> None:
    """Hand on what runs, then be the same program from its beginning."""
    stopping.set()
    time.sleep(_STOP_SECONDS)
    DESCRIPTORS.give_back()
    os.execv(sys.executable, sys.orig_argv)
