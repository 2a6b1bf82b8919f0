"""Orders that come at once, again, in a full namespace, or beside equal ones of others."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from compiler_service.jobs import reconciling
from compiler_service.jobs.records import JobRecord, JobState
from shared_ir.errors import ErrorCode, IngotError
from tests.compiler_service.jobs.mortal import Installation, Process

MODEL = {"name": "m"}
services = pytest.mark.services


def submit_at_once(installation: Installation, orders: list[dict[str, Any]]) -> list[JobRecord | IngotError]:
    """What comes of ``orders``, each to a process of its own."""
    barrier = threading.Barrier(len(orders))
    processes = [installation.process() for _ in orders]
    processes[0].upload(MODEL)

    def submit(process: Process, order: dict[str, Any]) -> JobRecord | IngotError:
        barrier.wait(10)
        try:
            return process.submit(MODEL, **order)
        except IngotError as error:
            return error

    with ThreadPoolExecutor(len(orders)) as threads:
        return list(threads.map(submit, processes, orders))


@services
@pytest.mark.parametrize("is_known", [False, True])
def test_of_two_requests_with_one_key_at_once_one_alone_is_taken(installation: Installation, is_known: bool) -> None:
    """All artifacts are there, and with ``is_known`` the versions too."""
    process = installation.process()
    for name in ("a", "b") if is_known else ("other",):
        process.submit(MODEL, name)
        process.work()
    for turn in range(8):
        key, names = f"k{turn}", ("a", "b") if is_known else (f"a{turn}", f"b{turn}")
        found = submit_at_once(installation, [{"name": name, "key": key} for name in names])
        (taken,) = (each for each in found if isinstance(each, JobRecord))
        (refused,) = (each for each in found if isinstance(each, IngotError))
        assert (refused.code, refused.field) == (ErrorCode.INVALID_ARGUMENT, "idempotency_key")
        process.work()
        assert process.service.get(taken.id).name == taken.name
        assert process.service.get(taken.id).state is JobState.SUCCEEDED


@services
@pytest.mark.parametrize("is_known", [False, True])
def test_one_request_sent_many_times_at_once_is_one_job(installation: Installation, is_known: bool) -> None:
    process = installation.process()
    if is_known:
        process.submit(MODEL, "a")
        process.work()
    found = submit_at_once(installation, [{"name": "a", "key": "k", "labels": ("stable",)}] * 6)
    assert len({each.id for each in found if isinstance(each, JobRecord)}) == 1
    assert not [each for each in found if isinstance(each, IngotError)]


@services
def test_a_request_that_failed_on_its_way_is_taken_when_it_is_sent_again(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = installation.process()
    process.submit(MODEL, "a")
    process.work()

    def away(*_: object) -> None:
        raise IngotError(ErrorCode.UNAVAILABLE, "the store is away")

    with monkeypatch.context() as patch:
        patch.setattr(process.repository, "set_label", away)
        with pytest.raises(IngotError, match="away"):
            process.submit(MODEL, "a", key="k", labels=("stable",))
    assert process.submit(MODEL, "a", key="k", labels=("stable",)).state is JobState.SUCCEEDED


@services
def test_a_full_namespace_answers_what_it_has_taken_and_what_is_known(installation: Installation) -> None:
    process = installation.process()
    vision: dict[str, Any] = {"namespace": "vision", "unfinished_jobs": 1}
    process.submit(MODEL, "known", **vision)
    process.work()
    job = process.submit({"name": "first"}, "a", key="k", **vision)
    with pytest.raises(IngotError) as caught:
        process.submit({"name": "second"}, "b", **vision)
    assert (caught.value.code, caught.value.field) == (ErrorCode.RESOURCE_EXHAUSTED, "jobs")
    assert process.submit({"name": "first"}, "a", key="k", **vision).id == job.id
    assert process.submit(MODEL, "known", **vision).cache_hit
    process.submit({"name": "second"}, "b", namespace="audio", unfinished_jobs=1)
    process.service.cancel(job.id)
    assert process.submit({"name": "second"}, "b", **vision).state is JobState.QUEUED


@services
def test_jobs_that_redis_has_lost_count_for_their_namespace_again(installation: Installation) -> None:
    process = installation.process()
    vision: dict[str, Any] = {"namespace": "vision", "unfinished_jobs": 1}
    job = process.submit(MODEL, "a", **vision)
    installation.forget()
    process.look()
    with pytest.raises(IngotError, match="as many unfinished jobs as it may"):
        process.submit({"name": "second"}, "b", **vision)
    process.service.cancel(job.id)
    assert process.submit({"name": "second"}, "b", **vision).state is JobState.QUEUED


@services
def test_an_order_that_could_not_be_kept_takes_no_place(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = installation.process()
    vision: dict[str, Any] = {"namespace": "vision", "unfinished_jobs": 1}

    def away(*_: object) -> bool:
        raise IngotError(ErrorCode.UNAVAILABLE, "the store is away")

    with monkeypatch.context() as patch:
        patch.setattr(process.service, "_create", away)
        with pytest.raises(IngotError, match="away"):
            process.submit(MODEL, "a", **vision)
    assert process.submit(MODEL, "a", **vision).state is JobState.QUEUED


@services
def test_who_dies_between_the_end_of_a_job_and_its_count_leaves_the_place_free(installation: Installation) -> None:
    process = installation.process()
    vision: dict[str, Any] = {"namespace": "vision", "unfinished_jobs": 1}
    job = process.submit(MODEL, "a", **vision)
    process.jobs.redis.zrem("ingot:active", job.id)
    assert process.submit({"name": "second"}, "b", **vision).state is JobState.QUEUED


@services
def test_equal_orders_of_two_namespaces_wait_for_nobody_else(installation: Installation) -> None:
    process = installation.process()
    jobs = [process.submit(MODEL, "a", namespace=name).id for name in ("vision", "audio", "")]
    assert all(not target.follows for job in jobs for target in process.jobs.get(job).targets)
    second = process.submit(MODEL, "b", namespace="vision").id
    assert all(target.follows == jobs[0] for target in process.jobs.get(second).targets)
    for job in jobs:
        said = str(process.jobs.log.lines(job))
        assert not any(other in said for other in jobs if other != job)
    process.work()
    assert {process.service.get(job).state for job in (*jobs, second)} == {JobState.SUCCEEDED}


def test_a_look_that_waited_is_followed_by_the_next_one_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """As while Redis or the store hangs: of the clock the look took long, of the processor nothing."""
    looks, stopping = threading.Semaphore(0), threading.Event()

    def look(*_: object) -> None:
        looks.release()
        time.sleep(0.2)

    monkeypatch.setattr(reconciling, "_look", look)
    monkeypatch.setattr(reconciling, "_EVERY_SECONDS", 0.01)
    monkeypatch.setattr(reconciling, "Reconciler", lambda *_: None)
    thread = reconciling.start_reconciling(None, stopping, 1.0)  # type: ignore[arg-type]
    try:
        assert all(looks.acquire(timeout=3) for _ in range(3))
    finally:
        stopping.set()
        thread.join(10)


@pytest.mark.parametrize("worked", [0.0, 0.05, 0.3, 60.0])
def test_a_look_that_is_much_work_is_followed_by_a_pause_that_has_an_end(worked: float) -> None:
    assert 2.0 <= reconciling._pause_after(worked) <= 10.0
