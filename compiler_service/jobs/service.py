"""Jobs from submission to result. Knows neither gRPC nor Celery: stages are sent through a :class:`Queue`."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from compiler_service.jobs.counters import Counters
from compiler_service.jobs.records import (
    TARGET_STAGES,
    WHOLE_JOB,
    Event,
    JobRecord,
    JobStage,
    JobState,
    Source,
    TargetRecord,
)
from compiler_service.jobs.store import JobStore
from shared_ir.artifact.repository import ArtifactRepository, check_label, check_model_name
from shared_ir.artifact.value import Manifest
from shared_ir.digest import canonical_json
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.machine.target import Target, target_from_dict, target_to_dict

MAX_TARGETS = 64
_VERSIONS_SEARCHED = 16
"""How many of a model's newest versions are searched for one with the same artifacts."""


class Queue(Protocol):
    """Sends work to the workers."""

    def send(self, stages: Sequence[JobStage], job: str, target: int) -> None:
        """Run ``stages`` one after another; only ids travel."""


class Compiler(Protocol):
    """What a submission must know of the compiler."""

    def resolve_target(self, text: str) -> Target:
        """Raises IngotError INVALID_TARGET."""

    def normalise_options(self, options: Mapping[str, Any]) -> Mapping[str, Any]:
        """Every option that changes code, defaults filled in. Raises IngotError INVALID_ARGUMENT naming the option."""

    def artifact_key(self, source: Source, target: Target, options: Mapping[str, Any], records: bytes) -> str:
        """The key that the artifact will have."""


class SourceCatalogue(Protocol):
    """The uploaded models."""

    def require(self, source: Source) -> None:
        """Raises IngotError NOT_FOUND naming a file that was not uploaded."""


class RecordStore(Protocol):
    """Tuning records of a model on a target, as JSON bytes; empty when there are none."""

    def load(self, source: Source, target: Target) -> bytes: ...


@dataclass(frozen=True)
class Submission:
    """A request to compile."""

    name: str
    source: Source
    targets: tuple[str, ...]
    options: Mapping[str, Any]
    labels: tuple[str, ...] = ()
    user: str = ""
    trace: str = ""
    running_stages: int = 0


