"""A process ends at any call to the outside, and every job comes to its end all the same: once, and right."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from compiler_service.jobs.history.lists import JobFilter
from compiler_service.jobs.history.pages import JobPages
from compiler_service.jobs.persistence.names import job_key, member
from compiler_service.jobs.persistence.quotas import StageQuota
from compiler_service.jobs.persistence.seal import Seal
from compiler_service.jobs.persistence.store import JobStore
from compiler_service.jobs.reconciler import Reconciler
from compiler_service.jobs.records import JobStage, JobState
from compiler_service.stages.process import run
from compiler_service.worker.stage_outcome import StageOutcome
from shared_ir.artifact.signature import TrustStore
from shared_ir.errors import ErrorCode, IngotError
from tests.compiler_service.jobs.mortal import LEASE_SECONDS, TARGETS, Died, ForgetfulLife, Installation, Life, Process

pytestmark = [
    pytest.mark.services,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning"),  # heartbeats of who has died
]

MODEL = {"name": "m"}
_PATIENCE_SECONDS = 15.0


def calls_of_one_job(installation: Installation) -> int:
    """To the outside, from submission to success."""
    process = installation.process()
    process.submit(MODEL, "counted")
    process.work()
    return process.life.calls


def calls_to_conclude_a_job(installation: Installation) -> int:
    """The same of one whose artifacts are there; Redis is empty afterwards."""
    calls_of_one_job(installation)
    installation.forget()
    process = installation.process()
    process.submit(MODEL, "other")
    process.work()
    installation.forget()
    return process.life.calls


def settle(process: Process, jobs: list[str]) -> None:
    """Until all of them have finished."""
    end = time.monotonic() + _PATIENCE_SECONDS
    while not all(process.service.get(job).state.finished for job in jobs):
        assert time.monotonic() < end, [process.service.get(job) for job in jobs]
        process.look()
        process.work()
        time.sleep(LEASE_SECONDS / 10)


def live_until(installation: Installation, life: Life, model: object = MODEL) -> list[str]:
    """Submit and work until the process ends; the jobs that there are."""
    process = installation.process(life)
    try:
        process.submit({"name": "m"} if model is MODEL else {"name": str(model)}, "m")
        process.work()
    except Died:
        pass
    time.sleep(0.01)
    fresh = installation.process()
    return [*{*fresh.service.orders.unfinished(), *(record.id for record in JobPages(fresh.jobs).page(10).items)}]


def check(process: Process, jobs: list[str]) -> None:
    """Each has succeeded, all artifacts are one version, and nothing is left to do."""
    for job in jobs:
        record = process.service.get(job)
        assert record.state is JobState.SUCCEEDED, record.error
        assert {target.state for target in record.targets} == {JobState.SUCCEEDED}
        assert len(process.repository.versions("m")) == 1
        assert len(process.repository.version("m", record.version).targets) == len(TARGETS)
    process.look()
    assert process.jobs.active_count() == 0
    assert not process.service.orders.unfinished()


def one_death(installation: Installation, last: int, after: bool, forgets: bool) -> None:
    jobs = live_until(installation, Life(last, after))
    if forgets:
        installation.forget()
    process = installation.process()
    settle(process, jobs)
    check(process, jobs)


def test_a_job_without_deaths(installation: Installation) -> None:
    one_death(installation, 1_000_000, False, False)


@pytest.mark.parametrize("seed", range(6))
def test_a_process_ends_anywhere(installation: Installation, seed: int) -> None:
    draw = random.Random(seed)
    calls = calls_of_one_job(installation)
    installation.forget()
    last = draw.randint(1, calls)
    one_death(installation, last, draw.random() < 0.5, draw.random() < 0.3)


@pytest.mark.parametrize("before", range(1, 13))
def test_a_process_ends_soon_before_the_end_of_its_job(installation: Installation, before: int) -> None:
    """Whose artifacts are there, so that these calls are those that conclude it."""
    one_death(installation, calls_to_conclude_a_job(installation) - before, False, False)


def one_oblivion(installation: Installation, last: int) -> None:
    """Redis loses everything while a process goes on with what it does."""
    process = installation.process(ForgetfulLife(last, forget=installation.forget))
    job = process.submit(MODEL, "m").id
    with contextlib.suppress(IngotError):  # of what was under way; its message comes again
        process.work()
    fresh = installation.process()
    settle(fresh, [job])
    check(fresh, [job])


@pytest.mark.parametrize("seed", range(6))
def test_redis_forgets_while_a_process_works(installation: Installation, seed: int) -> None:
    calls = calls_of_one_job(installation)
    installation.forget()
    one_oblivion(installation, random.Random(seed).randint(calls // 3, calls))


@pytest.mark.parametrize("before", range(1, 16))
def test_redis_forgets_soon_before_the_end_of_a_job(installation: Installation, before: int) -> None:
    """A sum that is added to nothing would pass for the record of the job, and end its order."""
    one_oblivion(installation, calls_to_conclude_a_job(installation) - before)


def test_what_is_no_record_ends_no_order(installation: Installation) -> None:
    """As when a job has ended, Redis loses everything, another worker adds to a sum of the job, and then its order is closed."""
    process = installation.process()
    job = process.submit(MODEL, "m").id
    installation.forget()
    process.jobs.redis.hset(job_key(job), "seconds.build", "1.5")
    with pytest.raises(IngotError, match="not ordered from this service"):
        process.service.close(job)
    settle(process, [job])
    check(process, [job])


def test_an_order_is_closed_when_its_job_has_finished(installation: Installation) -> None:
    process = installation.process()
    job = process.submit(MODEL, "m").id
    process.service.close(job)
    assert list(process.service.orders.unfinished()) == [job]


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_a_process_ends_at_every_call(tmp_path: Path, redis_url: str) -> None:
    first = Installation(tmp_path / "first", redis_url)
    for last in range(1, calls_of_one_job(first) + 1, 3):
        Redis.from_url(redis_url).flushall()
        one_death(Installation(tmp_path / str(last), redis_url), last, last % 2 == 0, last % 5 == 0)


def test_a_message_is_lost(installation: Installation) -> None:
    process = installation.process()
    job = process.submit(MODEL, "m").id
    installation.line.tasks.clear()
    settle(process, [job])
    check(process, [job])


def test_a_job_that_a_process_did_not_know_the_key_of_is_found_by_one_that_does(installation: Installation) -> None:
    """As while a key is replaced: it reaches the trust folders of all machines one after the other."""
    process = installation.process()
    job = process.submit(MODEL, "m").id
    stranger = JobStore(process.jobs.redis, 3600, Seal(installation.signer, TrustStore.of([])))
    assert stranger.load([job]) == []
    installation.line.tasks.clear()  # as it took the message too
    settle(process, [job])
    check(process, [job])


def test_what_is_cancelled_while_redis_has_forgotten_it_stays_so(installation: Installation) -> None:
    process = installation.process()
    job = process.submit(MODEL, "m").id
    installation.forget()
    assert process.service.cancel(job).state is JobState.CANCELLED
    for _ in range(2):
        process.look()
        process.work()
        assert process.service.get(job).state is JobState.CANCELLED
    installation.forget()
    process.look()
    process.work()
    assert process.service.get(job).state is JobState.CANCELLED


def test_every_message_comes_twice(installation: Installation) -> None:
    process = installation.process()
    job = process.submit(MODEL, "m").id
    while installation.line.tasks:
        installation.line.tasks.extendleft([installation.line.tasks[0]])
        stage, number = installation.line.tasks[0][0], installation.line.tasks[0][2]
        for _ in range(2):
            installation.line.tasks.popleft()
            process.turns.work(stage, job, number)
    settle(process, [job])
    check(process, [job])


def test_a_leader_is_gone(installation: Installation) -> None:
    """The record of the job that others wait for has vanished with its lease and its message."""
    process = installation.process()
    leader = process.submit(MODEL, "m").id
    follower = process.submit(MODEL, "m").id
    assert {target.follows for target in process.jobs.get(follower).targets} == {leader}
    installation.line.tasks.clear()
    process.jobs.redis.delete(f"ingot:job:{leader}")
    process.service.orders.store.delete(f"orders/open/{leader}.json")
    settle(process, [follower])
    check(process, [follower])


def test_a_follower_that_is_gone_is_no_matter_of_the_others(installation: Installation) -> None:
    """Nor of whom it followed: the work of all of them goes on without the reconciler."""
    process = installation.process()
    leader, gone, other = (process.submit(MODEL, "m").id for _ in range(3))
    process.jobs.redis.delete(f"ingot:job:{gone}")
    process.service.orders.store.delete(f"orders/open/{gone}.json")
    process.work()
    assert {process.service.get(job).state for job in (leader, other)} == {JobState.SUCCEEDED}


def test_equal_jobs_give_one_version(installation: Installation) -> None:
    process = installation.process()
    jobs = [process.submit(MODEL, "m").id for _ in range(3)]
    settle(process, jobs)
    check(process, jobs)


def test_a_finished_job_is_known_when_redis_has_forgotten_it(installation: Installation) -> None:
    process = installation.process()
    job = process.submit(MODEL, "m").id
    process.work()
    installation.forget()
    found = process.service.get(job)
    assert (found.state, found.version) == (JobState.SUCCEEDED, 1)


def test_a_version_has_all_targets_of_its_job_or_there_is_none(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What succeeded is not compiled anew."""
    built = []

    def run_or_fail(request: Any, *rest: Any) -> Any:
        if request["stage"] == "build":
            built.append(request["target"])
            if len(built) == 2:
                raise IngotError(ErrorCode.LIMIT_EXCEEDED, "too big")
        return run(request, *rest)

    monkeypatch.setattr("tests.compiler_service.jobs.mortal.run", run_or_fail)
    process = installation.process()
    job = process.submit(MODEL, "m", ("aws/graviton2", "aws/graviton3", "x86-64-v3"), labels=("stable",)).id
    settle(process, [job])
    found = process.service.get(job)
    failed = next(target.target for target in found.targets if target.state is JobState.FAILED)
    assert sorted(target.state for target in found.targets) == ["FAILED", "SUCCEEDED", "SUCCEEDED"]
    assert (found.state, found.version) == (JobState.FAILED, 0)
    assert found.error is not None
    assert found.error.message == f"target {failed!r}: too big"
    assert (process.repository.names(), len(built)) == ((), 3)
    others = tuple(target.target for target in found.targets if target.target != failed)
    again = process.submit(MODEL, "m", others).id
    settle(process, [again])
    assert process.service.get(again).version == 1
    assert len(built) == 3


