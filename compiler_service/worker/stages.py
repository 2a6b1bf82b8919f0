"""What a worker does for each stage of a job. Knows no Celery: tasks call this and do what it answers."""

from __future__ import annotations

import json
import logging
import secrets
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from redis.exceptions import RedisError

from compiler_service.jobs.deadline import is_late
from compiler_service.jobs.due import has_passed
from compiler_service.jobs.made_for import require_made_for
from compiler_service.jobs.persistence.counters import Counters
from compiler_service.jobs.persistence.names import member
from compiler_service.jobs.persistence.quotas import StageQuota
from compiler_service.jobs.persistence.store import ForgottenError, JobStore
from compiler_service.jobs.records import WHOLE_JOB, Event, JobRecord, JobStage, JobState, TargetRecord
from compiler_service.jobs.service import JobService
from compiler_service.stages.checked import issues, read_check
from compiler_service.stages.outcome import StageError, read_compiled
from compiler_service.stages.process import ARTIFACT, RECORDS, REPRODUCER
from compiler_service.stages.runner import PREPARE, VERIFY, StageRunner, StoppedError
from compiler_service.store.reproducers import MOST_BYTES, Reproducers
from compiler_service.store.sources import SourceStore, request_source
from compiler_service.store.tuning_store import TuningStore
from compiler_service.worker.faults import explain, pause
from compiler_service.worker.heartbeat import Heartbeat
from compiler_service.worker.progress import ProgressEvents
from compiler_service.worker.stage_outcome import StageOutcome
from compiler_service.worker.tuning import learning, seconds_left
from shared_ir.artifact.exchange import write_artifact
from shared_ir.artifact.repository import ArtifactRepository
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.machine.target import target_from_dict
from shared_ir.service_kit.telemetry.fields import saying
from shared_ir.service_kit.telemetry.log import EXTRA
from shared_ir.service_kit.telemetry.tracing import TRACING
from shared_ir.storage.files import read_own

_LATER_SECONDS = 2.0
"""Until a stage is asked for again that its namespace has no room for."""

logger = logging.getLogger(__name__)

Conclusion = Callable[[], None]
"""Says that a stage has done its work, to those who wait for it."""

Body = Callable[[JobRecord, int, Heartbeat], Conclusion]
"""The work of one stage."""


