"""Runs a worker until it is told to stop."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Sequence

from celery.signals import worker_shutting_down
from redis.exceptions import RedisError

from compiler_service.boundary.privileges import hide
from compiler_service.boundary.state import say_standing, standing
from compiler_service.jobs.clerk import Clerk, writes_of
from compiler_service.jobs.service import Compiler
from compiler_service.settings import Settings
from compiler_service.wiring import STAGE_COMMAND, Parts, make_parts
from compiler_service.worker.app import CeleryQueue, add_liveness, make_app
from compiler_service.worker.stages import StageWorker
from compiler_service.worker.tasks import register
from shared_ir.artifact.signature import fingerprint
from shared_ir.errors import IngotError
from shared_ir.service_kit.telemetry.tracing import TRACING

logger = logging.getLogger(__name__)
_CHATTY = ("celery.worker.strategy", "celery.app.trace")
"""They tell of each task without its job, which has lines of ours."""


def run_worker(settings: Settings, compiler: Compiler, command: Sequence[str] = STAGE_COMMAND) -> int:
    """Serve stages until SIGTERM or SIGINT; stages under way are then handed to another worker.

    Args:
        command: what starts the process of a stage.
    """
    for name in _CHATTY:
        logging.getLogger(name).setLevel(logging.WARNING)
    app, stopping = make_app(settings), threading.Event()
    hide()
    parts = make_parts(settings, compiler, CeleryQueue(app), command)
    say_standing(logger)
    register(app, make_stage_worker(parts, settings, stopping))
    add_liveness(app, settings.liveness)

    def stop(**_: object) -> None:
        stopping.set()

    worker_shutting_down.connect(stop)
    reaper = threading.Thread(target=reap_forever, args=(parts, settings, stopping), daemon=True, name="reaper")
    reaper.start()
    store, signer = parts.service.store, parts.signer
    Clerk(store.redis, parts.keys.order_trust, writes_of(parts.repository), signer.key_id).start(stopping)
    logger.info("signing key %s, %s", signer.key_id, fingerprint(signer.public))
    quiet = ["--without-gossip", "--without-mingle", "--without-heartbeat"]
    try:
        app.worker_main(
            ["--quiet", "worker", "--loglevel=INFO", f"--concurrency={settings.workers}", "--pool=threads", *quiet]
        )
    finally:
        TRACING.close()
    return 0


def make_stage_worker(parts: Parts, settings: Settings, stopping: threading.Event) -> StageWorker:
    return StageWorker(
        service=parts.service,
        counters=parts.counters,
        repository=parts.repository,
        sources=parts.sources,
        tuning=parts.tuning,
        runner=parts.runner,
        work=settings.home / "work",
        lease_seconds=settings.lease_seconds,
        stopping=stopping,
    )


def reap_forever(parts: Parts, settings: Settings, stopping: threading.Event) -> None:
    """Find stages whose worker was lost, which one worker of all does at a time; say what holds of the boundary here."""
    service, machine = parts.service, socket.gethostname()
    every = settings.lease_seconds / 4
    while not stopping.wait(every):
        try:
            parts.counters.boundary_stands(machine, standing(), settings.lease_seconds)
            if service.store.claim("reaper", every * 0.9):
                service.reap()
        except (RedisError, IngotError) as error:
            logger.warning("cannot look for lost stages: %s", error)
