"""Health says what is: with Redis or the store away, hung, and back."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from grpc_health.v1 import health_pb2
from prometheus_client import CollectorRegistry
from redis import Redis

from compiler_service.api.permissions import SERVICE
from compiler_service.probes import LIVENESS, Probed, Probes
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.service_kit.health import Health
from shared_ir.storage.local import FileStore
from shared_ir.storage.protocol import ObjectStore
from tests.services.installation import wait_until
from tests.services.redis_server import redis_server

pytestmark = pytest.mark.services


class Store:
    """A store that answers, fails, or hangs."""

    def __init__(self, directory: Path) -> None:
        self.fault: IngotError | None = None
        self.hangs = threading.Event()
        self._store = FileStore(directory)

    def size(self, key: str) -> int | None:
        while self.hangs.is_set():
            time.sleep(0.05)
        if self.fault is not None:
            raise self.fault
        return self._store.size(key)


@pytest.fixture(name="stopping")
def fixture_stopping() -> Iterator[threading.Event]:
    stopping = threading.Event()
    yield stopping
    stopping.set()


def test_health_follows_what_it_needs(tmp_path: Path, stopping: threading.Event) -> None:
    health, registry, store = Health(), CollectorRegistry(), Store(tmp_path)

    def serves(name: str) -> bool:
        context: Any = None
        answer = health.Check(health_pb2.HealthCheckRequest(service=name), context)
        return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)

    def up(name: str) -> float | None:
        return registry.get_sample_value("ingot_compiler_up", {"what": name})

    with redis_server() as url:
        patience = {"redis": 1.5, "store": 1.5}
        Probes(url, cast(ObjectStore, store), health, registry, patience).start(stopping)
        assert [serves(name) for name in ("", SERVICE, "redis", "store", LIVENESS)] == [True] * 5
        store.fault = IngotError(ErrorCode.UNAVAILABLE, "the store is away")
        wait_until(lambda: not serves("store"), 10)
        assert [serves(name) for name in ("", SERVICE, "redis", LIVENESS)] == [False, False, True, True]
        assert (up("store"), up("redis")) == (0, 1)
        store.fault = None
        wait_until(lambda: serves(""), 10)
        store.hangs.set()
        wait_until(lambda: not serves(""), 10)
        store.hangs.clear()
        wait_until(lambda: serves(""), 10)
        Redis.from_url(url).config_set("maxmemory", 1)  # it answers, and writes nothing
        wait_until(lambda: not serves("redis"), 10)
        Redis.from_url(url).config_set("maxmemory", 0)
        wait_until(lambda: serves(""), 10)
    wait_until(lambda: not serves("redis"), 10)
    assert [serves(name) for name in ("", SERVICE, "store", LIVENESS)] == [False, False, True, True]
    assert up("redis") == 0


def test_what_is_away_from_the_start_is_said_at_once(tmp_path: Path, stopping: threading.Event) -> None:
    health = Health()
    Probes("unix:///nothing/here.sock", FileStore(tmp_path), health, CollectorRegistry()).start(stopping)
    context: Any = None
    states = [health.Check(health_pb2.HealthCheckRequest(service=n), context).status for n in ("", "store", LIVENESS)]
    serving, not_serving = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING
    assert states == [not_serving, serving, serving]


def test_what_refuses_is_away_however_long_one_that_hangs_is_waited_for(
    tmp_path: Path, stopping: threading.Event
) -> None:
    health, store, endless = Health(), Store(tmp_path), {"redis": 1e9, "store": 1e9}
    context: Any = None

    def serves(name: str) -> bool:
        answer = health.Check(health_pb2.HealthCheckRequest(service=name), context)
        return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)

    with redis_server() as url:
        Probes(url, cast(ObjectStore, store), health, CollectorRegistry(), endless).start(stopping)
        assert [serves(name) for name in ("", "redis", "store")] == [True] * 3
        store.fault = IngotError(ErrorCode.UNAVAILABLE, "the store is away")
        wait_until(lambda: not serves("store"), 10)
        assert [serves(name) for name in ("", "redis")] == [False, True]
    wait_until(lambda: not serves("redis"), 10)


def test_one_refusal_between_answers_takes_nothing_away(tmp_path: Path) -> None:
    store = Store(tmp_path)
    probed, refusal = Probed(lambda: store.size("key")), IngotError(ErrorCode.UNAVAILABLE, "the store is away")
    seen = []
    for fault in (None, refusal, None, refusal, refusal, None):
        store.fault = fault
        probed.question()
        seen.append(probed.is_there(1e9))
    assert seen == [True, True, True, True, False, True]
