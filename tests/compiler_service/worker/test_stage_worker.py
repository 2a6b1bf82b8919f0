"""The worker's stages called one by one: what those who watch a job are told, and when."""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from compiler_service.jobs.records import WHOLE_JOB, JobRecord, JobStage, JobState, Submission, UploadedModel
from compiler_service.settings import CompilerSettings
from compiler_service.store.reproducers import Reproducers
from compiler_service.store.sources import UploadAnnouncement
from compiler_service.wiring import make_parts
from compiler_service.worker.run import make_stage_worker
from compiler_service.worker.stage_outcome import StageOutcome
from compiler_service.worker.turns import WorkerTurns
from shared_ir.digest import sha256_hex
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.storage.local import FileStore
from tests.services.redis_server import redis_server
from tests.services.toy_compiler import STAGE_COMMAND, ToyCompiler

pytestmark = pytest.mark.services


class Line:
    """A queue that the test works off itself."""

    def __init__(self) -> None:
        self.tasks: deque[tuple[JobStage, str, int]] = deque()

    def send(self, stage: JobStage, job: str, target: int, kind: str = "") -> None:
        self.tasks.append((stage, job, target))

    def waiting(self, kinds: Any) -> Any:
        return {}


@pytest.mark.usefixtures("toy_stages")
def test_a_fault_of_a_pass_leaves_what_shows_it_again(tmp_path: Path) -> None:
    last = history(tmp_path, {"name": "broken", "do": "fault"})[-1]
    error = last.error
    assert error is not None
    assert (error.code, error.field) == (ErrorCode.COMPILER_FAULT, "fuse")
    assert f"`ingot jobs {last.id} --reproducer` prints what shows it again." in error.remedy
    text = Reproducers(FileStore(tmp_path / "store")).load(last.id, 0)
    assert text.startswith("# A fault of the compiler: pass 'fuse' failed after fold: KeyError: 'lost'\n# compiler ")
    assert text.endswith("opt -p 'fuse{most_nodes=8}' THIS_FILE\ngraph g() {}\n")


@contextmanager
def uploaded(home: Path, model: Mapping[str, Any], *targets: str) -> Iterator[tuple[Line, WorkerTurns, Submission]]:
    """A queue, whose turn it is in it, and what orders the model, which is in the store."""
    with redis_server() as url:
        settings = CompilerSettings(home=home, redis_url=url)
        line = Line()
        parts = make_parts(settings, ToyCompiler(), line, STAGE_COMMAND)
        data = json.dumps(model).encode()
        parts.sources.receive(UploadAnnouncement("model.json", len(data), sha256_hex(data)), [data])
        turns = WorkerTurns(parts.service, make_stage_worker(parts, settings, threading.Event()))
        yield line, turns, Submission("m", UploadedModel(sha256_hex(data)), targets, {})


def history(home: Path, model: Mapping[str, Any]) -> Sequence[JobRecord]:
    """Compile, with two targets; the job as it stood each time that it or a target changed state."""
    with uploaded(home, model, "x86-64-v3", "x86-64-v4") as (line, turns, submission):
        seen: list[JobRecord] = []
        store = turns.service.store
        announce = store.add_event

        def add_event(job: str, event: Any) -> None:
            announce(job, event)
            seen.append(store.get(job))

        store.add_event = add_event  # type: ignore[method-assign]  # of this store alone
        turns.service.submit(submission)
        while line.tasks:
            turns.work(*line.tasks.popleft())
        return seen


@pytest.mark.parametrize(
    ("model", "state", "stages"),
    [
        ({"name": "good"}, JobState.SUCCEEDED, {"ingest", "build", "verify", "publish"}),
        ({"name": "bad", "do": "error"}, JobState.FAILED, {"ingest", "build", "publish"}),
        ({"name": "none", "issues": ["Foo is not supported"]}, JobState.FAILED, {"ingest"}),
    ],
)
@pytest.mark.usefixtures("toy_stages")
def test_a_finished_job_has_the_seconds_of_all_its_stages(
    tmp_path: Path, model: Mapping[str, Any], state: JobState, stages: set[str]
) -> None:
    seen = history(tmp_path, model)
    assert seen[-1].state is state
    finished = [record for record in seen if record.state.finished]
    assert [set(record.stage_seconds) for record in finished] == [stages] * len(finished)
    for record in seen:
        for target in record.targets:
            if target.state is JobState.SUCCEEDED:
                assert "verify" in record.stage_seconds


