"""The Celery application. Redis as broker, JSON, ids only, late acknowledgement, no results, no remote control."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from celery import Celery, bootsteps, chain

from compiler_service.jobs.records import WHOLE_JOB, JobStage
from compiler_service.settings import Settings
from shared_ir.service_kit.telemetry.tracing import TRACING

QUEUE = "ingot"
LIVENESS_SECONDS = 5.0


def task_name(stage: JobStage) -> str:
    return f"ingot.{stage.value}"


def make_app(settings: Settings) -> Any:
    """A Celery app, for a worker as well as for whoever only sends."""
    app = Celery("ingot", broker=settings.broker_url, set_as_current=False)
    app.conf.update(
        accept_content=["json"],
        task_serializer="json",
        result_serializer="json",
        result_backend=None,
        task_ignore_result=True,
        task_default_queue=QUEUE,
        # A worker that dies must not take its task along; every stage is idempotent and counts its deliveries.
        task_acks_late=True,
        task_reject_on_worker_lost=False,
        # Lost workers are found by their leases within seconds (jobs/service.py); this is only the last resort.
        broker_transport_options={"visibility_timeout": settings.visibility_seconds},
        broker_connection_retry_on_startup=True,
        worker_prefetch_multiplier=1,
        worker_enable_remote_control=False,
        worker_send_task_events=False,
        task_send_sent_event=False,
        worker_hijack_root_logger=False,
        # Stages are processes of their own with their own limits; the pool only waits for them. Threads, because
        # forking a process that has used gRPC or an object store's client is not safe.
        worker_pool="threads",
        worker_concurrency=settings.workers,
    )
    return app


class CeleryQueue:
    """Sends stages as a Celery chain."""

    def __init__(self, app: Any) -> None:
        self._app = app

    def send(self, stages: Sequence[JobStage], job: str, target: int) -> None:
        signatures = [self._signature(stage, job, target) for stage in stages]
        with TRACING.span("queue send", kind="PRODUCER", **{"ingot.job": job}):
            chain(*signatures, app=self._app).apply_async()

    def _signature(self, stage: JobStage, job: str, target: int) -> Any:
        arguments = (job,) if target == WHOLE_JOB else (job, target)
        return self._app.signature(task_name(stage), args=arguments, immutable=True)


def add_liveness(app: Any, path: Path) -> None:
    """Touch ``path`` from the worker's consumer loop: a probe that looks at its age sees a loop that hangs."""

    class Liveness(bootsteps.StartStopStep):  # type: ignore[misc]
        requires = frozenset({"celery.worker.components:Timer"})

        def __init__(self, parent: Any, **options: Any) -> None:
            self.timer: Any = None

        def start(self, parent: Any) -> None:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
            self.timer = parent.timer.call_repeatedly(LIVENESS_SECONDS, path.touch, priority=10)

        def stop(self, parent: Any) -> None:
            if self.timer is not None:
                self.timer.cancel()
            path.unlink(missing_ok=True)

    app.steps["worker"].add(Liveness)