def test_one_order_sent_twice_is_one_job(installation: Installation) -> None:
    process = installation.process()
    first = process.submit(MODEL, "m", key="k1")
    assert process.submit(MODEL, "m", key="k1").id == first.id
    assert process.submit(MODEL, "m", key="k2").id != first.id
    with pytest.raises(IngotError, match=f"job {first.id}, received another name, source") as caught:
        process.submit({"name": "other"}, "n", key="k1")
    assert caught.value.code is ErrorCode.INVALID_ARGUMENT
    installation.forget()
    assert process.submit(MODEL, "m", key="k1").id == first.id  # the store knows it
    settle(process, [first.id])


@pytest.mark.parametrize("is_known", [False, True])
@pytest.mark.parametrize("other", [{"priority": 4}, {"timeout": 30.5}, {"timeout": 0.0}])
def test_an_order_with_more_time_or_another_priority_is_another(
    installation: Installation, other: dict[str, Any], is_known: bool
) -> None:
    order: dict[str, Any] = {"priority": 3, "timeout": 30.1}
    process = installation.process()
    if is_known:
        process.submit(MODEL, "m")
        process.work()
    job = process.submit(MODEL, "m", key="k", **order).id
    assert process.submit(MODEL, "m", key="k", **order).id == job
    name = "timeout_seconds" if "timeout" in other else "priority"
    with pytest.raises(IngotError, match=f"job {job}, received another {name}\\.") as caught:
        process.submit(MODEL, "m", key="k", **order | other)
    assert caught.value.field == "idempotency_key"
    if not is_known:
        installation.forget()
        assert process.submit(MODEL, "m", key="k", **order).id == job  # the store has both


