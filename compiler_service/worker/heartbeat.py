"""Keeps a lease while a stage runs, and notices when the stage should stop."""

from __future__ import annotations

import contextvars
import logging
import threading
import time
from types import TracebackType
from typing import Self

from redis.exceptions import RedisError

from compiler_service.jobs.persistence.store import JobStore
from compiler_service.jobs.records import WHOLE_JOB
from shared_ir.errors import IngotError

CHECK_SECONDS = 0.5
"""How soon a cancelled job is noticed."""

logger = logging.getLogger(__name__)


class Heartbeat:
    """Renews a lease until the block is left.

    Attributes:
        lost: the lease has gone to another worker, or could not be renewed in time.
        cancelled: the job or target has finished in the meantime.
    """

    def __init__(self, store: JobStore, job: str, number: int, token: str, seconds: float) -> None:
        self.lost = False
        self.cancelled = False
        self._store = store
        self._job = job
        self._number = number
        self._token = token
        self._seconds = seconds
        self._stop = threading.Event()
        about = contextvars.copy_context()  # its lines are about this job too
        self._thread = threading.Thread(target=about.run, args=(self._beat,), name=f"heartbeat-{job}", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        if not self.lost:
            self._store.release(self._job, self._number, self._token)

    def _beat(self) -> None:
        renewed = time.monotonic()
        while not self._stop.wait(min(CHECK_SECONDS, self._seconds / 4)):
            try:
                if time.monotonic() - renewed > self._seconds / 4:
                    if not self._store.lease(self._job, self._number, self._token, self._seconds):
                        self.lost = True
                        return
                    renewed = time.monotonic()
                self.cancelled = self._is_over()
            except RedisError as error:
                logger.warning("no heartbeat for job %s: %s", self._job, error)
                self.lost = time.monotonic() - renewed > self._seconds
            if self.lost or self.cancelled:
                return

    def _is_over(self) -> bool:
        try:
            record = self._store.get(self._job)
        except IngotError:
            return True
        return record.state.finished or (self._number != WHOLE_JOB and record.targets[self._number].state.finished)
