"""What an unfinished job waits for, told from its record alone."""

from __future__ import annotations

from dataclasses import dataclass

from compiler_service.jobs.records import TARGET_STAGES, WHOLE_JOB, JobRecord, JobStage, TargetRecord


@dataclass(frozen=True)
class Due:
    """The stage that is to be run next, of target ``number`` or of the whole job.

    ``leased``, ``worker``, ``tries`` and ``resume_at`` are as in the record.
    """

    number: int
    stage: JobStage
    leased: bool
    worker: str
    tries: int
    resume_at: float


def due(record: JobRecord) -> tuple[Due, ...]:
    """Nothing for a finished job, and nothing for targets that wait for the compilation of another job."""
    if record.state.finished:
        return ()
    if all(target.state.finished for target in record.targets):
        return (_of(record, WHOLE_JOB, JobStage.PUBLISH),)
    own = [n for n, target in enumerate(record.targets) if not target.state.finished and not target.follows]
    if own and not record.passed:
        return (_of(record, WHOLE_JOB, JobStage.INGEST),)
    return tuple(_of(record.targets[n], n, remaining(record, n)[0]) for n in own)


def remaining(record: JobRecord, number: int) -> tuple[JobStage, ...]:
    """The stages of a target that have not passed; the last one where all have, whose conclusion was not drawn."""
    stages = tuple(s for s in TARGET_STAGES if s is not JobStage.TUNE or record.options.get("tune"))
    passed = record.targets[number].passed
    return stages[stages.index(JobStage(passed)) + 1 :] or stages[-1:] if passed in stages else stages


def has_passed(record: JobRecord, number: int, stage: JobStage) -> bool:
    """Whether the output of a stage exists, so that a second delivery of it has nothing to do."""
    if number == WHOLE_JOB:
        return record.state.finished or (stage is JobStage.INGEST and bool(record.passed))
    target = record.targets[number]
    return record.state.finished or target.state.finished or stage not in remaining(record, number)


def _of(own: JobRecord | TargetRecord, number: int, stage: JobStage) -> Due:
    return Due(number, stage, own.leased, own.worker, own.tries, own.resume_at)
