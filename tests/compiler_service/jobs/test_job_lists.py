"""Lists of jobs against a real Redis: what passes a filter, in which order, and what is read for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from redis import Redis

from compiler_service.jobs.history.lists import JobFilter
from compiler_service.jobs.history.pages import JobPages
from compiler_service.jobs.persistence.codec import encode
from compiler_service.jobs.persistence.packing import pack
from compiler_service.jobs.persistence.store import JobStore
from compiler_service.jobs.records import JobRecord, JobState, TargetRecord, UploadedModel
from shared_ir.errors import ErrorCode, IngotError

ARM = {"cpu": "cortex-a72", "triple": "aarch64-linux-gnu"}


def job(number: int, **fields: Any) -> JobRecord:
    """Number 3 was ordered in second 1003."""
    targets = (TargetRecord("raspberry-pi/4b", ARM, "k") if number % 2 else TargetRecord("host", {"cpu": "x"}, "k"),)
    order: dict[str, Any] = {"id": f"j{number}", "name": "m", "source": UploadedModel("ab" * 32), "options": {}}
    return JobRecord(**order | {"targets": targets, "created": 1000.0 + number} | fields)


def ids(store: JobStore, **chosen: Any) -> list[str]:
    return [record.id for record in pages(store, 2, **chosen)]


def pages(store: JobStore, size: int, **chosen: Any) -> Sequence[JobRecord]:
    found: list[JobRecord] = []
    token = ""
    while True:
        page = JobPages(store).page(size, token, JobFilter(**chosen))
        assert len(page.items) <= size
        found += page.items
        token = page.token
        if not token:
            return found


def test_each_filter_finds_what_it_says(store: JobStore) -> None:
    for number in range(8):
        how = {"user": "ann" if number < 4 else "bob", "labels": ("stable",) if number % 3 == 0 else ()}
        store.create(job(number, name=f"vision.m{number % 4}" if number > 1 else "m0", **how))
    store.update("j5", state=JobState.RUNNING)
    store.update("j5", state=JobState.FAILED)
    store.update("j6", state=JobState.RUNNING)
    assert ids(store) == [f"j{n}" for n in reversed(range(8))]
    assert ids(store, state=JobState.FAILED) == ["j5"]
    assert ids(store, state=JobState.RUNNING) == ["j6"]
    assert ids(store, state=JobState.QUEUED) == ["j7", "j4", "j3", "j2", "j1", "j0"]
    assert ids(store, model="vision.m2") == ["j6", "j2"]
    assert ids(store, label="stable") == ["j6", "j3", "j0"]
    assert ids(store, user="ann") == ["j3", "j2", "j1", "j0"]
    for target in ("raspberry-pi/4b", "cortex-a72", "aarch64-linux-gnu"):
        assert ids(store, target=target) == ["j7", "j5", "j3", "j1"]
    assert ids(store, since=1003.0, until=1005.0) == ["j5", "j4", "j3"]
    assert ids(store, prefix="vision.") == ["j7", "j6", "j5", "j4", "j3", "j2"]
    assert ids(store, prefix="visio") == []
    assert ids(store, user="bob", label="stable", target="host", since=1001.0) == ["j6"]
    assert ids(store, user="nobody") == []


def test_a_long_target_is_found(store: JobStore) -> None:
    text = "llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-v1 -cores=4 -memory=8"
    store.create(job(0, targets=(TargetRecord(text, ARM, "k"),)))
    assert ids(store, target=text) == ["j0"]
    assert ids(store, target=text[:-1]) == []


def test_pages_go_on_where_they_were_whatever_comes_meanwhile(store: JobStore) -> None:
    for number in range(1100):  # three chunks
        store.create(job(number))
    first = JobPages(store).page(600)
    store.create(job(9999))
    second = JobPages(store).page(600, first.token)
    assert [r.id for r in (*first.items, *second.items)] == [f"j{n}" for n in reversed(range(1100))]
    assert second.token == ""
    for token, chosen in ((first.token, JobFilter(user="x")), ("rubbish", JobFilter())):
        with pytest.raises(IngotError, match="page token is none of this list") as caught:
            JobPages(store).page(5, token, chosen)
        assert caught.value.code is ErrorCode.INVALID_ARGUMENT


def test_a_filter_reads_what_passes_it_and_little_else(store: JobStore, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(3000):
        store.create(job(number, name="rare" if number == 7 else "m", user=f"u{number % 2}"))
    read: list[str] = []
    load = store.load

    def noting(wanted: Sequence[str]) -> list[JobRecord]:
        read.extend(wanted)
        return load(wanted)

    monkeypatch.setattr(store, "load", noting)
    assert ids(store, model="rare") == ["j7"]
    assert ids(store, model="rare", user="u1") == ["j7"]
    assert ids(store, model="rare", user="u0") == ids(store, state=JobState.FAILED) == []
    assert read == ["j7", "j7"]
    assert ids(store, since=1000.0, until=1003.0) == ["j3", "j2", "j1", "j0"]
    assert len(read) <= 2 + 512  # one chunk


def test_what_the_version_before_created_is_taken_over(store: JobStore, redis: Redis) -> None:
    """It keeps ids in one list, and knows no numbers."""
    finished = job(0, state=JobState.SUCCEEDED, finished=1.0)
    redis.set("ingot:done:j0", pack(encode(finished)))
    redis.hset("ingot:job:j1", items=[part for pair in encode(job(1)).items() for part in pair])
    redis.zadd("ingot:jobs", {"j0": 1000.0, "j1": 1001.0, "gone": 1002.0})
    redis.zadd("ingot:active", {"j1": 1001.0})
    store.create(job(2))
    assert JobPages(store).take_over() == 3
    assert JobPages(store).take_over() == 0
    assert sorted(ids(store)) == ["j0", "j1", "j2"]
    store.update("j1", state=JobState.RUNNING)
    assert ids(store, state=JobState.RUNNING) == ["j1"]
    redis.hset("ingot:job:j1", "state", "FAILED")  # by a worker of the version before
    assert ids(store, state=JobState.FAILED) == []
    assert ids(store, state=JobState.RUNNING) == []  # and whoever looked has put it right
    assert ids(store, state=JobState.FAILED) == ["j1"]


def test_lists_go_with_their_jobs(store: JobStore, redis: Redis) -> None:
    store.create(job(0, state=JobState.SUCCEEDED, finished=1.0))
    store.create(job(1))
    kept = [key for key in redis.scan_iter("ingot:list:*") if key.rpartition(":")[2] not in ("number", "from", "to")]
    assert {redis.ttl(key) > store.keep_seconds for key in kept} == {True}
    redis.delete("ingot:done:j0")
    assert ids(store) == ["j1"]
    assert "j0" not in [id for key in redis.scan_iter("ingot:list:ids:*") for id in redis.hvals(key)]
    redis.delete(*kept)  # as time does, of a job that takes longer
    assert ids(store) == []
    JobPages(store).keep_lists()
    assert ids(store, state=JobState.QUEUED) == ["j1"]
    redis.delete(*redis.scan_iter("ingot:list:ids:*"))
    store.lists.prune(2000.0)
    assert redis.zcard("ingot:list:from") == redis.zcard("ingot:list:to") == 0


def test_a_finished_job_of_the_cache_takes_little(store: JobStore, redis: Redis) -> None:
    def used() -> int:
        return int(redis.info("memory")["used_memory"])

    hit = TargetRecord("x86-64-v3", {"cpu": "x86-64-v3"}, "cd" * 32, JobState.SUCCEEDED, artifact_key="cd" * 32)
    ended: dict[str, Any] = {
        "state": JobState.SUCCEEDED,
        "finished": 5.0,
        "version": 1,
        "targets": (hit,),
        "user": "ci",
    }
    jobs = [replace(job(n, **ended), id=f"{n:016x}", labels=("stable",)) for n in range(2000)]
    store.create(jobs[0])
    before = used()
    for record in jobs[1:]:
        store.create(record)
    assert (used() - before) / (len(jobs) - 1) < 900