class StageWorker:
    """Runs stages.

    Args:
        runner: starts the process of a stage.
        work: directory for the files of running stages.
        name: of this worker, which says that it lives.
        lease_seconds: after this time without renewal others may take the work over.
        stopping: set when this worker shuts down.
        gives_way: whether a stage that measures is to end, and to go on later.
    """

    def __init__(
        self,
        service: JobService,
        counters: Counters,
        repository: ArtifactRepository,
        sources: SourceStore,
        tuning: TuningStore,
        runner: StageRunner,
        reproducers: Reproducers,
        work: Path,
        lease_seconds: float,
        stopping: threading.Event,
        name: str = "",
        gives_way: Callable[[], bool] = lambda: False,
    ) -> None:
        self.name = name
        self.running = 0
        """Stages under way."""
        self._count = threading.Lock()
        self._service = service
        self._store: JobStore = service.store
        self._counters = counters
        self._repository = repository
        self._sources = sources
        self._tuning = tuning
        self._runner = runner
        self._reproducers = reproducers
        self._work = work
        self._lease_seconds = lease_seconds
        self._stopping = stopping
        self._gives_way = gives_way
        self._slots = StageQuota(self._store.redis)
        self._prepared: set[tuple[str, ...]] = set()

    def run(self, stage: JobStage, job: str, number: int = WHOLE_JOB) -> StageOutcome:
        """Do one stage of a job, or of its target ``number``. Doing it again is harmless. Raises RedisError.

        A job may be forgotten at any moment, with all that Redis knew; one that was ordered comes back, and is gone on with then."""
        with self._count:
            self.running += 1
        try:
            return self._run(stage, job, number)
        except ForgottenError as error:
            logger.info("stage %s of job %s ends: %s", stage, job, error.message)
            return StageOutcome.STOP
        finally:
            with self._count:
                self.running -= 1

    def _run(self, stage: JobStage, job: str, number: int) -> StageOutcome:
        try:
            record = self._store.get(job)
        except IngotError as error:
            if error.code not in (ErrorCode.ARTIFACT_UNTRUSTED, ErrorCode.INTERNAL):
                raise
            logger.warning("job %s is not taken: %s", job, error)
            return StageOutcome.STOP
        target = record.targets[number].target if number != WHOLE_JOB else ""
        about = {"ingot.job": record.id, "ingot.model": record.name, "ingot.target": target}
        if stage is JobStage.INGEST:
            TRACING.past("queue wait", record.trace, record.created, time.time(), **about)
        with saying(user=record.user), TRACING.span(f"stage {stage}", record.trace, "CONSUMER", **about):
            started = time.monotonic()
            outcome = self._leased(stage, record, number)
            logger.info(
                "stage %s%s: %s",
                stage,
                f" for {target}" if target else "",
                outcome.value,
                extra={EXTRA: {"seconds": round(time.monotonic() - started, 3)}},
            )
            return outcome

    def _leased(self, stage: JobStage, record: JobRecord, number: int) -> StageOutcome:
        job = record.id
        token = secrets.token_hex(8)
        if has_passed(record, number, stage) or not self._store.lease(job, number, token, self._lease_seconds):
            return StageOutcome.STOP
        self._counters.consumed(stage)
        with Heartbeat(self._store, job, number, token, self._lease_seconds) as heartbeat:
            record = self._store.get(job)
            if has_passed(record, number, stage) or self._service.end_late(
                record
            ):  # it passed while another one held the lease
                return StageOutcome.STOP
            return self._with_room(stage, record, number, heartbeat)

    def _with_room(self, stage: JobStage, record: JobRecord, number: int, heartbeat: Heartbeat) -> StageOutcome:
        """NOTE: only who holds the lease may say that nobody works on it."""
        namespace, own = record.source.namespace, member(record.id, number)
        if not self._slots.take(namespace, record.running_stages, own):
            self._put_off(record, number)
            return StageOutcome.STOP
        try:
            return self._attempt(stage, record, number, heartbeat)
        finally:
            self._slots.give(namespace, own)

    def _put_off(self, record: JobRecord, number: int) -> None:
        """It is sent again when that time has come."""
        self._store.change(record.id, number, leased=False, resume_at=time.time() + _LATER_SECONDS)

    # ---- one attempt, lease held

    def _attempt(self, stage: JobStage, record: JobRecord, number: int, heartbeat: Heartbeat) -> StageOutcome:
        self._mark_running(record, number, stage)
        self._note(record, number, stage, f"began on worker {self.name}")
        started = time.monotonic()
        try:
            with self._timed(record, stage):
                conclude = self._body(stage)(record, number, heartbeat)
            seconds = time.monotonic() - started
            self._note(record, number, stage, f"passed after {seconds:.2f} s")
            self._service.times.note(record, number, stage, seconds)
            self._store.change(record.id, number, passed=stage.value, tries=0)
            conclude()
            outcome = StageOutcome.CONTINUE
        except StoppedError:
            over = heartbeat.lost or heartbeat.cancelled or self._service.end_late(record)
            outcome = StageOutcome.STOP if over else StageOutcome.AGAIN
            if not over and not self._stopping.is_set():
                self._note(record, number, stage, "gives way to stages that measure nothing, and goes on later")
                self._put_off(record, number)
                outcome = StageOutcome.STOP
        except Exception as error:
            if isinstance(error, RedisError) or (isinstance(error, ForgottenError) and error.job == record.id):
                raise  # nothing can be said of the job now; it is found by time
            explained = explain(error, self._work)
            if explained.code is ErrorCode.INTERNAL and not isinstance(error, IngotError):
                logger.exception("stage %s of job %s failed", stage.value, record.id)
            self._failed(record, number, stage, explained)
            outcome = StageOutcome.STOP
        self._mark_idle(record, number)
        return outcome

    def _failed(self, record: JobRecord, number: int, stage: JobStage, error: IngotError) -> None:
        """What passes by itself is tried again later, by whoever then finds it due; anything else has failed."""
        own: JobRecord | TargetRecord = record if number == WHOLE_JOB else record.targets[number]
        wait = pause(error, self._store.count_failure(record.id, number, stage, error.code) - 1)
        if wait is None:
            self._note(record, number, stage, f"failed: {error}", "ERROR")
            self._service.fail(record.id, number, error)
            return
        self._service.tell(record, number, f"stage {stage.value!r} is tried again in {wait:g} s: {error}", stage)
        self._store.change(record.id, number, tries=own.tries + 1, resume_at=time.time() + wait, leased=False)

    def _note(self, record: JobRecord, number: int, stage: JobStage, text: str, level: str = "INFO") -> None:
        """For the log of the job alone: who watches it is told otherwise."""
        target = "" if number == WHOLE_JOB else record.targets[number].target
        self._store.log.add(record.id, Event("log", target, {"level": level, "text": text}, stage=stage.value))

    @contextmanager
    def _timed(self, record: JobRecord, stage: JobStage) -> Iterator[None]:
        """Count the seconds of a stage before anyone is told how it ended: a job that has finished is complete."""
        started = time.monotonic()
        try:
            yield
        finally:
            seconds = time.monotonic() - started
            self._store.add_seconds(record.id, stage, seconds)
            self._counters.stage_finished(stage, seconds)

    def _body(self, stage: JobStage) -> Body:
        return {
            JobStage.INGEST: self._ingest,
            JobStage.TUNE: self._tune,
            JobStage.BUILD: self._build,
            JobStage.VERIFY: self._verify,
            JobStage.PUBLISH: self._publish,
        }[stage]

    def _ingest(self, record: JobRecord, number: int, heartbeat: Heartbeat) -> Conclusion:
        """Import the model: what cannot be compiled is known before compile time is spent."""
        with self._directory(record) as work:
            answer = self._process("check", record, None, work, heartbeat)
        found = issues(read_check(answer))
        if found:
            more = f" (and {len(found) - 1} more: CheckModel lists them)" if len(found) > 1 else ""
            raise replace(found[0], message=found[0].message + more)
        return lambda: self._service.start_targets(self._store.get(record.id))

    def _tune(self, record: JobRecord, number: int, heartbeat: Heartbeat) -> Conclusion:
        seconds = seconds_left(self._store, record, number, self._runner.limits.seconds)
        if not seconds:
            return _nothing
        target, order = record.targets[number], replace(record, options={**record.options, "tune": seconds})
        with self._directory(record) as work, learning(self._tuning, self._store, record, number, work) as keep:
            self._process("tune", order, target, work, heartbeat, meanwhile=keep, stops=self._gives_way)
        return _nothing

    def _build(self, record: JobRecord, number: int, heartbeat: Heartbeat) -> Conclusion:
        target = record.targets[number]
        if self._compiled(record, number) is not None:
            return _nothing
        records = self._tuning.load(record.source, target_from_dict(target.spec))
        with self._directory(record) as work:
            self._prepare(record, target, work, heartbeat)
            (work / RECORDS).write_bytes(records)
            self._process("build", record, target, work, heartbeat)
            artifact = read_compiled(work / ARTIFACT, self._runner.limits.memory)
            require_made_for(record, number, artifact.manifest, self._key(record, number, records))
            self._repository.put_artifact(artifact, staged=True)
        self._store.update_target(record.id, number, artifact_key=artifact.manifest.key)
        return _nothing

    def _verify(self, record: JobRecord, number: int, heartbeat: Heartbeat) -> Conclusion:
        key = self._compiled(record, number)
        if key is None:
            raise IngotError(ErrorCode.INTERNAL, "there is no build to verify", remedy="Submit the job again.")
        if self._repository.find_artifact(key) is None:
            self._service.dispatch.require_verifiable(record, number)
            # A folder of its own, which the stage only reads: the weights in it may be a link to those in the store.
            target = record.targets[number]
            with self._directory(record) as work, self._directory(record) as given:
                if self._runner.emulator(target_from_dict(target.spec)) is not None:
                    self._prepare(record, target, work, heartbeat)
                report = self._write_staged(record, number, key, given / ARTIFACT)
                answer = self._process(VERIFY, record, target, work, heartbeat, given / ARTIFACT)
            self._repository.promote(key, report | {"verification": answer["report"]})
        return lambda: self._service.finish_target(record.id, number, JobState.SUCCEEDED, key)

    def _publish(self, record: JobRecord, number: int, heartbeat: Heartbeat) -> Conclusion:
        failed = next((target for target in record.targets if target.state is not JobState.SUCCEEDED), None)
        if failed is not None:
            error = failed.error or IngotError(ErrorCode.INTERNAL, "a target did not finish")
            if len(record.targets) > 1:
                error = replace(error, message=f"target {failed.target!r}: {error.message}")
            return lambda: self._service.finish_job(record.id, failed.state, error=error)
        keys = [target.artifact_key for target in record.targets]
        for target_number, key in enumerate(keys):
            manifest = self._repository.find_artifact(key)
            if manifest is not None:
                require_made_for(record, target_number, manifest)
        version = self._repository.publish(record.name, keys, record.id, record.labels, record.created, record.user)
        return lambda: self._service.finish_job(record.id, JobState.SUCCEEDED, version=version.number)

    # ---- parts

    def _write_staged(self, record: JobRecord, number: int, key: str, directory: Path) -> dict[str, Any]:
        """Write what the build left for the process that verifies it; its report. Nothing of it stays in memory."""
        opened = self._repository.open_artifact(key, staged=True)
        require_made_for(record, number, opened.manifest)
        write_artifact(directory, opened.to_artifact())
        return dict(opened.report)

    def _prepare(self, record: JobRecord, target: TargetRecord, work: Path, heartbeat: Heartbeat) -> None:
        """Once for each target and what is asked for beside code, in this process's life: the cache keeps it."""
        options = (str(record.options.get(name, "")) for name in ("bundle", "verification"))
        what = (json.dumps(dict(target.spec), sort_keys=True), *options)
        if what not in self._prepared:
            self._process(PREPARE, record, target, work, heartbeat)
            self._prepared.add(what)

    def _process(
        self,
        stage: str,
        record: JobRecord,
        target: TargetRecord | None,
        work: Path,
        heartbeat: Heartbeat,
        artifact: Path | None = None,
        meanwhile: Callable[[], None] = lambda: None,
        stops: Callable[[], bool] = lambda: False,
    ) -> Mapping[str, Any]:
        number = WHOLE_JOB if target is None else record.targets.index(target)
        request = {
            "stage": stage,
            "source": None if stage == PREPARE else request_source(self._sources.files(record.source)),
            "target": dict(target.spec) if target else None,
            "options": dict(record.options),
            "artifact": None if artifact is None else str(artifact),
        }
        with TRACING.span(f"process {stage}"):
            of_job = JobStage.INGEST if target is None else JobStage.BUILD if stage == PREPARE else stage
            events = ProgressEvents(self._store, record.id, number, target.target if target else "", of_job)

            def must_stop() -> bool:
                meanwhile()
                return self._stopping.is_set() or heartbeat.lost or heartbeat.cancelled or is_late(record) or stops()

            try:
                return self._runner.run(work, request, events, must_stop)
            except StageError as error:
                raise self._with_reproducer(error, record, number, work) from error
            finally:
                events.flush()
                events.end_stage()

    def _with_reproducer(self, error: StageError, record: JobRecord, number: int, work: Path) -> StageError:
        """``error``, which says how to get what shows the fault again, where the stage left it."""
        path = work / REPRODUCER
        if error.code is not ErrorCode.COMPILER_FAULT or not path.is_file() or path.stat().st_size > MOST_BYTES:
            return error
        self._reproducers.save(record.id, number, read_own(path, MOST_BYTES))
        remedy = f"{error.remedy} `ingot jobs {record.id} --reproducer` prints what shows it again.".strip()
        return replace(error, remedy=remedy)

    def _key(self, record: JobRecord, number: int, records: bytes) -> str:
        target = target_from_dict(record.targets[number].spec)
        return self._service.compiler.artifact_key(record.source, target, record.options, records)

    def _compiled(self, record: JobRecord, number: int) -> str | None:
        """Key of the artifact that an earlier delivery of the build stage left."""
        key = self._store.get(record.id).targets[number].artifact_key
        known = key and (self._repository.find_artifact(key) or self._repository.find_artifact(key, staged=True))
        return key if known else None

    def _mark_running(self, record: JobRecord, number: int, stage: JobStage) -> None:
        if record.state is JobState.QUEUED:
            self._store.update(record.id, state=JobState.RUNNING, started=time.time())
        now = time.time()
        running: dict[str, Any] = {"stage": stage, "leased": True, "worker": self.name, "resume_at": 0.0, "began": now}
        if number != WHOLE_JOB:
            running |= {"state": JobState.RUNNING, "done": 0, "total": 0}
        self._store.change(record.id, number, **running)

    def _mark_idle(self, record: JobRecord, number: int) -> None:
        self._store.change(record.id, number, leased=False)

    @contextmanager
    def _directory(self, record: JobRecord) -> Iterator[Path]:
        self._work.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f"{record.id}-", dir=self._work, ignore_cleanup_errors=True) as path:
            yield Path(path)


def _nothing() -> None:
    """The conclusion of a stage that only the next one looks at."""
