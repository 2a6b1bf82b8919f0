"""Job records, events, leases and flights against a real Redis."""

from __future__ import annotations

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from redis import Redis

from compiler_service.compiler.codegen.toolchain.host import host_target
from compiler_service.jobs.history.lists import JobFilter
from compiler_service.jobs.history.pages import JobPages
from compiler_service.jobs.persistence.codec import decode, encode
from compiler_service.jobs.persistence.counters import BUCKETS, Counters
from compiler_service.jobs.persistence.store import JobStore
from compiler_service.jobs.records import Event, JobRecord, JobState, TargetRecord, UploadedModel
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.machine.target import resolve_target, target_to_dict

ERROR = IngotError(ErrorCode.LIMIT_EXCEEDED, "too big", expected="small")


def record(job: str = "j1", **fields: Any) -> JobRecord:
    targets = (TargetRecord("host", {"cpu": "x"}, "k1"), TargetRecord("arm", {"cpu": "y"}, "k2"))
    source = UploadedModel("ab" * 32, {"w.bin": "cd" * 32})
    given: dict[str, Any] = {
        "id": job,
        "name": "m",
        "source": source,
        "options": {"opt_level": 3},
        "targets": targets,
        "created": 5.5,
    }
    return JobRecord(**given | {"labels": ("stable",)} | fields)


def test_a_record_comes_back(store: JobStore) -> None:
    store.create(record())
    assert store.get("j1") == record()
    store.update("j1", state=JobState.RUNNING, started=6.25, leased=True, stage="ingest")
    store.update_target("j1", 1, state=JobState.FAILED, error=ERROR, done=3, total=7, artifact_key="k", cache_hit=True)
    store.add_seconds("j1", "build", 1.5)
    store.add_seconds("j1", "build", 1.0)
    found = store.get("j1")
    assert (found.state, found.started, found.leased, found.stage) == (JobState.RUNNING, 6.25, True, "ingest")
    target = found.targets[1]
    assert (target.state, target.done, target.total, target.cache_hit) == (JobState.FAILED, 3, 7, True)
    assert target.error is not None
    assert target.error.to_dict() == ERROR.to_dict()
    assert found.targets[0] == record().targets[0]
    assert found.stage_seconds == {"build": 2.5}


def test_a_finished_job_stays_as_it_is(store: JobStore) -> None:
    store.create(record())
    assert store.update("j1", state=JobState.CANCELLED)
    assert not store.update("j1", state=JobState.SUCCEEDED, version=1)
    assert store.get("j1").state is JobState.CANCELLED
    assert store.update_target("j1", 0, state=JobState.FAILED)
    assert not store.update_target("j1", 0, state=JobState.SUCCEEDED)


def test_unknown_jobs(store: JobStore) -> None:
    with pytest.raises(IngotError) as caught:
        store.get("nope")
    assert caught.value.code is ErrorCode.NOT_FOUND
    assert not store.update("nope", stage="x")
    assert not store.update_target("nope", 0, stage="x")


def test_lists_and_what_is_active(store: JobStore, redis: Redis) -> None:
    for number in range(5):
        store.create(record(f"j{number}", created=float(number), name="even" if number % 2 == 0 else "odd"))
    store.update("j3", state=JobState.FAILED)
    assert [r.id for r in JobPages(store).page(3).items] == ["j4", "j3", "j2"]
    assert [r.id for r in JobPages(store).page(9, chosen=JobFilter(model="odd")).items] == ["j3", "j1"]
    assert [r.id for r in JobPages(store).page(9, chosen=JobFilter(state=JobState.FAILED)).items] == ["j3"]
    assert [r.id for r in store.active()] == ["j0", "j1", "j2", "j4"]
    assert store.active_count() == 4
    assert 0 < redis.ttl("ingot:job:j3") <= 100
    assert redis.ttl("ingot:job:j2") == -1
    redis.delete("ingot:job:j4")
    assert [r.id for r in JobPages(store).page(2).items] == ["j3", "j2"]
    assert [r.id for r in store.active()] == ["j0", "j1", "j2"]
    assert store.active_count() == 3


def test_events_have_history_and_a_live_tail(store: JobStore) -> None:
    store.create(record())
    store.add_event("j1", Event("log", "host", {"level": "INFO", "text": "hello"}))
    first = store.events("j1")
    assert [event.kind for event in first] == ["state", "log"]
    assert first[1].data == {"level": "INFO", "text": "hello"}
    assert abs(first[1].time - time.time()) < 5
    assert store.events("j1", first[-1].sequence) == []
    timer = threading.Timer(0.2, lambda: store.add_event("j1", Event("progress", data={"done": 1})))
    timer.start()
    live = store.events("j1", first[-1].sequence, block_seconds=5)
    assert [event.kind for event in live] == ["progress"]
    for rubbish in ("rubbish", "٣-0", "9" * 5000, "1-", "-"):
        with pytest.raises(IngotError, match="not a sequence"):
            store.events("j1", rubbish)


