"""The Celery tasks: thin, one per stage, called with ids."""

from __future__ import annotations

import logging
from typing import Any

from celery.exceptions import Ignore
from redis.exceptions import RedisError

from compiler_service.jobs.records import WHOLE_JOB, JobStage
from compiler_service.worker.app import task_name
from compiler_service.worker.stages import Outcome, StageWorker
from shared_ir.service_kit.telemetry.fields import saying

logger = logging.getLogger(__name__)


def register(app: Any, worker: StageWorker) -> None:
    """Add a task for every stage to ``app``."""
    for stage in JobStage:
        app.task(_task(stage, worker), name=task_name(stage), bind=True)


def _task(stage: JobStage, worker: StageWorker) -> Any:
    def run(task: Any, job: str, number: int = WHOLE_JOB) -> None:
        try:
            with saying(job=job, stage=stage.value):
                outcome = worker.run(stage, job, number)
        except RedisError as error:
            logger.warning("stage %s of job %s is left as it is: %s", stage.value, job, error)
            raise Ignore from error  # the reconciler finds it
        if outcome is Outcome.AGAIN:
            task.apply_async(args=(job,) if number == WHOLE_JOB else (job, number), chain=task.request.chain)
        if outcome is not Outcome.CONTINUE:
            raise Ignore  # ends the chain; the job's record says why

    return run