def test_a_known_model_ordered_twice_is_one_job(installation: Installation) -> None:
    process = installation.process()
    process.submit(MODEL, "m")
    process.work()
    jobs = {process.submit(MODEL, "m", key="k").id for _ in range(2)}
    assert len(jobs) == 1


@pytest.mark.parametrize("label", ["latest", "all"])
def test_no_job_moves_a_label_that_nobody_may_set(installation: Installation, label: str) -> None:
    with pytest.raises(IngotError, match="no label may be called"):
        installation.process().submit(MODEL, "m", labels=("stable", label))


@pytest.mark.parametrize("passed", ["", "build"])
def test_a_second_delivery_into_a_full_namespace_leaves_what_runs_as_it_is(
    installation: Installation, passed: str
) -> None:
    process = installation.process()
    job = process.submit(MODEL, "m", namespace="vision", running_stages=1).id
    process.turns.work(*installation.line.tasks.popleft())  # the model is taken in
    assert StageQuota(process.jobs.redis).take("vision", 1, member("other", 0))
    assert process.jobs.lease("other", 0, "its worker", 60)
    assert process.jobs.lease(job, 0, "another worker", 60)
    process.jobs.change(
        job, 0, leased=True, state=JobState.RUNNING, stage="verify" if passed else "build", passed=passed
    )
    before = process.jobs.get(job)
    assert process.worker.run(JobStage.BUILD, job, 0) is StageOutcome.STOP
    assert process.jobs.get(job) == before
    assert process.worker.run(JobStage.BUILD, job, 1) is StageOutcome.STOP  # which nobody works on: it waits for room
    assert process.jobs.get(job).targets[1].resume_at > time.time()
    assert not process.jobs.leased(job, 1)


