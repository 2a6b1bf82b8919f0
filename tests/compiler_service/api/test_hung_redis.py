"""A Redis that hangs is told of as one that is away: to scrapers at once, to clients before their own time is up."""

from __future__ import annotations

import os
import signal
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from redis import Redis
from redis.exceptions import ConnectionError

from compiler_service import metrics, wiring
from compiler_service.jobs.persistence.counters import Counters
from compiler_service.jobs.persistence.store import JobStore
from compiler_service.metrics import JobMetrics
from ingot.client import Client
from shared_ir.errors import Blame, ErrorCode, IngotError
from tests.services.installation import Installation, wait_until
from tests.services.redis_server import OwnRedis

pytestmark = pytest.mark.services


@contextmanager
def hung(running: Installation) -> Iterator[None]:
    told: Any = Redis.from_url(running.redis_url).info("server")
    pid = int(told["process_id"])
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def scrape(running: Installation) -> str:
    with urllib.request.urlopen(f"http://{running.metrics}/metrics", timeout=9) as response:  # Prometheus waits 10 s
        return str(response.read().decode())


def test_clients_and_scrapers_are_told(running: Installation) -> None:
    assert "ingot_compiler_queue_up 1.0" in scrape(running)
    with Client(running.address) as client:
        client.jobs()
        with hung(running):
            wait_until(lambda: 'ingot_compiler_up{what="redis"} 0.0' in scrape(running), 30)
            wait_until(lambda: "ingot_compiler_queue_up 0.0" in scrape(running), 30)
            for ask in (client.jobs, lambda: client.job("1"), lambda: client.cancel("1")):
                with pytest.raises(IngotError, match="the job queue cannot be reached") as caught:
                    ask()
                assert (caught.value.code, caught.value.blame) == (ErrorCode.UNAVAILABLE, Blame.SERVICE)
                assert caught.value.remedy
        wait_until(lambda: "ingot_compiler_queue_up 1.0" in scrape(running), 30)
        client.jobs()


class Slow:
    """Counters of a Redis that answers when it may."""

    def __init__(self, counters: Counters) -> None:
        self._counters = counters
        self.may = threading.Event()
        self.may.set()

    def __getattr__(self, name: str) -> Any:
        self.may.wait()
        return getattr(self._counters, name)


def test_one_question_is_under_way_and_what_is_known_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "WAIT_SECONDS", 0.05)
    redis = OwnRedis(tmp_path)
    connection = Redis.from_url(redis.url, decode_responses=True)
    slow: Any = Slow(Counters(connection))
    found = JobMetrics(JobStore(connection), slow)

    def told() -> dict[str, float]:
        return {s.name: s.value for family in found.collect() for s in family.samples if not s.labels}

    try:
        wait_until(lambda: told()["ingot_compiler_queue_up"] == 1.0, 10)
        slow.may.clear()
        before = threading.active_count()
        assert [told()["ingot_compiler_workers"] for _ in range(5)] == [0.0] * 5, "what is known"
        assert threading.active_count() <= before + 1
        monkeypatch.setattr(metrics, "FRESH_SECONDS", 0.0)
        assert told() == {"ingot_compiler_queue_up": 0.0}, "and not for good"
        slow.may.set()
        monkeypatch.undo()
        wait_until(lambda: told()["ingot_compiler_queue_up"] == 1.0, 10)
    finally:
        redis.kill()


def test_a_redis_that_hung_or_went_is_found_again_by_the_same_connections(tmp_path: Path) -> None:
    redis = OwnRedis(tmp_path)
    connection = wiring._redis(redis.url, answers=True)
    try:
        connection.set("a", "b")
        redis.kill()
        with pytest.raises(ConnectionError):
            connection.get("a")
        redis.start()
        assert connection.get("a") is None
    finally:
        redis.kill()
