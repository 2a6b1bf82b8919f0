"""Jobs from submission to result. Knows neither gRPC nor Celery: stages are sent through a :class:`Queue`."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from compiler_service.jobs.amounts import check_amounts, check_size
from compiler_service.jobs.deadline import check_deadline, is_late, too_late
from compiler_service.jobs.due import remaining
from compiler_service.jobs.history.logs import Logs
from compiler_service.jobs.history.times import Times
from compiler_service.jobs.idempotency import job_ids, order_again, same_order, taken_by_another, taking
from compiler_service.jobs.neighbours import Compiler, Queue, RecordStore, SourceCatalogue
from compiler_service.jobs.orders import Orders
from compiler_service.jobs.persistence.counters import Counters
from compiler_service.jobs.persistence.store import ForgottenError, JobStore
from compiler_service.jobs.records import (
    WHOLE_JOB,
    Event,
    JobRecord,
    JobStage,
    JobState,
    Orderer,
    Submission,
    TargetRecord,
    UploadedModel,
)
from compiler_service.jobs.waiting.dispatch import Dispatch
from compiler_service.jobs.waiting.line import check_priority
from shared_ir.artifact.published import check_new_model_name
from shared_ir.artifact.repository import ArtifactRepository, check_new_label
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.machine.target import target_to_dict

logger = logging.getLogger(__name__)


class JobService:
    """Submits, follows and ends jobs.

    Args:
        max_jobs: unfinished jobs; further submissions are refused with RESOURCE_EXHAUSTED.
    """

    def __init__(
        self,
        store: JobStore,
        orders: Orders,
        counters: Counters,
        repository: ArtifactRepository,
        sources: SourceCatalogue,
        records: RecordStore,
        compiler: Compiler,
        queue: Queue,
        max_jobs: int = 1000,
    ) -> None:
        self.store = store
        self.orders = orders
        self.dispatch = Dispatch(store, queue)
        self.logs = Logs(store.log, orders.store)
        self.times = Times(store.redis, counters, store.keep_seconds)
        self._counters = counters
        self._repository = repository
        self._sources = sources
        self._records = records
        self.compiler = compiler
        self._max_jobs = max_jobs

    def submit(self, submission: Submission) -> JobRecord:
        """Queue a job; one whose artifacts all exist has finished when this returns.

        An order that was taken under the same idempotency key is answered with the job that it became.

        Raises:
            IngotError: INVALID_ARGUMENT, INVALID_TARGET, NOT_FOUND, RESOURCE_EXHAUSTED, UNAVAILABLE.
        """
        self._check(submission)
        job, *earlier = job_ids(submission.idempotency_key, submission.source.namespace)
        options = self.compiler.normalise_options(submission.options)
        for id in (job, *earlier) if submission.idempotency_key else ():
            taken = self._find(id)
            if taken is not None and (id == job or taken.source.namespace == submission.source.namespace):
                return same_order(taken, submission, options)
        targets = tuple(self._target(submission.source, text, options) for text in submission.targets)
        self._check_distinct(targets)
        now = time.time()
        record = JobRecord(
            id=job,
            name=submission.name,
            source=submission.source,
            options=options,
            targets=targets,
            created=now,
            labels=submission.labels,
            user=submission.user,
            trace=submission.trace,
            running_stages=submission.running_stages,
            deadline=now + submission.timeout if submission.timeout else 0.0,
            priority=submission.priority,
        )
        check_size(record)
        if record.cache_hit:
            return self._submit_known(record, submission)
        if self.store.active_count() >= self._max_jobs:
            raise IngotError(
                ErrorCode.RESOURCE_EXHAUSTED,
                "the queue of compile jobs is full",
                expected=f"at most {self._max_jobs} unfinished jobs",
                remedy="Submit again later.",
            )
        with self.store.quota.reserving(record.source.namespace, submission.unfinished_jobs, job):
            if not self._create(record):
                return same_order(self.get(job), submission, options)
        leads = [self._join(record, number) for number, target in enumerate(targets) if not target.cache_hit]
        for target in targets:
            self._counters.cache("hit" if target.cache_hit else "miss")
        if any(leads):
            self.dispatch.send(record, WHOLE_JOB, JobStage.INGEST)
        return self.store.get(record.id)

    def get(self, job: str) -> JobRecord:
        """Also one that Redis has forgotten. Raises IngotError NOT_FOUND."""
        return self._find(job) or self.store.get(job)

    def _held(self, job: str) -> JobRecord:
        """As :meth:`get`; an unfinished one is put back where Redis has forgotten it: what is not there does not change, and would be
        ordered again as it was."""
        try:
            return self.store.get(job)
        except ForgottenError:
            self.restore(job)
            return self.get(job)

    def _find(self, job: str) -> JobRecord | None:
        try:
            return self.store.get(job)
        except ForgottenError:
            kept = self.orders.find(job)
            return self.store.read(job, kept) if kept else None

    def cancel(self, job: str) -> JobRecord:
        """Stop a job; one that has finished stays as it is. Raises IngotError NOT_FOUND."""
        record = self._held(job)
        if record.state.finished:
            return record
        error = IngotError(ErrorCode.CANCELLED, "the job was cancelled")
        for number, target in enumerate(record.targets):
            if not target.state.finished:
                self._finish(record, number, JobState.CANCELLED, error=error)
        self.finish_job(job, JobState.CANCELLED, error=error)
        return self.get(job)

    def retry(self, job: str, by: Orderer) -> JobRecord:
        """Have ``by`` order the same once more, of a job that has failed or was cancelled.

        Raises:
            IngotError: INVALID_ARGUMENT, of any other.
        """
        record = self.get(job)
        if record.state not in (JobState.FAILED, JobState.CANCELLED):
            raise IngotError(
                ErrorCode.INVALID_ARGUMENT,
                "only a job that has failed or was cancelled can be tried again",
                field="id",
                expected="FAILED or CANCELLED",
                received=record.state.value,
            )
        return self.submit(order_again(record, by))

    def start_targets(self, record: JobRecord) -> None:
        """After ingest: send the targets that this job compiles itself on their way."""
        for number, target in enumerate(record.targets):
            if target.state is JobState.QUEUED and not target.follows:
                self.dispatch.send(record, number, remaining(record, number)[0])

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
        try:
            self.close(job)
        except IngotError as failure:
            logger.warning("the order of job %s stays open until the store can be reached: %s", job, failure)

    def fail(self, job: str, number: int, error: IngotError) -> None:
        """A stage has failed: that of target ``number``, or with WHOLE_JOB one of the whole job."""
        if number == WHOLE_JOB:
            self.fail_job(job, error)
        else:
            self.finish_target(job, number, JobState.FAILED, error=error)

    def fail_job(self, job: str, error: IngotError) -> None:
        """Fail the whole job and every target of it that is not finished."""
        record = self.store.get(job)
        for number, target in enumerate(record.targets):
            if not target.state.finished:
                self._finish(record, number, JobState.FAILED, error=error)
        self.finish_job(job, JobState.FAILED, error=error)

    def end_late(self, record: JobRecord) -> bool:
        """Fail a job whose deadline has passed; whether that was so. One that is being published has made it."""
        if not is_late(record):
            return False
        now = self.store.get(record.id)
        if now.stage == JobStage.PUBLISH and now.leased:
            return False
        self.fail_job(now.id, too_late(now))
        return True

    # ---- nothing is stuck: see compiler_service.jobs.reconciler

    def tell(self, record: JobRecord, number: int, text: str, stage: str = "") -> None:
        """A warning for those who watch the job, about ``stage`` or the one that it was in."""
        own = record if number == WHOLE_JOB else record.targets[number]
        target = own.target if isinstance(own, TargetRecord) else ""
        event = Event("log", target, {"level": "WARNING", "text": text}, stage=stage or own.stage)
        self.store.add_event(record.id, event)

    def follow(self, job: str, number: int) -> bool:
        """Whether the compilation that a target waits for had ended, or was gone, without a word; now it is told."""
        target = self.store.get(job).targets[number]
        if not target.follows or target.state.finished:
            return False
        led = (t for t in self._targets_of(target.follows) if t.request_key == target.request_key)
        leader = next(led, None)
        if leader is None:
            self._end_wait(job, number, JobState.CANCELLED, "", None)
            return True
        if leader.state.finished:
            self._end_wait(job, number, leader.state, leader.artifact_key, leader.error)
        return leader.state.finished

    def restore(self, job: str) -> bool:
        """Put a job back that Redis has forgotten, as it was ordered; its stages find what they had made before."""
        kept = self.orders.find(job)
        record = self.store.read(job, kept) if kept else None
        if record is None or record.state.finished:
            return False
        self.store.create(record, kept)
        self.tell(record, WHOLE_JOB, "the queue had lost the job; it is ordered again")
        for number, target in enumerate(record.targets):
            if target.state.finished:
                continue
            if self._repository.find_artifact(target.request_key) is not None:
                self._finish(record, number, JobState.SUCCEEDED, target.request_key, cache_hit=True)
            else:
                self._join(record, number)
        return True

    def close(self, job: str) -> None:
        """The order of a job is done where it has finished, and is here. Raises IngotError UNAVAILABLE; ARTIFACT_UNTRUSTED, no job."""
        fields = self.store.fields(job)
        if fields and self.store.read(job, fields).state.finished:
            self.logs.keep(job)
            self.orders.close(job, fields)

    # ---- parts

    def _check(self, submission: Submission) -> None:
        check_new_model_name(submission.name)
        check_amounts(submission)
        for label in submission.labels:
            check_new_label(label)
        check_deadline(submission.timeout)
        check_priority(submission.priority)
        self._sources.require(submission.source)

    def _check_distinct(self, targets: Sequence[TargetRecord]) -> None:
        by_key: dict[str, str] = {}
        for target in targets:
            if target.request_key in by_key:
                message = "two targets of the job are the same"
                received = f"{by_key[target.request_key]!r} and {target.target!r}"
                raise IngotError(ErrorCode.INVALID_ARGUMENT, message, field="targets", received=received)
            by_key[target.request_key] = target.target

    def _target(self, source: UploadedModel, text: str, options: Mapping[str, Any]) -> TargetRecord:
        target = self.compiler.resolve_target(text)
        key = self.compiler.artifact_key(source, target, options, self._records.load(source, target))
        if self._repository.find_artifact(key) is None:
            return TargetRecord(text, target_to_dict(target), key)
        return TargetRecord(
            text, target_to_dict(target), key, state=JobState.SUCCEEDED, artifact_key=key, cache_hit=True
        )

    def _submit_known(self, record: JobRecord, submission: Submission) -> JobRecord:
        """Every artifact exists. When a version of the model has them too, the job is done."""
        for _ in record.targets:
            self._counters.cache("hit")
        version = self._repository.find_version(record.name, [target.artifact_key for target in record.targets])
        if version is None:
            if not self._create(record):
                return same_order(self.get(record.id), submission, record.options)
            self.dispatch.send(record, WHOLE_JOB, JobStage.PUBLISH)
            return record
        with taking(self.store, record.id, submission) as is_first:
            if not is_first:
                return same_order(taken_by_another(self._find, record.id), submission, record.options)
            for label in record.labels:
                by = record.user or f"job {record.id}"
                self._repository.set_label(record.name, label, version.number, record.created, by)
            now = time.time()
            record = replace(record, state=JobState.SUCCEEDED, started=now, finished=now, version=version.number)
            self.store.create(record)
            return record

    def _create(self, record: JobRecord) -> bool:
        """Of a job that has not finished, the order comes first: whatever dies from here on, it is not lost.

        False when another call has ordered the same meanwhile.
        """
        sealed = self.store.seal(record)
        is_first = self.orders.open(record.id, sealed)
        if is_first:
            self.store.create(record, sealed)
        return is_first

    def _targets_of(self, job: str) -> Sequence[TargetRecord]:
        """None where the job is gone."""
        try:
            return self.get(job).targets
        except ForgottenError:
            return ()

    def _join(self, record: JobRecord, number: int) -> bool:
        """True when this job itself compiles the target."""
        leader, led = self.store.flights.join(record.flight(number), record.id, number)
        if leader == record.id:
            return True
        self._counters.cache("shared")
        self.store.update_target(record.id, number, follows=leader, state=JobState.RUNNING, stage="waiting")
        self.store.update(record.id, state=JobState.RUNNING, started=time.time())
        text = f"job {leader} is compiling the same; waiting for it"
        self.store.add_event(record.id, Event("log", record.targets[number].target, {"level": "INFO", "text": text}))
        self.dispatch.follow(record, (leader, led))
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
        self._counters.target_finished(state, target, error.code if error else "")
        if target.follows:
            self.store.flights.leave(record.flight(number), record.id, number)
            self._take_place_back(record, target)
        for job, waiting in self.store.flights.end(record.flight(number), record.id, number):
            with suppress(ForgottenError):  # it is no matter of those who wait beside it
                self._end_wait(job, waiting, state, artifact_key, error)

    def _take_place_back(self, record: JobRecord, follower: TargetRecord) -> None:
        """What ``follower`` waited for, and nobody has come to the end of, is not his any more."""
        leader = self._find(follower.follows)
        for number, target in enumerate(leader.targets if leader else ()):
            if leader and target.request_key == follower.request_key and not target.state.finished:
                self.dispatch.leave(record, leader, number)

    def _end_wait(self, job: str, number: int, state: JobState, artifact_key: str, error: IngotError | None) -> None:
        """The compilation that a target waited for has ended. One that was cancelled, or whose job had no time left, is taken up by the
        first who waits."""
        record = self.store.get(job)
        if record.targets[number].state.finished:
            return
        gone = state is JobState.CANCELLED or (error is not None and error.code is ErrorCode.DEADLINE_EXCEEDED)
        if not gone:
            self._finish(record, number, state, artifact_key, error, cache_hit=state is JobState.SUCCEEDED)
            self._publish_if_done(job)
            return
        leader, led = self.store.flights.join(record.flight(number), job, number)
        self.store.update_target(job, number, follows="" if leader == job else leader)
        if leader != job:
            self.dispatch.follow(record, (leader, led))
        else:
            self.store.update(job, passed=JobStage.INGEST.value)  # whom it followed had taken the model in
            self.dispatch.send(record, number, remaining(record, number)[0])

    def _publish_if_done(self, job: str) -> None:
        record = self.store.get(job)
        if not record.state.finished and all(target.state.finished for target in record.targets):
            self.dispatch.send(record, WHOLE_JOB, JobStage.PUBLISH)
