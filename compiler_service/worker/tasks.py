"""The Celery tasks: thin, one per stage, called with ids."""

from __future__ import annotations

import logging
from typing import Any

from celery.exceptions import Ignore
from redis.exceptions import RedisError

from compiler_service.jobs.records import WHOLE_JOB, JobStage
from compiler_service.worker.app import task_name
from compiler_service.worker.turns import WorkerTurns

logger = logging.getLogger(__name__)


def register(app: Any, turns: WorkerTurns) -> None:
    """Add a task for every stage to ``app``."""
    for stage in JobStage:
        app.task(_task(stage, turns), name=task_name(stage), bind=True)


def _task(stage: JobStage, turns: WorkerTurns) -> Any:
    def run(task: Any, job: str, number: int = WHOLE_JOB) -> None:
        try:
            turns.work(stage, job, number)
        except RedisError as error:
            logger.warning("stage %s of job %s is left as it is: %s", stage.value, job, error)
        raise Ignore  # a version before this one sends all stages of a target as one chain; here each sends the next

    return run
