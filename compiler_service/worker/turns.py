"""From a message to the stage whose turn it is, and from there to the next one."""

from __future__ import annotations

from dataclasses import dataclass

from compiler_service.jobs.due import due, has_passed
from compiler_service.jobs.records import WHOLE_JOB, JobRecord, JobStage
from compiler_service.jobs.service import JobService
from compiler_service.jobs.waiting.line import Waiting
from compiler_service.worker.stage_outcome import StageOutcome
from compiler_service.worker.stages import StageWorker
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.machine.machine import Machine
from shared_ir.service_kit.telemetry.fields import saying


@dataclass(frozen=True)
class WorkerTurns:
    """Has ``worker`` do what waits in the lines of ``service``, as far as ``machine`` can run what it is about; None for one that can
    run everything."""

    service: JobService
    worker: StageWorker
    machine: Machine | None = None

    def work(self, stage: JobStage, job: str, number: int = WHOLE_JOB) -> StageOutcome:
        """A message says that this stage waits: do what goes first of its line, and send what comes after that. Raises RedisError."""
        found = self._next(stage, job, number)
        if found is None:
            return StageOutcome.STOP
        stage, job, number = found
        with saying(job=job, stage=stage.value):
            try:
                outcome = self.worker.run(stage, job, number)
            finally:
                self.service.dispatch.line.leave(stage, job, number)
            if outcome is StageOutcome.AGAIN or (outcome is StageOutcome.CONTINUE and number != WHOLE_JOB):
                self._send_on(job, number)
            return outcome

    def _next(self, stage: JobStage, job: str, number: int) -> Waiting | None:
        """NOTE: a version before this one sends messages and leaves the lines alone; those are about what they say."""
        while (found := self.service.dispatch.take(stage, self.machine)) is not None:
            if self._stands(*found):
                return found
            self.service.dispatch.line.leave(*found)
        return (stage, job, number) if stage is not JobStage.VERIFY or self._may_do(job, number, stage) else None

    def _may_do(self, job: str, number: int, stage: JobStage) -> bool:
        try:
            return self.service.dispatch.may_do(self.service.store.get(job), number, stage, self.machine)
        except IngotError:
            return False

    def _stands(self, stage: JobStage, job: str, number: int) -> bool:
        record = self._record(job)
        return record is not None and not (has_passed(record, number, stage) or self.service.store.leased(job, number))

    def _record(self, job: str) -> JobRecord | None:
        """None of a job that is forgotten, or was while its stage ran, or that nobody may trust."""
        try:
            return self.service.store.get(job)
        except IngotError as error:
            if error.code not in (ErrorCode.NOT_FOUND, ErrorCode.ARTIFACT_UNTRUSTED):
                raise
            return None

    def _send_on(self, job: str, number: int) -> None:
        record = self._record(job)
        if record is None:
            return
        for own in due(record):
            if own.number == number:
                self.service.dispatch.send(record, number, own.stage)
