"""Many watchers: none holds a thread, none is told too little or twice, none keeps the others waiting."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
import redis

from compiler_service.jobs import watching
from compiler_service.jobs.records import Event, JobRecord, JobState, UploadedModel
from compiler_service.jobs.store import JobStore
from compiler_service.jobs.watching import Watching
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.pb.ingot.compiler.v1 import compiler_pb2 as pb
from shared_ir.pb.ingot.compiler.v1 import compiler_pb2_grpc
from tests.services.installation import installation, wait_until
from tests.services.redis_server import redis_server

pytestmark = pytest.mark.services
JOBS, WATCHERS_OF_JOB, EVENTS = 50, 20, 4


class Heard:
    """A listener that keeps what it was told."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.texts: list[str] = []
        self.states: list[JobState] = []
        self.error: IngotError | None = None
        self.has_ended = self.is_cancelled = False
        self._seconds = seconds

    def tell(self, event: Event, record: JobRecord) -> bool:
        until = time.monotonic() + self._seconds
        while time.monotonic() < until and not self.is_cancelled:
            time.sleep(0.01)
        if event.kind == "log":
            self.texts.append(event.data["text"])
        else:
            self.states.append(record.state)
        return not self.is_cancelled

    def end(self, error: IngotError | None) -> None:
        self.error, self.has_ended = error, True

    def cancel(self) -> None:
        self.is_cancelled = True


@pytest.fixture(name="store")
def fixture_store() -> Iterator[JobStore]:
    with redis_server() as url:
        yield JobStore(redis.Redis.from_url(url, decode_responses=True))


def create(store: JobStore, job: str = "j") -> None:
    store.create(JobRecord(job, "m", UploadedModel("ab" * 32), {}, (), time.time()))


def log(store: JobStore, text: str, job: str = "j") -> None:
    store.add_event(job, Event("log", "", {"level": "INFO", "text": text}))


def test_those_who_come_at_different_times_hear_the_same(store: JobStore) -> None:
    create(store)
    hub, heard = Watching(store, store.get, 100), []
    for number in range(30):
        log(store, str(number))
        if number % 3 == 0:
            after = store.events("j")[-2].sequence if number % 2 else ""
            heard.append((number if after else 0, Heard()))
            hub.add("j", after, heard[-1][1])
    store.update("j", state=JobState.SUCCEEDED)
    wait_until(lambda: all(one.has_ended for _, one in heard), 20)
    for first, one in heard:
        assert one.texts == [str(number) for number in range(first, 30)]
        assert one.states[-1] is JobState.SUCCEEDED
        assert one.error is None
    assert len(hub) == 0


def test_more_has_happened_than_is_kept_for_one(store: JobStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "_MOST_AHEAD", 7)
    create(store)
    for number in range(40):
        log(store, str(number))
    hub, slow, quick = Watching(store, store.get, 100), Heard(0.01), Heard()
    hub.add("j", "", slow)
    hub.add("j", "", quick)
    store.update("j", state=JobState.FAILED)
    wait_until(lambda: slow.has_ended and quick.has_ended, 30)
    assert slow.texts == quick.texts == [str(number) for number in range(40)]


def test_one_who_takes_nothing_goes_where_others_wait(store: JobStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "_TELLERS", 1)  # with two, one of the stuck may stay: the others wait no more
    monkeypatch.setattr(watching, "_STALLED_SECONDS", 2.0)
    create(store)
    hub = Watching(store, store.get, 100)
    stuck, quick = [Heard(60.0) for _ in range(2)], [Heard() for _ in range(5)]
    for one in (*stuck, *quick):
        hub.add("j", "", one)
    log(store, "a")
    wait_until(lambda: all(one.texts == ["a"] for one in quick), 30)
    assert all(one.is_cancelled for one in stuck)
    assert len(hub) == 5
    hub.stop()
    wait_until(lambda: all(one.has_ended for one in quick), 10)


def test_who_watches_what_is_not_there_is_told(store: JobStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "_LOOK_SECONDS", 0.2)
    hub, heard = Watching(store, store.get, 2), Heard()
    with pytest.raises(IngotError) as caught:
        hub.add("nope", "", heard)
    assert (caught.value.code, len(hub)) == (ErrorCode.NOT_FOUND, 0)
    create(store)
    with pytest.raises(IngotError, match="not a sequence"):
        hub.add("j", "x", heard)
    hub.add("j", "", heard)
    store.redis.flushall()
    wait_until(lambda: heard.has_ended, 10)
    assert heard.error is not None
    assert heard.error.code is ErrorCode.NOT_FOUND


def test_redis_may_be_away_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "_AWAY_SECONDS", 0.5)
    with redis_server() as url:
        store = JobStore(redis.Redis.from_url(url, decode_responses=True))
        create(store)
        hub, heard = Watching(store, store.get, 2), Heard()
        hub.add("j", "", heard)
        wait_until(lambda: len(heard.states) == 2, 10)
        assert not heard.has_ended
    wait_until(lambda: heard.has_ended, 10)
    assert heard.error is not None
    assert heard.error.code is ErrorCode.UNAVAILABLE


async def watch(stub: Any, job: str) -> int:
    return len([event async for event in stub.WatchJob(pb.WatchJobRequest(id=job), timeout=120)])


@pytest.mark.long
def test_a_thousand_watchers_leave_room_for_questions(tmp_path: Path) -> None:
    """All of them are told, the server needs no thread for each, and GetJob answers as if they were not there."""
    with installation(tmp_path / "home") as running:
        server, client = running.start_server(), running.client()
        jobs = [client.compile({"name": f"j{number}"}).id for number in range(JOBS)]
        store = JobStore(redis.Redis.from_url(running.redis_url, decode_responses=True))

        async def ask(stub: Any, times: list[float]) -> None:
            while True:
                started = time.monotonic()
                await stub.GetJob(pb.GetJobRequest(id=jobs[0]), timeout=10)
                times.append(time.monotonic() - started)
                await asyncio.sleep(0.02)

        async def everything() -> tuple[list[int], list[float], int]:
            options = [("grpc.use_local_subchannel_pool", 1)]
            async with (
                grpc.aio.insecure_channel(running.address, options) as channel,
                grpc.aio.insecure_channel(running.address, options) as other,
            ):
                stub: Any = compiler_pb2_grpc.CompilerServiceStub(channel)
                watches = [asyncio.create_task(watch(stub, job)) for job in jobs for _ in range(WATCHERS_OF_JOB)]
                await asyncio.sleep(2.0)
                times: list[float] = []
                asking = asyncio.create_task(ask(compiler_pb2_grpc.CompilerServiceStub(other), times))
                for number in range(EVENTS):
                    for job in jobs:
                        log(store, str(number), job)
                    await asyncio.sleep(1.0)
                threads = int(Path(f"/proc/{server.pid}/status").read_text().split("Threads:")[1].split()[0])
                asking.cancel()
                stopper: Any = compiler_pb2_grpc.CompilerServiceStub(other)
                for job in jobs:
                    await stopper.CancelJob(pb.CancelJobRequest(id=job))
                return await asyncio.gather(*watches), times, threads

        counts, times, threads = asyncio.run(everything())
        assert len(counts) == JOBS * WATCHERS_OF_JOB
        assert min(counts) >= EVENTS + 2
        assert max(counts) == min(counts)
        assert threads < 100
        assert times, "questions were answered meanwhile"
