"""When a worker counts as one that takes no work any more."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError

from compiler_service.worker.consuming import MOST_SILENT_SECONDS, Consuming
from compiler_service.worker.transport import Polls


@dataclass
class Redis:
    is_there: bool = True

    def ping(self) -> bool:
        if not self.is_there:
            raise RedisConnectionError
        return True


@dataclass
class Store:
    redis: Redis = field(default_factory=Redis)


@dataclass
class Worker:
    running: int = 0


@dataclass
class Setting:
    consuming: Consuming
    store: Store
    worker: Worker
    start: float

    def is_silent(self, after: float) -> bool:
        return self.consuming.is_silent(self.start + after)


@pytest.fixture(name="setting")
def fixture_setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Setting:
    store, worker = Store(), Worker()
    made = Consuming(store, worker, 2, tmp_path / "alive")  # type: ignore[arg-type]
    monkeypatch.setattr(Polls, "last", made._since)
    return Setting(made, store, worker, made._since)


LATE = MOST_SILENT_SECONDS + 1


def test_one_with_room_that_does_not_ask_is_silent(setting: Setting) -> None:
    assert not setting.is_silent(MOST_SILENT_SECONDS - 1)
    assert setting.is_silent(LATE)


def test_one_that_asks_is_not(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Polls, "last", setting.start + LATE - 2)
    assert not setting.is_silent(LATE)


def test_one_with_its_hands_full_has_no_reason_to_ask(setting: Setting) -> None:
    setting.worker.running = 2
    assert not setting.is_silent(LATE)
    setting.worker.running = 1
    assert not setting.is_silent(LATE + MOST_SILENT_SECONDS - 1)
    assert setting.is_silent(2 * LATE + 1)


def test_one_whose_redis_is_away_does_not_start_anew(setting: Setting) -> None:
    setting.store.redis.is_there = False
    assert not setting.is_silent(LATE)
    setting.store.redis.is_there = True
    assert setting.is_silent(2 * LATE)


def test_it_starts_anew_once_and_leaves_the_file_as_it_is(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(setting.consuming, "is_silent", lambda now: True)
    called: list[str] = []
    setting.consuming.watch(threading.Event(), lambda: called.append("anew"))
    assert called == ["anew"]
    assert not (setting.consuming._path).exists()
