"""Many watchers: none holds a thread, none is told too little or twice, none keeps the others waiting."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
import redis

from compiler_service.jobs import watching
from compiler_service.jobs.persistence.store import JobStore
from compiler_service.jobs.records import Event, JobRecord, JobState, UploadedModel
from compiler_service.jobs.watching import Watching
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.pb.ingot.compiler.v1 import compiler_pb2 as pb
from shared_ir.pb.ingot.compiler.v1 import compiler_pb2_grpc
from tests.services.installation import installation, wait_until
from tests.services.redis_server import redis_server

pytestmark = pytest.mark.services
JOBS, WATCHERS_OF_JOB, EVENTS = 50, 20, 4


class Heard:
    """A listener that keeps what it was told; one that ``is_stuck`` takes nothing of it for now."""

    def __init__(self, seconds: float = 0.0, is_stuck: bool = False) -> None:
        self.texts: list[str] = []
        self.states: list[JobState] = []
        self.error: IngotError | None = None
        self.has_ended = False
        self.outstanding = 0
        self._is_stuck = is_stuck
        self._seconds = seconds
        self._actions: list[Callable[[], None]] = []

    def tell(self, event: Event, record: JobRecord) -> bool:
        time.sleep(self._seconds)
        self.outstanding += 10_000 * self._is_stuck
        if event.kind == "log":
            self.texts.append(event.data["text"])
        else:
            self.states.append(record.state)
        return True

    def when_taken(self, action: Callable[[], None]) -> None:
        if self.outstanding:
            self._actions.append(action)
        else:
            action()

    def take(self) -> None:
        """All that it was told."""
        self.outstanding = 0
        while self._actions:
            self._actions.pop()()

    def end(self, error: IngotError | None) -> None:
        self.error, self.has_ended = error, True


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


def test_those_who_take_nothing_keep_nobody_waiting(store: JobStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "_TELLERS", 1)
    create(store)
    hub = Watching(store, store.get, 100)
    stuck, quick = [Heard(is_stuck=True) for _ in range(50)], [Heard() for _ in range(5)]
    for one in (*stuck, *quick):
        hub.add("j", "", one)
    for number in range(10):
        log(store, str(number))
    texts = [str(number) for number in range(10)]
    wait_until(lambda: all(one.texts == texts for one in quick), 10)
    assert all(len(one.texts) + len(one.states) == 2 for one in stuck)
    assert len(hub) == 55

    def taken() -> bool:
        for one in stuck:
            one.take()
        return all(one.texts == texts for one in stuck)

    wait_until(taken, 20)
    store.update("j", state=JobState.SUCCEEDED)
    wait_until(lambda: taken() and all(one.has_ended for one in (*stuck, *quick)), 20)


def test_one_peer_leaves_others_places_to_watch(store: JobStore) -> None:
    create(store)
    hub, crowd = Watching(store, store.get, 8), [Heard() for _ in range(6)]
    watchers = [hub.add("j", "", one, "crowd") for one in crowd]
    with pytest.raises(IngotError) as caught:
        hub.add("j", "", Heard(), "crowd")
    assert caught.value.code is ErrorCode.RESOURCE_EXHAUSTED
    hub.add("j", "", Heard(), "other")
    for _ in range(2):  # the second time it is gone already
        hub.remove(watchers[0])
    hub.remove(watchers[1])
    hub.add("j", "", Heard(), "crowd")
    assert len(hub) == 6
    hub.stop()
    wait_until(lambda: not len(hub) and not hub._by_peer, 10)


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