def test_what_redis_has_lost_is_listed_in_the_order_in_which_it_came(installation: Installation) -> None:
    process = installation.process()
    jobs = [process.submit({"name": f"m{number}"}, f"m{number}").id for number in range(4)]
    installation.forget()
    process.look()
    assert [record.id for record in JobPages(process.jobs).page(9).items] == jobs[::-1]
    assert [r.id for r in JobPages(process.jobs).page(9, chosen=JobFilter(model="m2")).items] == [jobs[2]]


SPOILED: dict[str, Callable[[Any, str], object]] = {
    "deleted": lambda redis, key: redis.delete(key),
    "a record of another kind": lambda redis, key: redis.delete(key) and redis.set(key, "text"),
    "another order": lambda redis, key: redis.hset(key, "job", redis.hget(key, "job").replace('"m"', '"other"')),
    "no order": lambda redis, key: redis.hdel(key, "job"),
    "another seal": lambda redis, key: redis.hset(key, "seal", "someone else's"),
    "no seal": lambda redis, key: redis.hdel(key, "seal"),
    "no state": lambda redis, key: redis.hdel(key, "state"),
    "a state that is none": lambda redis, key: redis.hset(key, "0.state", "LOST"),
    "a number that is none": lambda redis, key: redis.hset(key, "1.done", "many"),
    "an error that is none": lambda redis, key: redis.hset(key, "0.error", "[]"),
}


@pytest.mark.parametrize("what", SPOILED)
@pytest.mark.parametrize("stages", [0, 2])
def test_a_record_that_somebody_spoiled_is_ordered_again_and_listed_once(
    installation: Installation, what: str, stages: int
) -> None:
    process = installation.process()
    job = process.submit(MODEL, "m").id
    for _ in range(stages):
        process.turns.work(*installation.line.tasks.popleft())
    SPOILED[what](process.jobs.redis, f"ingot:job:{job}")
    installation.line.tasks.clear()
    process.look()
    assert [record.id for record in JobPages(process.jobs).page(9).items] == [job]
    settle(process, [job])
    check(process, [job])
    pages = JobPages(process.jobs)
    assert [record.id for record in pages.page(9).items] == [job]
    assert [record.id for record in pages.page(9, chosen=JobFilter(state=JobState.SUCCEEDED)).items] == [job]


def test_what_nobody_ordered_is_told_of_once(installation: Installation, caplog: pytest.LogCaptureFixture) -> None:
    """Its order in the store was spoiled as well."""
    process = installation.process()
    job = process.submit(MODEL, "m").id
    process.jobs.redis.hset(f"ingot:job:{job}", "seal", "someone else's")
    order = f"orders/open/{job}.json"
    installation.store.put(order, installation.store.get(order).replace(b'"seal":"', b'"seal":"x'))
    reconciler = Reconciler(process.service, 0.0)
    for _ in range(3):
        reconciler.restore()
        reconciler.look()
    assert sum(f"order of job {job} is not taken" in record.getMessage() for record in caplog.records) == 1
    with pytest.raises(IngotError) as caught:
        process.service.get(job)
    assert caught.value.code is ErrorCode.ARTIFACT_UNTRUSTED
