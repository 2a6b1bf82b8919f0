"""What unfinished jobs need of the object store: nothing of it may be collected."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from redis import Redis
from redis.exceptions import RedisError

from compiler_service.jobs.orders import Orders
from compiler_service.jobs.persistence.seal import Seal
from compiler_service.jobs.persistence.store import JobStore
from compiler_service.jobs.records import JobRecord
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.registry.collection import Pins
from shared_ir.storage.protocol import ObjectStore

_LOG = logging.getLogger(__name__)


def needs_of_jobs(redis_url: str, store: ObjectStore, seal: Seal) -> Pins:
    """Of those that Redis knows, and those that it has forgotten, whose orders are still open.

    Raises:
        IngotError: UNAVAILABLE, Redis or the store cannot be reached: nobody knows then what is in use.
    """
    redis = Redis.from_url(redis_url, decode_responses=True)
    try:
        jobs, orders = JobStore(redis, seal=seal), Orders(store)
        known = {job.id: job for job in jobs.active()}
        forgotten = (_ordered(jobs, orders, id) for id in orders.unfinished() if id not in known)
        return needs([*known.values(), *(job for job in forgotten if job is not None)])
    except RedisError as error:
        message, remedy = "the jobs cannot be asked for, so nothing is collected", "Check INGOT_REDIS_URL; try again."
        raise IngotError(ErrorCode.UNAVAILABLE, message, received=str(error)[:200], remedy=remedy) from error
    finally:
        redis.close()


def _ordered(jobs: JobStore, orders: Orders, id: str) -> JobRecord | None:
    """None for an order that proves nothing, which harms itself alone."""
    fields = orders.find(id)
    try:
        return jobs.read(id, fields) if fields else None
    except IngotError as error:
        if error.code is ErrorCode.UNAVAILABLE:
            raise
        _LOG.warning("order %s is not taken: %s", id, error)
        return None


def needs(jobs: Iterable[JobRecord]) -> Pins:
    keys: set[str] = set()
    sources: set[str] = set()
    for job in jobs:
        keys.update(key for target in job.targets for key in (target.request_key, target.artifact_key) if key)
        sources.update(job.source.keys)
    return Pins(frozenset(keys), frozenset(sources))
