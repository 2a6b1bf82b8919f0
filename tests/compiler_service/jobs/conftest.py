"""A Redis for the tests of a module, empty at the start of each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from redis import Redis

from compiler_service.jobs.persistence.store import JobStore
from tests.compiler_service.jobs.mortal import Installation
from tests.services.redis_server import redis_server


@pytest.fixture(name="redis_url", scope="module")
def fixture_redis_url() -> Iterator[str]:
    with redis_server() as url:
        yield url


@pytest.fixture(name="redis")
def fixture_redis(redis_url: str) -> Redis:
    client = Redis.from_url(redis_url, decode_responses=True)
    client.flushall()
    return client


@pytest.fixture(name="store")
def fixture_store(redis: Redis) -> JobStore:
    """It keeps finished jobs for 100 seconds."""
    return JobStore(redis, keep_seconds=100)


@pytest.fixture(name="installation")
def fixture_installation(tmp_path: Path, redis_url: str) -> Installation:
    Redis.from_url(redis_url).flushall()
    return Installation(tmp_path, redis_url)