class JobService:
    """Submits, follows and ends jobs.

    Args:
        max_jobs: unfinished jobs; further submissions are refused with RESOURCE_EXHAUSTED.
    """

    def __init__(
        self,
        store: JobStore,
        counters: Counters,
        repository: ArtifactRepository,
        sources: SourceCatalogue,
        records: RecordStore,
        compiler: Compiler,
        queue: Queue,
        max_jobs: int = 1000,
    ) -> None:
        self.store = store
        self._counters = counters
        self._repository = repository
        self._sources = sources
        self._records = records
        self._compiler = compiler
        self._queue = queue
        self._max_jobs = max_jobs

    def submit(self, submission: Submission) -> JobRecord:
        """Queue a job; one whose artifacts all exist has finished when this returns.

        Raises:
            IngotError: INVALID_ARGUMENT, INVALID_TARGET, NOT_FOUND, RESOURCE_EXHAUSTED, UNAVAILABLE.
        """
        self._check(submission)
        options = self._compiler.normalise_options(submission.options)
        targets = tuple(self._target(submission.source, text, options) for text in submission.targets)
        self._check_distinct(targets)
        record = JobRecord(
            id=secrets.token_hex(8),
            name=submission.name,
            source=submission.source,
            options=options,
            targets=targets,
            created=time.time(),
            labels=submission.labels,
            user=submission.user,
            trace=submission.trace,
            running_stages=submission.running_stages,
        )
        if record.cache_hit:
            return self._submit_known(record)
        if self.store.active_count() >= self._max_jobs:
            raise IngotError(
                ErrorCode.RESOURCE_EXHAUSTED,
                "the queue of compile jobs is full",
                expected=f"at most {self._max_jobs} unfinished jobs",
                remedy="Submit again later.",
            )
        self.store.create(record)
        leads = [self._join(record, number) for number, target in enumerate(targets) if not target.cache_hit]
        for target in targets:
            self._counters.cache("hit" if target.cache_hit else "miss")
        if any(leads):
            self._queue.send((JobStage.INGEST,), record.id, WHOLE_JOB)
        return self.store.get(record.id)

    def cancel(self, job: str) -> JobRecord:
        """Stop a job; one that has finished stays as it is. Raises IngotError NOT_FOUND."""
        record = self.store.get(job)
        if record.state.finished:
            return record
        error = IngotError(ErrorCode.CANCELLED, "the job was cancelled")
        for number, target in enumerate(record.targets):
            if not target.state.finished:
                self._finish(record, number, JobState.CANCELLED, error=error)
        self.store.update(job, state=JobState.CANCELLED, finished=time.time(), error=error)
        return self.store.get(job)

    def start_targets(self, record: JobRecord) -> None:
        """After ingest: send the targets that this job compiles itself on their way."""
        for number, target in enumerate(record.targets):
            if target.state is JobState.QUEUED and not target.follows:
                self._queue.send(TARGET_STAGES, record.id, number)

    def finish_target(
        self, job: str, number: int, state: JobState, artifact_key: str = "", error: IngotError | None = None
    ) -> None:
        """A target has come to its end. Those who wait for the same artifact come to theirs; when it was the job's last
        target, the job goes to publish."""
        record = self.store.get(job)
        self._finish(record, number, state, artifact_key, error)
        self._publish_if_done(job)

    def finish_job(self, job: str, state: JobState, version: int = 0, error: IngotError | None = None) -> None:
        self.store.update(job, state=state, version=version, error=error, finished=time.time())

    def fail_job(self, job: str, error: IngotError) -> None:
        """Fail the whole job and every target of it that is not finished."""
        record = self.store.get(job)
        for number, target in enumerate(record.targets):
            if not target.state.finished:
                self._finish(record, number, JobState.FAILED, error=error)
        self.finish_job(job, JobState.FAILED, error=error)

    def resume(self, record: JobRecord, number: int, why: str) -> None:
        """Send a stage again whose worker was lost."""
        self.store.add_event(record.id, Event("log", data={"level": "WARNING", "text": why}))
        if number == WHOLE_JOB:
            if self.store.update(record.id, leased=False):
                self._queue.send((JobStage(record.stage),), record.id, WHOLE_JOB)
        elif self.store.update_target(record.id, number, leased=False):
            first = TARGET_STAGES.index(JobStage(record.targets[number].stage))
            self._queue.send(TARGET_STAGES[first:], record.id, number)

    def reap(self) -> int:
        """Resume every stage whose worker gave no sign of life; how many."""
        found = 0
        for record in self.store.active():
            stages = [(WHOLE_JOB, record.leased)] + [(n, t.leased) for n, t in enumerate(record.targets)]
            for number, leased in stages:
                if leased and not self.store.leased(record.id, number):
                    self.resume(record, number, "the worker was lost; the stage starts again on another one")
                    found += 1
        return found

    def require_made_for(
        self, record: JobRecord, number: int, manifest: Manifest, records: bytes | None = None
    ) -> None:
        """What is about to be signed or published must be what target ``number`` of a job asked for, made by nobody else's order.

        With the tuning ``records`` that it was made with, its key too must be the one that follows from all of them.

        Raises:
            IngotError: COMPILER_FAULT.
        """
        target = target_from_dict(record.targets[number].spec)
        wanted = {
            "model_sha256": record.source.digest,
            "triple": target.triple,
            "cpu": target.cpu,
            "features": list(target.features),
            "options": dict(record.options),
        }
        if records is not None:
            wanted["key"] = self._compiler.artifact_key(record.source, target, record.options, records)
        found = manifest.to_dict()
        wrong = [name for name, value in wanted.items() if canonical_json(found[name]) != canonical_json(value)]
        if wrong:
            raise IngotError(
                ErrorCode.COMPILER_FAULT,
                "an artifact is not of what the job asked for",
                field=", ".join(wrong),
                expected=str([wanted[name] for name in wrong])[:200],
                received=str([found[name] for name in wrong])[:200],
                remedy="Submit the job again. If it happens again, somebody writes to the queue or the store.",
            )

    # ---- parts

    def _check(self, submission: Submission) -> None:
        check_model_name(submission.name)
        for label in submission.labels:
            check_label(label)
        if not 0 < len(submission.targets) <= MAX_TARGETS:
            raise IngotError(
                ErrorCode.INVALID_ARGUMENT,
                "a job needs a target" if not submission.targets else "too many targets",
                field="targets",
                expected=f"1 to {MAX_TARGETS}",
                received=str(len(submission.targets)),
                remedy="Name what to compile for, such as `x86-64-v3` or `aws/graviton3`; ListTargets lists all.",
            )
        self._sources.require(submission.source)

    def _check_distinct(self, targets: Sequence[TargetRecord]) -> None:
        by_key: dict[str, str] = {}
        for target in targets:
            if target.request_key in by_key:
                message = "two targets of the job are the same"
                received = f"{by_key[target.request_key]!r} and {target.target!r}"
                raise IngotError(ErrorCode.INVALID_ARGUMENT, message, field="targets", received=received)
            by_key[target.request_key] = target.target

    def _target(self, source: Source, text: str, options: Mapping[str, Any]) -> TargetRecord:
        target = self._compiler.resolve_target(text)
        key = self._compiler.artifact_key(source, target, options, self._records.load(source, target))
        if self._repository.find_artifact(key) is None:
            return TargetRecord(text, target_to_dict(target), key)
        return TargetRecord(
            text, target_to_dict(target), key, state=JobState.SUCCEEDED, artifact_key=key, cache_hit=True
        )

    def _submit_known(self, record: JobRecord) -> JobRecord:
        """Every artifact exists. When a version of the model has them too, the job is done."""
        for _ in record.targets:
            self._counters.cache("hit")
        number = self._find_version(record)
        if number:
            for label in record.labels:
                self._repository.set_label(record.name, label, number, record.created)
            now = time.time()
            record = replace(record, state=JobState.SUCCEEDED, started=now, finished=now, version=number)
            self.store.create(record)
            return record
        self.store.create(record)
        self._queue.send((JobStage.PUBLISH,), record.id, WHOLE_JOB)
        return record

    def _find_version(self, record: JobRecord) -> int:
        keys = sorted(target.artifact_key for target in record.targets)
        for number in reversed(self._repository.version_numbers(record.name)[-_VERSIONS_SEARCHED:]):
            version = self._repository.version(record.name, number)
            if sorted(manifest.key for manifest in version.targets) == keys:
                return number
        return 0

    def _join(self, record: JobRecord, number: int) -> bool:
        """True when this job itself compiles the target."""
        key = record.targets[number].request_key
        leader = self.store.join_flight(key, record.id, number)
        if leader == record.id:
            return True
        self._counters.cache("shared")
        self.store.update_target(record.id, number, follows=leader, state=JobState.RUNNING, stage="waiting")
        self.store.update(record.id, state=JobState.RUNNING, started=time.time())
        text = f"job {leader} is compiling the same; waiting for it"
        self.store.add_event(record.id, Event("log", record.targets[number].target, {"level": "INFO", "text": text}))
        return False

    def _finish(
        self,
        record: JobRecord,
        number: int,
        state: JobState,
        artifact_key: str = "",
        error: IngotError | None = None,
        cache_hit: bool = False,
    ) -> None:
        target = record.targets[number]
        changes: dict[str, Any] = {"state": state, "artifact_key": artifact_key, "error": error, "leased": False}
        if not self.store.update_target(record.id, number, **changes, cache_hit=cache_hit):
            return
        self._counters.target_finished(state, target.target, error.code if error else "")
        if target.follows:
            self.store.leave_flight(target.request_key, record.id, number)
        for job, waiting in self.store.end_flight(target.request_key, record.id, number):
            self._end_wait(job, waiting, state, artifact_key, error)

    def _end_wait(self, job: str, number: int, state: JobState, artifact_key: str, error: IngotError | None) -> None:
        """The compilation that a target waited for has ended. A cancelled one is taken up by the first who waits."""
        record = self.store.get(job)
        if record.targets[number].state.finished:
            return
        if state is not JobState.CANCELLED:
            self._finish(record, number, state, artifact_key, error, cache_hit=state is JobState.SUCCEEDED)
            self._publish_if_done(job)
            return
        leader = self.store.join_flight(record.targets[number].request_key, job, number)
        self.store.update_target(job, number, follows="" if leader == job else leader)
        if leader == job:
            self._queue.send(TARGET_STAGES, job, number)

    def _publish_if_done(self, job: str) -> None:
        record = self.store.get(job)
        if not record.state.finished and all(target.state.finished for target in record.targets):
            self._queue.send((JobStage.PUBLISH,), job, WHOLE_JOB)
