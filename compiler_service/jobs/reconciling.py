"""The loop around :class:`~compiler_service.jobs.reconciler.Reconciler`, in every process of the service; one of all looks at a time."""

from __future__ import annotations

import logging
import threading
import time

from redis.exceptions import RedisError

from compiler_service.jobs.history.pages import JobPages
from compiler_service.jobs.reconciler import Reconciler
from compiler_service.jobs.service import JobService
from shared_ir.errors import IngotError

_EVERY_SECONDS = 2.0
_GRACE_SECONDS = 3.0
"""For so long a job may be between a message and a lease."""
_RESTORE_SECONDS = 10.0
"""Between two looks at the orders in the store."""
_FORGET_SECONDS = 3600.0
_MOST_OF_TIME = 0.05
"""Of the time of a processor, a look takes no more than this part."""
_LONGEST_PAUSE_SECONDS = 10.0

logger = logging.getLogger(__name__)


def start_reconciling(
    service: JobService, stopping: threading.Event, keep_seconds: float, is_api: bool = False
) -> threading.Thread:
    """Look until ``stopping`` is set. Orders of jobs that finished ``keep_seconds`` ago are forgotten.

    An API takes jobs over into its lists that one of a version before this has created; workers, which are updated first, leave that one
    its own.
    """
    arguments = (service, stopping, keep_seconds, is_api)
    thread = threading.Thread(target=_reconcile, args=arguments, name="reconciler", daemon=True)
    thread.start()
    return thread


def _reconcile(service: JobService, stopping: threading.Event, keep_seconds: float, is_api: bool) -> None:
    reconciler, pause = Reconciler(service, _GRACE_SECONDS), 0.0
    while not stopping.wait(pause):
        worked = time.thread_time()
        try:
            _look(service, reconciler, keep_seconds)
            if is_api and service.store.claim("take over", _RESTORE_SECONDS):
                JobPages(service.store).take_over()
        except (RedisError, IngotError) as error:
            logger.warning("cannot look for jobs that are stuck: %s", error)
        except Exception:
            logger.exception("looking for jobs that are stuck failed")
        pause = _pause_after(time.thread_time() - worked)


def _pause_after(worked: float) -> float:
    """Seconds until the next look, after one that took ``worked`` seconds of a processor.

    NOTE: not of the clock: a look that waited for a Redis or a store that hung would be followed by minutes without one, in every process
    at once, just when there is most to be found.
    """
    return min(_LONGEST_PAUSE_SECONDS, max(_EVERY_SECONDS, worked / _MOST_OF_TIME))


def _look(service: JobService, reconciler: Reconciler, keep_seconds: float) -> None:
    claim = service.store.claim
    if claim("restore", _RESTORE_SECONDS):
        found = reconciler.restore()
        if found.restored:
            logger.warning("%d jobs that Redis had lost were ordered again", found.restored)
    if claim("reconcile", _EVERY_SECONDS * 0.9):
        found = reconciler.look()
        if found.lost or found.forgotten or found.led:
            logger.warning(
                "sent again: %d stages whose worker was lost, %d whose message was; %d targets had lost their leader",
                found.lost,
                found.forgotten,
                found.led,
            )
    if claim("forget", _FORGET_SECONDS):
        service.orders.forget(time.time() - keep_seconds)
        service.logs.forget(time.time() - keep_seconds)
    if claim("lists", _FORGET_SECONDS):
        JobPages(service.store).keep_lists()
