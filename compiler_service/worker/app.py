"""The Celery application. Redis as broker, JSON, ids only, late acknowledgement, no results, no remote control."""

from __future__ import annotations

import base64
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from celery import Celery, bootsteps
from kombu.exceptions import OperationalError
from redis.exceptions import ConnectionError as RedisConnectionError

from compiler_service.jobs.neighbours import Addressed, Member
from compiler_service.jobs.records import WHOLE_JOB, JobStage
from compiler_service.jobs.waiting.line import LINES
from compiler_service.settings import CompilerSettings
from compiler_service.worker.transport import PatientConnection, PatientConsumer
from shared_ir.foreign_json import foreign_json
from shared_ir.service_kit.telemetry.tracing import TRACING

_QUEUE = "ingot"
QUEUES: Mapping[str, str] = {"compile": _QUEUE, "tune": f"{_QUEUE}.tune", "verify": f"{_QUEUE}.verify"}
"""Each line has a queue of its own: a message in it says that a stage waits there."""


def task_name(stage: JobStage) -> str:
    return f"ingot.{stage.value}"


def queue_name(line: str, kind: str = "") -> str:
    """Messages of a line to any worker, or to those on a kind of machine."""
    return f"{QUEUES[line]}.{kind}" if kind else QUEUES[line]


def make_app(settings: CompilerSettings) -> Any:
    """A Celery app, for a worker as well as for whoever only sends."""
    app = Celery("ingot", broker=settings.broker_url, set_as_current=False)
    app.amqp.Connection = PatientConnection
    app.conf.update(
        accept_content=["json"],
        task_serializer="json",
        result_serializer="json",
        result_backend=None,
        task_ignore_result=True,
        task_default_queue=_QUEUE,
        task_routes={task_name(stage): {"queue": QUEUES[line]} for stage, line in LINES.items()},
        # A worker that dies must not take its task along; every stage is idempotent and counts its deliveries.
        task_acks_late=True,
        task_reject_on_worker_lost=False,
        # Lost workers are found by their leases within seconds (jobs/service.py); this is only the last resort.
        broker_transport_options={"visibility_timeout": settings.visibility_seconds},
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        broker_channel_error_retry=True,
        worker_consumer=f"{PatientConsumer.__module__}:{PatientConsumer.__qualname__}",
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
    """Sends a message for each stage that waits. Whatever it is asked raises RedisError where the broker is away."""

    def __init__(self, app: Any) -> None:
        self._app = app

    def send(self, stage: JobStage, job: str, target: int, kind: str = "") -> None:
        arguments = (job,) if target == WHOLE_JOB else (job, target)
        queue = queue_name(LINES[stage], kind)
        with TRACING.span("queue send", kind="PRODUCER", **{"ingot.job": job}), _as_redis_says():
            self._app.signature(task_name(stage), args=arguments, immutable=True).apply_async(queue=queue)

    def waiting(self, kinds: Collection[str]) -> Mapping[Addressed, Sequence[Member]]:
        """Read where Redis keeps them, one list for each priority: the broker has no question for it."""
        found: dict[Addressed, Sequence[Member]] = {}
        asked = [(line, "") for line in QUEUES] + [(LINES[JobStage.VERIFY], kind) for kind in kinds]
        with _as_redis_says(), self._app.connection_for_read() as connection, connection.channel() as channel:
            for line, kind in asked:
                lists = [channel._q_for_pri(queue_name(line, kind), priority) for priority in channel.priority_steps]
                texts = [text for name in lists for text in channel.client.lrange(name, 0, -1)]
                found[line, kind] = tuple(filter(None, map(_addressee, texts)))
        return found


@contextmanager
def _as_redis_says() -> Iterator[None]:
    """A broker that is away is a Redis that is away: kombu has another name for it when it connects than when it is connected."""
    try:
        yield
    except OperationalError as error:
        raise RedisConnectionError(str(error)) from error


def _addressee(text: bytes) -> tuple[str, int] | None:
    """Whose stage a message asks for; None for what is no message of ours."""
    try:
        (job, *number), *_ = foreign_json(base64.b64decode(foreign_json(text)["body"]))
        return str(job), int(number[0]) if number else WHOLE_JOB
    except (ValueError, LookupError, TypeError):
        return None


def when_started(app: Any, act: Callable[[], None]) -> None:
    """Have the worker of ``app`` call ``act`` once it minds signals, whether or not the broker is there."""

    class Started(bootsteps.StartStopStep):  # type: ignore[misc]
        requires = frozenset({"celery.worker.components:Timer"})

        def start(self, parent: Any) -> None:
            act()

    app.steps["worker"].add(Started)
