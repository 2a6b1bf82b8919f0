"""Jobs that have a time by which they are to have finished, and how long the others will take."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest

from compiler_service.jobs.records import WHOLE_JOB, JobStage, JobState, Orderer
from shared_ir.errors import Blame, ErrorCode, IngotError
from tests.compiler_service.jobs.mortal import Installation

pytestmark = pytest.mark.services
MODEL = {"name": "m"}


def test_a_job_that_waits_past_its_deadline_has_failed(installation: Installation) -> None:
    process = installation.process()
    late = process.submit(MODEL, "m", timeout=0.05).id
    other = process.submit({"name": "n"}, "n", timeout=60).id
    time.sleep(0.06)
    process.look()
    record = process.service.get(late)
    assert record.state is JobState.FAILED
    assert record.error is not None
    assert (record.error.code, record.error.blame) == (ErrorCode.DEADLINE_EXCEEDED, Blame.USER)
    assert record.error.expected == "at most 0.05 seconds"
    assert {target.state for target in record.targets} == {JobState.FAILED}
    process.work()
    assert process.service.get(other).state is JobState.SUCCEEDED
    again = process.service.get(process.service.retry(late, Orderer("ann")).id)
    assert again.deadline - again.created == pytest.approx(0.05)
    assert again.user == "ann"


def test_who_waits_for_a_job_without_time_takes_its_work_up(installation: Installation) -> None:
    """The deadline of one is not that of another: neither told at once, nor found by the reconciler."""
    process = installation.process()
    leader = process.submit(MODEL, "m", timeout=0.05).id
    follower = process.submit(MODEL, "m").id
    assert {target.follows for target in process.jobs.get(follower).targets} == {leader}
    time.sleep(0.06)
    process.look()
    assert process.service.get(leader).state is JobState.FAILED
    process.work()
    assert process.service.get(follower).state is JobState.SUCCEEDED


def test_what_has_been_built_is_published_although_time_is_up(installation: Installation) -> None:
    process = installation.process()
    record = process.jobs.get(process.submit(MODEL, "m", timeout=30).id)
    late = replace(record, deadline=1.0)
    process.jobs.change(record.id, WHOLE_JOB, stage=JobStage.PUBLISH, leased=True)
    assert not process.service.end_late(late)
    process.jobs.change(record.id, WHOLE_JOB, leased=False)
    assert process.service.end_late(late)
    error = process.jobs.get(record.id).error
    assert error is not None
    assert error.message == "the job had not finished at its deadline; it was in stage 'publish'"


@pytest.mark.parametrize("order", [{"timeout": -1.0}, {"timeout": float("nan")}, {"timeout": 1e9}, {"priority": 10}])
def test_orders_that_make_no_sense_are_refused(installation: Installation, order: dict[str, Any]) -> None:
    with pytest.raises(IngotError) as caught:
        installation.process().submit(MODEL, "m", **order)
    assert caught.value.code is ErrorCode.INVALID_ARGUMENT
    assert caught.value.field in ("timeout_seconds", "priority")


def test_nothing_is_known_before_anything_was_compiled_and_then_something_is(installation: Installation) -> None:
    process = installation.process()
    times = process.service.times
    first = process.jobs.get(process.submit(MODEL, "m", ("host",)).id)
    assert times.left(first) is None
    tuned = replace(first, options={"tune": 100})
    assert times.left(tuned) == pytest.approx(100), "of the first job too it is known how long it is tuned"
    tuning = replace(tuned.targets[0], leased=True, stage=JobStage.TUNE, began=time.time() - 60)
    assert times.left(replace(tuned, passed="ingest", targets=(tuning,))) == pytest.approx(40, abs=0.5)
    assert times.left(replace(tuned, passed="ingest", targets=(replace(tuning, passed="tune"),))) is None
    process.work()
    assert times.left(process.service.get(first.id)) is None  # it has finished
    other = process.jobs.get(process.submit({"name": "n"}, "n", ("host",)).id)
    assert times.left(other) is not None  # by what stages of others took
    for stage, number, seconds in (
        (JobStage.INGEST, WHOLE_JOB, 1.0),
        (JobStage.BUILD, 0, 10.0),
        (JobStage.VERIFY, 0, 4.0),
        (JobStage.PUBLISH, WHOLE_JOB, 0.5),
    ):
        times.note(other, number, stage, seconds)
    assert times.left(other) == pytest.approx(15.5)
    process.jobs.update(other.id, passed="ingest")
    process.jobs.update_target(other.id, 0, leased=True, stage="build", began=time.time() - 6)
    assert times.left(process.jobs.get(other.id)) == pytest.approx(8.5, abs=0.5)
    process.jobs.update_target(other.id, 0, leased=True, stage="build", began=time.time() - 600)
    assert times.left(process.jobs.get(other.id)) == pytest.approx(4.5, abs=0.1)
    untuned = times.left(process.jobs.get(other.id))
    assert untuned is not None
    tuned = replace(process.jobs.get(other.id), options={"tune": 100})
    assert times.left(tuned) == pytest.approx(untuned + 100, abs=0.1), "tuning takes as long as it is told to"
    follower = process.jobs.get(process.submit({"name": "n"}, "n", ("host",)).id)
    assert times.left(follower) is None
