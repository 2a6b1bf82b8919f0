"""One record that makes no sense harms itself alone: others are listed and watched, and who watches it is told that it ended."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from redis import Redis

from compiler_service.api.converters import event_to_pb, listed_job
from compiler_service.api.pages import Messages
from compiler_service.api.servicer import _JobListener
from compiler_service.jobs.history.pages import JobPages
from compiler_service.jobs.persistence.codec import encode
from compiler_service.jobs.persistence.store import JobStore
from compiler_service.jobs.records import Event, JobRecord, JobState, TargetRecord, UploadedModel
from compiler_service.jobs.watching import Watching
from compiler_service.metrics import JobMetrics
from shared_ir.errors import ErrorCode, IngotError
from tests.services.installation import wait_until
from tests.services.redis_server import redis_server

pytestmark = pytest.mark.services


def record(job: str) -> JobRecord:
    target = TargetRecord("host", {"triple": "t", "cpu": "c", "features": []}, "ab" * 32)
    return JobRecord(job, "m", UploadedModel("ab" * 32), {"opt_level": 3}, (target,), time.time())


FIELDS = sorted(set(encode(record("1"))) - {"job"})
ODD = [
    "",
    "x",
    "-1",
    str(1 << 63),
    "9" * 400,
    "nan",
    "1e400",
    "\x1b[2J",
    "{",
    "null",
    "[]",
    '{"code": 3}',
    '{"code": "\\ud800"}',
]


@pytest.fixture(name="redis", scope="module")
def fixture_redis() -> Iterator[Any]:
    with redis_server() as url:
        yield Redis.from_url(url, decode_responses=True)


@pytest.fixture(name="store")
def fixture_store(redis: Any) -> JobStore:
    redis.flushall()
    store = JobStore(redis)
    for job in ("good", "bad", "other"):
        store.create(record(job))
    return store


class Taken:
    """An outlet whose client takes everything."""

    outstanding = 0

    def __init__(self) -> None:
        self.sent: list[Any] = []
        self.error: IngotError | None = None
        self.has_ended = False

    def send(self, message: Any) -> bool:
        message.SerializeToString()
        self.sent.append(message)
        return True

    def end(self, error: IngotError | None = None) -> None:
        self.error, self.has_ended = error, True

    def cancel(self) -> None:
        self.has_ended = True


@pytest.mark.parametrize("field", FIELDS)
def test_whatever_a_record_says_others_are_listed(field: str, store: JobStore) -> None:
    for value in ODD:
        store.redis.hset("ingot:job:bad", field, value)
        messages = Messages(listed_job)
        page = JobPages(store).page(10, weigh=messages.weigh)
        listed = {message.id for message in messages.of(page)}
        assert {"good", "other"} <= listed, (field, value)
        assert {"good", "other"} <= {own.id for own in store.active()}
        try:
            listed_job(store.get("bad")).SerializeToString()
        except IngotError as error:
            assert error.code in (ErrorCode.ARTIFACT_UNTRUSTED, ErrorCode.INTERNAL)  # noqa: PT017 - some of them can be read


def test_metrics_go_on(store: JobStore) -> None:
    store.redis.hset("ingot:job:bad", "state", "x")
    wanted: Any = JobMetrics(store, None)._jobs()  # type: ignore[arg-type]
    assert next(wanted).samples[0].value == 2


ODD_DATA: tuple[Any, ...] = (
    {"done": 1 << 63},
    {"done": "x"},
    {"more": 1},
    {"stage": 3},
    {"eta_seconds": []},
    [],
    3,
    None,
)
EVENTS: list[dict[str, str]] = [{"kind": "progress", "target": "", "data": json.dumps(data)} for data in ODD_DATA] + [
    {"kind": "log", "target": "", "data": "{"},
    {"kind": "log"},
    {"data": "{}"},
    {"x": "y"},
]


@pytest.mark.parametrize("fields", EVENTS, ids=json.dumps)
def test_whatever_an_event_says_those_behind_it_are_told(fields: dict[str, str], store: JobStore) -> None:
    outlets = {job: Taken() for job in ("good", "bad")}
    hub = Watching(store, store.get, 10)
    store.redis.xadd("ingot:job:bad:events", fields)
    for job, outlet in outlets.items():
        hub.add(job, "", _JobListener(outlet))  # type: ignore[arg-type]
        store.redis.xadd("ingot:job:bad:events", fields)
        store.add_event(job, Event("log", "", {"level": "INFO", "text": "behind it"}))
        store.update(job, state=JobState.SUCCEEDED)
    wait_until(lambda: all(outlet.has_ended for outlet in outlets.values()), 20)
    for outlet in outlets.values():
        assert outlet.error is None
        assert "behind it" in [message.log.text for message in outlet.sent]
    hub.stop()


def broken(message: Any) -> bool:
    raise ValueError(type(message).__name__)


def test_who_cannot_be_told_is_told_that_it_ended(store: JobStore) -> None:
    outlet = Taken()
    outlet.send = broken  # type: ignore[method-assign]
    hub = Watching(store, store.get, 10)
    hub.add("good", "", _JobListener(outlet))  # type: ignore[arg-type]
    wait_until(lambda: outlet.has_ended, 20)
    assert outlet.error is not None
    assert outlet.error.code is ErrorCode.INTERNAL
    assert event_to_pb(Event("unreadable"), None).sequence == ""
    hub.stop()
