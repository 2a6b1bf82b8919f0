"""The compiler service's gRPC server: ``python -m compiler_service.server``."""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from grpc_health.v1 import health_pb2, health_pb2_grpc
from prometheus_client import CollectorRegistry

from compiler_service.api.interceptors import ObservingInterceptor
from compiler_service.api.namespaces import NamespaceInterceptor
from compiler_service.api.permissions import SERVICE, scopes_of
from compiler_service.api.servicer import CompilerServicer
from compiler_service.api.traffic import Traffic
from compiler_service.boundary.privileges import hide
from compiler_service.boundary.state import say_standing
from compiler_service.catalogue import Catalogue, PipelineCompiler
from compiler_service.jobs.neighbours import Queue
from compiler_service.jobs.reconciling import start_reconciling
from compiler_service.jobs.watching import Watching
from compiler_service.keys import api_keys
from compiler_service.metrics import make_registry
from compiler_service.probes import Probes
from compiler_service.settings import CompilerSettings, variable
from compiler_service.store.sources import forget_local_uploads
from compiler_service.wiring import STAGE_COMMAND, Parts, make_parts
from compiler_service.worker.app import CeleryQueue, make_app
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.pb.ingot.compiler.v1 import compiler_pb2_grpc
from shared_ir.pb.pool import POOL, add_default_files
from shared_ir.service_kit.access.bearer import AccessInterceptor
from shared_ir.service_kit.access.gate import make_gate
from shared_ir.service_kit.calls.lanes import Lane
from shared_ir.service_kit.health import CHECK, WATCH, Health
from shared_ir.service_kit.health import SERVICE as HEALTH
from shared_ir.service_kit.http.hosts import Hosts
from shared_ir.service_kit.http.metrics import MetricsApplication
from shared_ir.service_kit.http1.limits import HttpLimits
from shared_ir.service_kit.http1.server import HttpServer
from shared_ir.service_kit.listening import CannotListen
from shared_ir.service_kit.memory.room import RequestRoom
from shared_ir.service_kit.rpc.server import RpcServer
from shared_ir.service_kit.starting import at_start, prepare_process
from shared_ir.service_kit.telemetry.call_log import CallLog
from shared_ir.service_kit.telemetry.log import say_why_not, start_log
from shared_ir.service_kit.telemetry.tracing import TRACING, start_tracing
from shared_ir.service_kit.tls import tls_files
from shared_ir.signals import StopSignals
from shared_ir.storage.files import write_atomically

MOST_MESSAGE_BYTES = 8 * 1024 * 1024
"""Largest gRPC message in bytes; models and artifacts travel in chunks."""

MOST_BYTES = 1 << 30
"""Of the messages that all calls hold together."""
_MOST_UPLOADS = 32
"""Uploads at once; for more, those that stand still are let go."""
_MOST_DOWNLOADS = 16
_MODEL_CHECKS, _WAITING_CHECKS = 2, 32
"""Models that are looked at at once, and those that wait for it: each takes a child, and time."""
_MOST_WATCHERS = 512
"""Of health, that come at once: they hold a thread while they begin."""
_SHORT_SECONDS = 0.05
"""Seconds for which a client may keep a thread waiting that other calls wait for, where messages are small."""

logger = logging.getLogger(__name__)


@dataclass
class RunningServer:
    """A server that listens. ``port`` and ``metrics_port`` are the real ones; -1 without metrics."""

    server: RpcServer
    health: Health
    stopping: threading.Event
    port: int
    metrics_port: int
    metrics: HttpServer | None
    watching: Watching

    def stop(self, drain_seconds: float) -> None:
        """Health says no, new calls are refused, streams end, running calls get ``drain_seconds``."""
        self.health.leave()
        self.stopping.set()
        self.watching.stop()
        self.server.stop(drain_seconds).wait()
        if self.metrics is not None:
            self.metrics.stop(1.0)


@at_start
def start_server(settings: CompilerSettings, catalogue: Catalogue, parts: Parts) -> RunningServer:
    """Listen on the addresses of ``settings``.

    Raises:
        IngotError: UNAVAILABLE when an address is taken; INVALID_ARGUMENT for unreadable TLS files.
    """
    stopping = threading.Event()
    registry = make_registry(parts.service.store, parts.counters)
    gate = make_gate(settings.token, settings.tokens_file)

    def name_of_job(job: str) -> str:
        return parts.service.get(job).name

    server = RpcServer(
        _lanes(settings.max_watchers),
        RequestRoom(MOST_BYTES),
        MOST_MESSAGE_BYTES,
        [
            AccessInterceptor(gate, scopes_of),
            ObservingInterceptor(registry, gate),
            NamespaceInterceptor(gate, name_of_job),
        ],
        CallLog(tells_all=True),
    )
    servicer = CompilerServicer(parts, catalogue, settings, stopping, gate, Traffic(registry))
    compiler_pb2_grpc.add_CompilerServiceServicer_to_server(servicer, server)
    health = Health()
    health_pb2_grpc.add_HealthServicer_to_server(health, server)
    add_default_files(health_pb2.DESCRIPTOR)
    server.reflect((SERVICE, HEALTH), POOL)
    port = _bind(server, settings)
    metrics = _serve_metrics(settings, registry, health)
    server.start()
    Probes(settings.redis_url, parts.repository.store, health, registry).start(stopping)
    return RunningServer(server, health, stopping, port, metrics.port if metrics else -1, metrics, servicer.watching)


