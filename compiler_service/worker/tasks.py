"""The Celery tasks: thin, one per stage, called with ids."""

from __future__ import annotations

from typing import Any

from celery.exceptions import Ignore

from compiler_service.jobs.records import WHOLE_JOB, JobStage
from compiler_service.worker.app import task_name
from compiler_service.worker.stages import Outcome, StageWorker
from shared_ir.service_kit.telemetry.fields import saying

LATER_SECONDS = 2.0
"""Until a stage is asked for again that its namespace has no room for."""


def register(app: Any, worker: StageWorker) -> None:
    """Add a task for every stage to ``app``."""
    for stage in JobStage:
        app.task(_task(stage, worker), name=task_name(stage), bind=True)


def _task(stage: JobStage, worker: StageWorker) -> Any:
    def run(task: Any, job: str, number: int = WHOLE_JOB) -> None:
        with saying(job=job, stage=stage.value):
            outcome = worker.run(stage, job, number)
        if outcome is Outcome.AGAIN:
            task.apply_async(args=(job,) if number == WHOLE_JOB else (job, number), chain=task.request.chain)
        if outcome is Outcome.LATER:
            arguments = (job,) if number == WHOLE_JOB else (job, number)
            task.apply_async(args=arguments, chain=task.request.chain, countdown=LATER_SECONDS)
        if outcome is not Outcome.CONTINUE:
            raise Ignore  # ends the chain; the job's record says why

    return run
