"""What unfinished jobs need of the object store: nothing of it may be collected."""

from __future__ import annotations

from collections.abc import Iterable

from redis import Redis
from redis.exceptions import RedisError

from compiler_service.jobs.records import JobRecord
from compiler_service.jobs.seal import Seal
from compiler_service.jobs.store import JobStore
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.registry.collection import Pins


def needs_of_jobs(redis_url: str, seal: Seal) -> Pins:
    """Raises IngotError UNAVAILABLE, Redis cannot be reached: nobody knows then what is in use."""
    redis = Redis.from_url(redis_url, decode_responses=True)
    try:
        return needs(JobStore(redis, 1, seal).active())
    except RedisError as error:
        message, remedy = "the jobs cannot be asked for, so nothing is collected", "Check INGOT_REDIS_URL; try again."
        raise IngotError(ErrorCode.UNAVAILABLE, message, received=str(error)[:200], remedy=remedy) from error
    finally:
        redis.close()


def needs(jobs: Iterable[JobRecord]) -> Pins:
    keys: set[str] = set()
    sources: set[str] = set()
    for job in jobs:
        keys.update(key for target in job.targets for key in (target.request_key, target.artifact_key) if key)
        sources.update((job.source.model_sha256, *job.source.external_data.values()))
    return Pins(frozenset(keys), frozenset(sources))
