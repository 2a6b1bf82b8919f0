"""Runs a worker until it is told to stop."""

from __future__ import annotations

import logging
import os
import secrets
import signal
import socket
import threading
from collections.abc import Callable, Sequence

from celery.signals import worker_shutting_down
from redis.exceptions import RedisError

from compiler_service.boundary.privileges import hide
from compiler_service.boundary.state import say_standing, standing
from compiler_service.compiler.codegen.toolchain.emulation import this_machine
from compiler_service.jobs.clerk import Clerk, writes_of
from compiler_service.jobs.neighbours import Compiler
from compiler_service.jobs.reconciling import start_reconciling
from compiler_service.jobs.records import JobStage
from compiler_service.jobs.waiting.line import LINES
from compiler_service.settings import CompilerSettings
from compiler_service.wiring import STAGE_COMMAND, Parts, make_parts
from compiler_service.worker.app import CeleryQueue, make_app, queue_name, when_started
from compiler_service.worker.consuming import Consuming, start_process_anew
from compiler_service.worker.stages import StageWorker
from compiler_service.worker.tasks import register
from compiler_service.worker.transport import install
from compiler_service.worker.tuning import GivingWay
from compiler_service.worker.turns import WorkerTurns
from shared_ir.artifact.signature import OwnKey, fingerprint
from shared_ir.errors import IngotError
from shared_ir.machine.machine import Machine
from shared_ir.service_kit.telemetry.tracing import TRACING

logger = logging.getLogger(__name__)
_CHATTY = ("celery.worker.strategy", "celery.app.trace")
"""They tell of each task without its job, which has lines of ours."""

_LOOK_SECONDS = 2.0
"""Between two looks whether the key of a worker was revoked."""
_VERIFY = LINES[JobStage.VERIFY]
_TELL_OUTAGES = (
    "celery.worker.request",
    "celery.worker.consumer.consumer",
    "celery.app.trace",
    "kombu.transport.redis",
)


def run_worker(settings: CompilerSettings, compiler: Compiler, command: Sequence[str] = STAGE_COMMAND) -> int:
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
    install()
    for name in _TELL_OUTAGES:
        logging.getLogger(name).addFilter(_in_one_line)
    machine, lines = this_machine(), settings.queues.split(",")
    worker = make_stage_worker(parts, settings, stopping, machine)
    register(app, WorkerTurns(parts.service, worker, machine))

    def stop(**_: object) -> None:
        stopping.set()

    worker_shutting_down.connect(stop)
    start_reconciling(parts.service, stopping, settings.keep_jobs_seconds)
    consuming = Consuming(parts.service.store, worker, settings.workers, settings.liveness)
    _start("alive", say_alive, parts, settings, worker.name, machine if _VERIFY in lines else None, stopping)
    watch = (consuming.watch, stopping, lambda: start_process_anew(stopping))
    when_started(app, lambda: _start("consuming", *watch))
    registry, signer = parts.repository, parts.signer
    writes = writes_of(registry)
    Clerk(parts.service.store.redis, registry.store, parts.keys.order_trust, writes, signer.key_id).start(stopping)
    revoked = threading.Event()
    _start("revoked", end_when_revoked, signer, stopping, revoked)
    logger.info("signing key %s, %s", signer.key_id, fingerprint(signer.public))
    quiet = ["--without-gossip", "--without-mingle", "--without-heartbeat"]
    queues = ",".join([*map(queue_name, lines), *([queue_name(_VERIFY, machine.kind)] if _VERIFY in lines else ())])
    slots = f"--concurrency={settings.workers}"
    try:
        app.worker_main(["--quiet", "worker", "--loglevel=INFO", slots, "--pool=threads", f"--queues={queues}", *quiet])
    finally:
        TRACING.close()
        settings.liveness.unlink(missing_ok=True)
    if revoked.is_set():
        logger.critical("the worker has ended, since key %s was revoked", signer.key_id)
    return int(revoked.is_set())


def _start(name: str, act: Callable[..., None], *arguments: object) -> None:
    threading.Thread(target=act, args=arguments, name=name, daemon=True).start()


def _in_one_line(record: logging.LogRecord) -> bool:
    """Redis that is away needs no traceback of Celery's."""
    if record.exc_info and isinstance(record.exc_info[1], RedisError):
        record.exc_info = None
    return True


def make_stage_worker(
    parts: Parts, settings: CompilerSettings, stopping: threading.Event, machine: Machine | None = None
) -> StageWorker:
    """``machine`` is the one that it works on; None for one that can run everything."""
    return StageWorker(
        service=parts.service,
        counters=parts.counters,
        repository=parts.repository,
        sources=parts.sources,
        tuning=parts.tuning,
        runner=parts.runner,
        reproducers=parts.reproducers,
        work=settings.home / "work",
        lease_seconds=settings.lease_seconds,
        stopping=stopping,
        name=f"{socket.gethostname()}-{secrets.token_hex(4)}",
        gives_way=GivingWay.of_worker(parts.service.dispatch, settings.queues.split(","), machine),
    )


def end_when_revoked(key: OwnKey, stopping: threading.Event, revoked: threading.Event) -> None:
    """End the process as SIGTERM does, and set ``revoked``, once its key is trusted no longer: what it would sign nobody would take.
    When it is started again it says so, and does not start.

    It is looked twice: who replaces the folder as a whole leaves a moment in which it is not there.
    """
    looks = 0
    while not stopping.wait(_LOOK_SECONDS):
        try:
            looks = looks + 1 if key.is_revoked else 0
        except (IngotError, OSError) as error:
            logger.warning("cannot look whether the key of this worker is trusted: %s", error)
            continue
        if looks > 1:
            logger.critical("key %s of this worker was revoked: it hands on what it does, and ends", key.key_id)
            revoked.set()
            os.kill(os.getpid(), signal.SIGTERM)
            return


def say_alive(
    parts: Parts, settings: CompilerSettings, name: str, verifies: Machine | None, stopping: threading.Event
) -> None:
    """Say that this worker lives, what it can verify, and what holds of the boundary here. The word is forgotten before its leases are."""
    host, seconds = socket.gethostname(), settings.lease_seconds
    while True:
        try:
            parts.service.store.say_alive(name, seconds / 2)
            if verifies is not None:
                parts.service.dispatch.machines.say(verifies, seconds / 2)
            parts.counters.boundary_stands(host, standing(), seconds)
        except RedisError as error:
            logger.warning("cannot say that this worker lives: %s", error)
        if stopping.wait(seconds / 8):
            return
