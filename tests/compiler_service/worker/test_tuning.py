"""The stage that measures: what it learns stays, however it ends; and it keeps nobody waiting."""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from compiler_service.jobs.records import JobRecord, JobStage, JobState, Submission, UploadedModel
from compiler_service.settings import CompilerSettings
from compiler_service.store.sources import UploadAnnouncement
from compiler_service.wiring import Parts, make_parts
from compiler_service.worker.run import make_stage_worker
from compiler_service.worker.turns import WorkerTurns
from shared_ir.digest import sha256_hex
from shared_ir.errors import ErrorCode
from shared_ir.machine.target import PRESETS
from shared_ir.pb.ingot.compiler.v1 import compiler_pb2 as pb
from tests.compiler_service.worker.test_stage_worker import Line
from tests.services.installation import installation, wait_until
from tests.services.processes import ends, runs
from tests.services.redis_server import redis_server
from tests.services.toy_compiler import STAGE_COMMAND, ToyCompiler
from tests.services.toy_stages import toy_record

pytestmark = [pytest.mark.services, pytest.mark.usefixtures("toy_stages")]
TARGET = PRESETS["x86-64-v3"][0]


@dataclass
class Service:
    """An API and a worker of one installation, whose queue the test works off."""

    parts: Parts
    turns: WorkerTurns
    line: Line

    def submit(self, model: Mapping[str, Any], tune: int = 60, **order: Any) -> JobRecord:
        data = json.dumps(model).encode()
        self.parts.sources.receive(UploadAnnouncement("model.json", len(data), sha256_hex(data)), [data])
        options = {"tune": tune} if tune else {}
        source = UploadedModel(sha256_hex(data))
        return self.parts.service.submit(Submission(model["name"], source, ("x86-64-v3",), options, **order))

    def work(self) -> None:
        while self.line.tasks:
            self.turns.work(*self.line.tasks.popleft())

    def get(self, job: JobRecord) -> JobRecord:
        return self.parts.service.get(job.id)

    def records(self, job: JobRecord) -> bytes:
        return self.parts.tuning.load(job.source, TARGET)


@contextmanager
def service(home: Path, queues: str = "compile,tune,verify") -> Iterator[Service]:
    with redis_server() as url:
        settings, line = CompilerSettings(home=home, redis_url=url, queues=queues), Line()
        parts = make_parts(settings, ToyCompiler(), line, STAGE_COMMAND)
        yield Service(parts, WorkerTurns(parts.service, make_stage_worker(parts, settings, threading.Event())), line)


@pytest.mark.parametrize(
    ("how", "code"),
    [
        ("", None),
        ("error", ErrorCode.LIMIT_EXCEEDED),
        ("raise", ErrorCode.COMPILER_FAULT),
        ("kill", ErrorCode.STAGE_KILLED),
        ("abort", ErrorCode.COMPILER_FAULT),
    ],
)
def test_what_was_measured_is_kept_however_the_stage_ends(tmp_path: Path, how: str, code: ErrorCode | None) -> None:
    with service(tmp_path) as own:
        job = own.submit({"name": "m", "trials": 3, "tune_do": how})
        own.work()
        done = own.get(job)
        assert own.records(job) == b"".join(map(toy_record, range(3)))
        if code is ErrorCode.STAGE_KILLED:
            assert done.targets[0].tries == 1, "somebody else may have killed it: it is tried again"
        else:
            assert done.state is (JobState.FAILED if code else JobState.SUCCEEDED)
            assert (done.error.code if done.error else None) is code


def test_a_cancelled_job_keeps_what_it_has_learned(tmp_path: Path) -> None:
    mark = f"tuned-{secrets.token_hex(8)}"
    with service(tmp_path) as own:
        job = own.submit({"name": "m", "trials": 2, "tune_do": "hang", "mark": mark})
        with working(own.work):
            wait_until(lambda: runs(mark), 60)
            own.parts.service.cancel(job.id)
        assert ends(mark)
        assert own.get(job).state is JobState.CANCELLED
        assert own.records(job) == toy_record(0) + toy_record(1)