@pytest.mark.usefixtures("toy_stages")
@pytest.mark.parametrize(
    ("issues", "code"),
    [
        ([{"code": code, "message": "m" * 100_000}], code)
        for code in (ErrorCode.UNAVAILABLE, ErrorCode.STAGE_KILLED, ErrorCode.DISK_FULL)
    ]
    + [(issues, ErrorCode.COMPILER_FAULT) for issues in (7, [7], [{"code": "NO_SUCH_CODE", "message": "m"}])],
)
def test_what_a_check_says_is_the_word_of_the_model(tmp_path: Path, issues: Any, code: ErrorCode) -> None:
    """It is tried once, whatever it says of the machine, and kept as short as other errors of stages."""
    seen = history(tmp_path, {"name": "taken over", "report": {"issues": issues}})
    assert {record.tries for record in seen} == {0}
    last = seen[-1]
    assert last.state is JobState.FAILED
    assert last.error is not None
    assert last.error.code is code
    assert len(last.error.message) <= 4000


@pytest.mark.usefixtures("toy_stages")
@pytest.mark.parametrize(("killed", "state"), [(3, JobState.SUCCEEDED), (4, JobState.FAILED)])
def test_a_stage_that_has_waited_for_its_store_may_be_killed_as_often_as_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, killed: int, state: JobState
) -> None:
    with uploaded(tmp_path, {"name": "unlucky"}, "x86-64-v3") as (line, turns, submission):
        job = turns.service.submit(submission).id
        line.tasks.clear()
        process = turns.worker._process
        ends = [ErrorCode.UNAVAILABLE] * 5 + [ErrorCode.STAGE_KILLED] * killed

        def fails(*arguments: Any, **settings: Any) -> Any:
            if ends:
                raise IngotError(ends.pop(0), "an accident")
            return process(*arguments, **settings)

        monkeypatch.setattr(turns.worker, "_process", fails)
        for _ in range(len(ends)):
            turns.worker.run(JobStage.INGEST, job)
        turns.work(JobStage.INGEST, job, WHOLE_JOB)
        while line.tasks:
            turns.work(*line.tasks.popleft())
        assert turns.service.get(job).state is state


@pytest.mark.usefixtures("toy_stages")
def test_a_job_that_is_forgotten_while_its_stage_runs_is_not_gone_on_with(tmp_path: Path) -> None:
    with uploaded(tmp_path, {"name": "forgotten"}, "x86-64-v3") as (line, turns, submission):
        turns.service.submit(submission)
        turns.work(*line.tasks.popleft())
        worker, run = turns.worker, turns.worker.run

        def run_and_forget(stage: JobStage, job: str, number: int = WHOLE_JOB) -> StageOutcome:
            outcome = run(stage, job, number)
            turns.service.store.redis.flushall()
            return outcome

        worker.run = run_and_forget  # type: ignore[method-assign]  # of this worker alone
        stage, job, number = line.tasks.popleft()
        assert (stage, turns.work(stage, job, number)) == (JobStage.BUILD, StageOutcome.CONTINUE)
        assert not line.tasks


@pytest.mark.usefixtures("toy_stages")
@pytest.mark.parametrize("last", [JobStage.INGEST, JobStage.BUILD, JobStage.VERIFY, JobStage.PUBLISH])
def test_a_job_that_is_forgotten_before_its_stage_is_concluded_ends_no_worker(tmp_path: Path, last: JobStage) -> None:
    with uploaded(tmp_path, {"name": "forgotten"}, "x86-64-v3") as (line, turns, submission):
        turns.service.submit(submission)
        store = turns.service.store
        add_seconds, forgotten = store.add_seconds, list[JobStage]()

        def add_and_forget(job: str, stage: str, seconds: float) -> None:
            add_seconds(job, stage, seconds)
            if stage == last:
                forgotten.append(last)
                store.redis.flushall()

        store.add_seconds = add_and_forget  # type: ignore[method-assign]  # of this store alone
        while line.tasks:
            turns.work(*line.tasks.popleft())
        assert forgotten == [last]


def test_no_file_of_a_stage_is_larger_than_its_memory(tmp_path: Path) -> None:
    settings = CompilerSettings(home=tmp_path, redis_url="redis://127.0.0.1:1", job_memory=3 << 30)
    limits = make_parts(settings, ToyCompiler(), Line(), STAGE_COMMAND).runner.limits
    assert (limits.memory, limits.file_size) == (3 << 30, 3 << 30)