def _lanes(watchers: int) -> Callable[[str], Lane]:
    """Threads by kinds of calls, so that uploads, which clients may draw out, take none from the others."""
    questions, uploads = (
        Lane("questions", 16, _SHORT_SECONDS, is_paced=True),
        Lane("uploads", _MOST_UPLOADS, is_paced=True),
    )
    downloads, checks = Lane("downloads", _MOST_DOWNLOADS, is_paced=True), Lane("checks", 4, _SHORT_SECONDS)
    watches = Lane("watches", 16, most_waiting=watchers)  # they hold a thread while they begin
    lanes = {CHECK: checks, WATCH: Lane("watchers", 2, most_waiting=_MOST_WATCHERS), f"/{SERVICE}/UploadModel": uploads}
    lanes |= {f"/{SERVICE}/WatchJob": watches, f"/{SERVICE}/DownloadArtifact": downloads}
    lanes[f"/{SERVICE}/CheckModel"] = Lane("model-checks", _MODEL_CHECKS, most_waiting=_WAITING_CHECKS)
    return lambda method: lanes.get(method, questions)


def _bind(server: RpcServer, settings: CompilerSettings) -> int:
    address = f"{settings.compiler_host}:{settings.compiler_port}"
    files = tls_files(settings.tls_certificate, settings.tls_key, settings.tls_client_ca)
    try:
        return server.bind(address, files)
    except CannotListen as error:
        raise _taken(address, "INGOT_COMPILER_PORT") from error


def _serve_metrics(settings: CompilerSettings, registry: CollectorRegistry, health: Health) -> HttpServer | None:
    """The HTTP server of ``/metrics``; None where the settings turn it off."""
    if settings.compiler_metrics_port < 0:
        return None
    address = f"{settings.compiler_host}:{settings.compiler_metrics_port}"
    application = MetricsApplication(registry, Hosts.parse(settings.compiler_hosts, variable("compiler_hosts")))
    try:
        server = HttpServer(application, address, HttpLimits(max_connections=64))
    except IngotError as error:
        raise _taken(address, "INGOT_COMPILER_METRICS_PORT") from error
    server.start()
    return server


def _taken(address: str, variable: str) -> IngotError:
    remedy = (
        f"Choose another port with {variable}, or 0 for a free one; INGOT_COMPILER_HOST is an address of this machine."
    )
    return IngotError(ErrorCode.UNAVAILABLE, f"cannot listen on {address}", remedy=remedy)


def serve(
    settings: CompilerSettings,
    catalogue: Catalogue,
    queue: Queue,
    ready_file: Path | None = None,
    command: Sequence[str] = STAGE_COMMAND,
) -> int:
    """Serve until SIGTERM or SIGINT. ``ready_file`` gets the addresses as JSON once the server listens."""
    hide()
    parts = make_parts(settings, catalogue, queue, command, api_keys(settings))
    forget_local_uploads(settings.home / "uploads")
    say_standing(logger)
    running = start_server(settings, catalogue, parts)
    start_reconciling(parts.service, running.stopping, settings.keep_jobs_seconds, is_api=True)
    signals = StopSignals()
    if settings.compiler_host not in ("127.0.0.1", "::1", "localhost") and not (settings.token or settings.api_tokens):
        logger.warning("listening on %s without a token: anyone who reaches it may compile", settings.compiler_host)
    logger.info("compiler service on %s:%d", settings.compiler_host, running.port)
    if ready_file is not None:
        address = f"{settings.compiler_host}:{running.port}"
        metrics = f"{settings.compiler_host}:{running.metrics_port}" if running.metrics_port >= 0 else ""
        write_atomically(ready_file, json.dumps({"address": address, "metrics": metrics}).encode())
    signals.wait()
    logger.info("stopping")
    running.stop(settings.drain_seconds)
    TRACING.close()
    return 0


def main(arguments: Sequence[str] | None = None, *, is_whole: bool = False) -> int:
    """``is_whole`` as in :func:`shared_ir.service_kit.telemetry.log.start_log`."""
    parser = argparse.ArgumentParser(
        prog="python -m compiler_service.server",
        description="The compiler service. Settings are INGOT_* environment variables (compiler_service/settings.py).",
    )
    parser.add_argument("--port", type=int, help="instead of INGOT_COMPILER_PORT; 0 takes a free port")
    parser.add_argument("--metrics-port", type=int, help="instead of INGOT_COMPILER_METRICS_PORT")
    parser.add_argument("--ready-file", type=Path, help="where to write the addresses as JSON once it listens")
    given = parser.parse_args(arguments)
    prepare_process()
    try:
        start_log("compiler-api", is_whole=is_whole)
        start_tracing("compiler-api")
        instead = {"compiler_port": given.port, "compiler_metrics_port": given.metrics_port}
        chosen = {variable(name): str(port) for name, port in instead.items() if port is not None}
        settings = CompilerSettings.from_environment(os.environ | chosen)
        return serve(settings, PipelineCompiler(), CeleryQueue(make_app(settings)), given.ready_file)
    except IngotError as error:
        say_why_not(error)
        return 1


if __name__ == "__main__":
    sys.exit(main(is_whole=True))