def test_a_job_that_is_late_keeps_what_it_has_learned(tmp_path: Path) -> None:
    mark = f"tuned-{secrets.token_hex(8)}"
    with service(tmp_path) as own:
        job = own.submit({"name": "m", "trials": 2, "tune_do": "hang", "mark": mark}, timeout=10.0)
        own.work()
        assert ends(mark)
        done = own.get(job)
        assert done.error is not None
        assert done.error.code is ErrorCode.DEADLINE_EXCEEDED
        assert own.records(job) == toy_record(0) + toy_record(1)


def test_a_later_job_adds_to_what_is_known(tmp_path: Path) -> None:
    with service(tmp_path) as own:
        job = own.submit({"name": "m", "trials": 1})
        own.parts.tuning.add(job.source, TARGET, toy_record(7))
        own.work()
        assert own.records(job) == toy_record(0) + toy_record(7)


def test_more_time_than_a_stage_may_take_is_refused_before_it_is_spent(tmp_path: Path) -> None:
    with service(tmp_path) as own:
        job = own.submit({"name": "m"}, tune=3500)
        own.work()
        error = own.get(job).error
        assert error is not None
        assert (error.code, error.field) == (ErrorCode.RESOURCE_LIMIT, "tune")
        assert own.records(job) == b""


def test_tuning_gives_way_and_goes_on_later(tmp_path: Path) -> None:
    """With one worker that does everything: what it has learned stays, and the time that it has had counts."""
    with service(tmp_path) as own:
        slow = own.submit({"name": "slow", "trials": 200, "trial_seconds": 0.1})
        with working(own.work):
            wait_until(lambda: own.get(slow).targets[0].stage == "tune" and own.get(slow).targets[0].total > 0, 60)
            quick = own.submit({"name": "quick"}, tune=0)
        assert own.get(quick).state is JobState.SUCCEEDED
        held = own.get(slow)
        assert held.state is JobState.RUNNING
        assert not held.targets[0].passed
        assert held.targets[0].resume_at > 0
        assert toy_record(0) in own.records(slow)
        assert own.parts.service.store.count_tuned(slow.id, 0, 0.0) > 0
        own.parts.service.store.count_tuned(slow.id, 0, 60.0)
        own.turns.work(JobStage.TUNE, slow.id, 0)
        own.work()
        assert own.get(slow).state is JobState.SUCCEEDED, "its time is over, and it is compiled by what was learned"


def test_a_worker_that_only_tunes_gives_way_to_nobody(tmp_path: Path) -> None:
    with service(tmp_path, "tune") as own:
        slow = own.submit({"name": "slow", "trials": 30, "trial_seconds": 0.1})
        own.turns.work(*own.line.tasks.popleft())
        own.submit({"name": "quick"}, tune=0)
        tune = next(task for task in own.line.tasks if task[0] is JobStage.TUNE)
        own.turns.work(*tune)
        assert own.get(slow).targets[0].passed == "tune"


def test_a_quick_compilation_does_not_wait_behind_tuning(tmp_path: Path) -> None:
    """One worker with one slot, real processes; three jobs tune for a minute each."""
    with installation(tmp_path / "home", INGOT_JOB_SECONDS="120") as running:
        running.start_server()
        client = running.client()
        running.start_worker()
        options = {"tune": pb.OptionValue(int_value=60)}
        slow = [
            client.compile({"name": f"slow{n}", "trials": 600, "trial_seconds": 0.1}, name=f"slow{n}", options=options)
            for n in range(3)
        ]
        wait_until(lambda: any(client.job(job.id).targets[0].stage == "tune" for job in slow), 60)
        quick = client.run({"name": "quick"}, name="quick")
        assert quick.state == pb.JOB_STATE_SUCCEEDED
        assert {client.job(job.id).state for job in slow} <= {pb.JOB_STATE_QUEUED, pb.JOB_STATE_RUNNING}
        assert {client.job(job.id).targets[0].stage for job in slow} <= {"", "tune"}, "nobody has tuned to the end"
        tuned = next(job for job in slow if client.job(job.id).targets[0].stage == "tune")
        wait_until(lambda: client.job(tuned.id).targets[0].done > 0, 60)
        for job in slow:
            client.stub.CancelJob(pb.CancelJobRequest(id=job.id))


@contextmanager
def working(act: Callable[[], None]) -> Iterator[None]:
    """Beside the block, until it is done."""
    thread = threading.Thread(target=act)
    thread.start()
    try:
        yield
    finally:
        thread.join()