def test_a_lease_has_one_holder(store: JobStore) -> None:
    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(lambda n: store.lease("j", 0, f"t{n}", 5), range(8)))
    assert won.count(True) == 1
    holder = f"t{won.index(True)}"
    assert store.lease("j", 0, holder, 0.1)
    store.release("j", 0, "someone else")
    assert store.leased("j", 0)
    time.sleep(0.15)
    assert not store.leased("j", 0)
    assert store.lease("j", 0, "next", 5)
    store.release("j", 0, "next")
    assert not store.leased("j", 0)


def test_one_compilation_per_key(store: JobStore) -> None:
    for job in [*(f"j{n}" for n in range(8)), "new"]:
        store.create(record(job))
    with ThreadPoolExecutor(8) as pool:
        leaders = list(pool.map(lambda n: store.flights.join("k", f"j{n}", 0)[0], range(8)))
    assert len(set(leaders)) == 1
    leader = leaders[0]
    assert store.flights.join("k", leader, 0)[0] == leader
    others = sorted({f"j{n}" for n in range(8)} - {leader})
    assert store.flights.end("k", others[0], 0) == []
    store.flights.leave("k", others[0], 0)
    assert store.flights.end("k", leader, 0) == [(job, 0) for job in others[1:]]
    assert store.flights.end("k", leader, 0) == []
    assert store.flights.join("k", "new", 2)[0] == "new"


def test_who_has_finished_or_is_gone_leads_nobody(store: JobStore) -> None:
    for job in ("first", "second", "third"):
        store.create(record(job))
    assert store.flights.join("k", "first", 0)[0] == "first"
    assert store.flights.join("k", "second", 1)[0] == "first"
    store.update_target("first", 0, state=JobState.FAILED)  # and dies before it tells who waits
    assert store.flights.join("k", "third", 0)[0] == "third"
    assert store.flights.end("k", "third", 0) == [("second", 1)]
    assert store.flights.join("k", "forgotten", 0)[0] == "forgotten"
    assert store.flights.join("k", "second", 1)[0] == "second"


def test_losses_and_claims(store: JobStore) -> None:
    store.create(record())
    assert [store.count_loss("j1", 0, "build") for _ in range(2)] == [1, 2]
    assert store.count_loss("j1", 1, "build") == 1
    assert store.claim("x", 0.1)
    assert not store.claim("x", 0.1)
    time.sleep(0.12)
    assert store.claim("x", 0.1)


def test_a_sum_is_no_record(store: JobStore) -> None:
    """What is counted of a job that Redis has forgotten leaves nothing that would pass for one."""
    store.add_seconds("gone", "build", 1.5)
    assert store.count_loss("gone", 0, "build") == 0
    assert store.fields("gone") == {}
    assert store.known(["gone"]) == frozenset()


def test_counters(redis: Redis) -> None:
    counters = Counters(redis)
    counters.target_finished(
        "FAILED", TargetRecord("llvm -mtriple=a", {"triple": "a", "cpu": "|b"}, ""), "LIMIT_EXCEEDED"
    )
    counters.target_finished("SUCCEEDED", TargetRecord("host", {}, ""), "")
    counters.target_finished("SUCCEEDED", TargetRecord("host", {}, ""), "")
    counters.cache("hit")
    counters.stage_finished("build", 0.05)
    counters.stage_finished("build", 0.1)
    counters.stage_finished("build", 1e6)
    assert counters.targets() == {("FAILED", "a//b", "LIMIT_EXCEEDED"): 1, ("SUCCEEDED", "host", ""): 2}
    assert counters.cache_results() == {"hit": 1}
    build = counters.stages()["build"]
    assert build.counts == (2, *[0] * (len(BUCKETS) - 1), 1)
    assert build.total == pytest.approx(1e6 + 0.15)


def test_what_clients_write_is_no_end_of_series(redis: Redis) -> None:
    counters = Counters(redis)
    vendors = [f"llvm -mtriple=x86_64-vendor{number}-linux-gnu -mcpu=x86-64-v3" for number in range(20)]
    for text in [f"x86-64-v3 {' ' * cores} -cores={cores}" for cores in range(1, 20)] + vendors:
        target = target_to_dict(resolve_target(text, host_target))
        counters.target_finished("CANCELLED", TargetRecord(text, target, ""), "CANCELLED")
    assert {target for _, target, _ in counters.targets()} == {"x86-64-v3", "x86_64/x86-64-v3"}


def test_orders_of_the_version_before_are_read() -> None:
    """They have neither user, trace nor namespace; what a later version adds is let be."""
    whole = replace(record(), user="ci", trace="00-ab", running_stages=2, source=UploadedModel("ab" * 32, {}, "vision"))
    fields = encode(whole)
    assert decode(fields) == whole
    order = json.loads(fields["job"])
    old = {name: value for name, value in order.items() if name not in ("user", "trace", "namespace", "running_stages")}
    found = decode({**fields, "job": json.dumps(old | {"colour": "red"})})
    assert (found.user, found.trace, found.running_stages, found.source.namespace) == ("", "", 0, "")
    assert found.name == whole.name
