"""The gRPC servicer: decode, call, encode."""

from __future__ import annotations

import logging
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import grpc
from redis.exceptions import RedisError

from compiler_service.api import converters
from compiler_service.api.answers import answered, typed
from compiler_service.api.pages import Messages
from compiler_service.api.registry import RegistryServicer
from compiler_service.api.reports import VerificationReports
from compiler_service.api.traffic import Traffic
from compiler_service.catalogue import Catalogue
from compiler_service.jobs.clerk import signing_key_id
from compiler_service.jobs.history.pages import JobPages
from compiler_service.jobs.records import Event, JobRecord, Orderer
from compiler_service.jobs.watching import Watching
from compiler_service.settings import CompilerSettings
from compiler_service.stages.checked import read_check
from compiler_service.stages.runner import StoppedError
from compiler_service.store.sources import Look, accept, request_source
from compiler_service.wiring import Parts
from shared_ir.artifact.signature import public_pem
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.pb.ingot.compiler.v1 import compiler_pb2 as pb
from shared_ir.registry.pages import LARGEST_SIZE, page_size
from shared_ir.service_kit.access.gate import Gate
from shared_ir.service_kit.access.namespace import Namespace
from shared_ir.service_kit.access.principal import Principal, TokenScope
from shared_ir.service_kit.calls.lanes import peer_name
from shared_ir.service_kit.calls.outlet import Attach, Outlet, detached
from shared_ir.service_kit.telemetry.fields import say
from shared_ir.service_kit.telemetry.tracing import TRACING

logger = logging.getLogger(__name__)


class CompilerServicer(RegistryServicer):
    """``ingot.compiler.v1.CompilerService``.

    Args:
        stopping: set when the server stops; streams end then.
        gate: who calls.
        traffic: where what clients move is counted.
    """

    def __init__(
        self,
        parts: Parts,
        catalogue: Catalogue,
        settings: CompilerSettings,
        stopping: threading.Event,
        gate: Gate,
        traffic: Traffic,
    ) -> None:
        self._traffic = traffic
        self._gate = gate
        self._parts = parts
        self._jobs = parts.service
        self._pages = JobPages(parts.service.store)
        self._repository = parts.repository
        self._reports = VerificationReports(parts.repository)
        self._catalogue = catalogue
        self._settings = settings
        self._stopping = stopping
        self._watching = Watching(parts.service.store, parts.service.get, settings.max_watchers)
        traffic.count_watchers(lambda: len(self._watching))

    @property
    def watching(self) -> Watching:
        """Those who watch jobs; they have to be stopped before the server is."""
        return self._watching

    def _model_of(self, request: Any) -> str:
        id = getattr(request, "id", "")
        return self._jobs.get(id).name if id else super()._model_of(request)

    # ---- models in

    @answered
    def QueryUpload(self, request: pb.QueryUploadRequest, context: grpc.ServicerContext) -> pb.QueryUploadResponse:
        namespace = self._caller(context).namespace
        received, complete = self._parts.sources.received(request.sha256, request.size, namespace)
        return pb.QueryUploadResponse(received=received, complete=complete)

    @answered
    def UploadModel(
        self, request: Iterator[pb.UploadModelRequest], context: grpc.ServicerContext
    ) -> pb.UploadModelResponse:
        first = next(request, None)
        if first is None or first.WhichOneof("part") != "header":
            raise IngotError(ErrorCode.INVALID_ARGUMENT, "an upload starts with a header", field="header")
        caller = self._caller(context)
        upload = converters.upload_from_pb(first.header, caller)
        self._parts.sources.check(upload)
        look = self._look(first.header)
        size = self._parts.sources.receive(upload, self._traffic.upload(_chunks(request)), look)
        return pb.UploadModelResponse(sha256=upload.sha256, size=size)

    @answered
    def CheckModel(self, request: pb.CheckModelRequest, context: grpc.ServicerContext) -> pb.CheckModelResponse:
        source = converters.source_from_pb(request.source, self._caller(context).namespace)
        options = self._catalogue.normalise_options(converters.options_from_pb(request.options))
        self._parts.sources.require(source)
        files = request_source(self._parts.sources.files(source))
        order = {"stage": "check", "source": files, "target": None, "options": dict(options)}
        try:
            with tempfile.TemporaryDirectory(prefix="check-", dir=_made(self._settings.home / "work")) as work:
                answer = self._parts.runner.run(Path(work), order, _ignore, lambda: not context.is_active())
        except StoppedError as error:
            raise IngotError(ErrorCode.CANCELLED, "the check was cancelled") from error
        return converters.check_to_pb(read_check(answer))

    # ---- jobs

    @answered
    def Compile(self, request: pb.CompileRequest, context: grpc.ServicerContext) -> pb.CompileResponse:
        caller = self._caller(context)
        if request.labels:
            caller.require(TokenScope.LABEL)
        submission = converters.submission_from_pb(request, caller.namespace)
        record = self._jobs.submit(_orderer(caller).order(submission))
        say(job=record.id)
        return pb.CompileResponse(job=self._reports.verified(converters.job_to_pb(record)))

    @answered
    def GetJob(self, request: pb.GetJobRequest, context: grpc.ServicerContext) -> pb.Job:
        say(job=request.id)
        record = self._jobs.get(request.id)
        return self._reports.verified(converters.job_to_pb(record, self._jobs.times.left(record)))

    @answered
    def ListJobs(self, request: pb.ListJobsRequest, context: grpc.ServicerContext) -> pb.ListJobsResponse:
        chosen = converters.job_filter_from_pb(request, Namespace(self._caller(context).namespace).stored(""))
        size, messages = page_size(request.page_size or request.limit), Messages(converters.listed_job)
        page = self._pages.page(size, request.page_token, chosen, messages.weigh)
        return pb.ListJobsResponse(jobs=messages.of(page), next_page_token=page.token)

    @detached
    @answered
    def WatchJob(self, request: pb.WatchJobRequest, context: grpc.ServicerContext) -> Attach:
        say(job=request.id)

        def attach(outlet: Outlet) -> None:
            try:
                watcher = self._watching.add(request.id, request.after, _JobListener(outlet), peer_name(context))
            except Exception as error:
                raise typed(error) from error
            if not context.add_callback(lambda: self._watching.remove(watcher)):
                self._watching.remove(watcher)

        return attach

    @answered
    def CancelJob(self, request: pb.CancelJobRequest, context: grpc.ServicerContext) -> pb.Job:
        say(job=request.id)
        return self._reports.verified(converters.job_to_pb(self._jobs.cancel(request.id)))

    @answered
    def RetryJob(self, request: pb.RetryJobRequest, context: grpc.ServicerContext) -> pb.Job:
        say(job=request.id)
        caller = self._caller(context)
        if self._jobs.get(request.id).labels:
            caller.require(TokenScope.LABEL)
        record = self._jobs.retry(request.id, _orderer(caller))
        return self._reports.verified(converters.job_to_pb(record))

    @answered
    def GetJobLog(self, request: pb.GetJobLogRequest, context: grpc.ServicerContext) -> pb.GetJobLogResponse:
        job, size = self._jobs.get(request.id).id, page_size(request.page_size or LARGEST_SIZE)
        page = self._jobs.logs.page(job, size, request.page_token, request.stage, request.target)
        lines = [converters.log_line_to_pb(line) for line in page.items]
        return pb.GetJobLogResponse(lines=lines, next_page_token=page.token)

    @answered
    def GetReproducer(
        self, request: pb.GetReproducerRequest, context: grpc.ServicerContext
    ) -> pb.GetReproducerResponse:
        job = self._jobs.get(request.id).id
        return pb.GetReproducerResponse(text=self._parts.reproducers.load(job, request.target))

    # ---- the service itself

    @answered
    def GetCapabilities(self, request: pb.GetCapabilitiesRequest, context: grpc.ServicerContext) -> pb.Capabilities:
        pem, key_id = self._signing_key()
        return converters.capabilities_to_pb(self._catalogue, self._settings.max_model_bytes, pem, key_id)

    @answered
    def ListTargets(self, request: pb.ListTargetsRequest, context: grpc.ServicerContext) -> pb.ListTargetsResponse:
        return converters.targets_to_pb(self._catalogue)

    def _signing_key(self) -> tuple[bytes, str]:
        """What clients may trust: of the trusted keys that which workers say that they sign with; nothing where none is known."""
        keys = self._parts.keys
        if keys.signer is not None:
            return public_pem(keys.signer.public), keys.signer.key_id
        known = keys.trust.keys
        try:
            said = signing_key_id(self._jobs.store.redis)
        except RedisError:
            said = ""
        found = said if said in known else next(iter(known)) if len(known) == 1 else ""
        return (public_pem(known[found]), found) if found else (b"", "")

    def _look(self, header: pb.UploadHeader) -> Look:
        """What looks at the bytes of a file: refuses what its header says already."""
        if not converters.is_model(header):
            return accept
        arriving = self._catalogue.arriving(header.size)
        arriving.declared(header.ir_version, header.opsets)
        return arriving.feed


class _JobListener:
    """Sends events to the client of a call."""

    def __init__(self, outlet: Outlet) -> None:
        self._outlet = outlet

    def tell(self, event: Event, record: JobRecord) -> bool:
        try:
            message = converters.event_to_pb(event, record)
        except (
            ValueError,
            TypeError,
            OverflowError,
        ) as error:  # one that no message can hold: those behind it are told
            logger.warning("an event of job %s cannot be told: %s", record.id, error)
            return True
        return self._outlet.send(message)

    @property
    def outstanding(self) -> int:
        return self._outlet.outstanding

    def when_taken(self, action: Callable[[], None]) -> None:
        self._outlet.when_drained(action)

    def end(self, error: IngotError | None) -> None:
        self._outlet.end(error)


def _orderer(caller: Principal) -> Orderer:
    return Orderer(caller.user, TRACING.here(), caller.quota.running_stages, caller.quota.jobs)


def _chunks(requests: Iterable[pb.UploadModelRequest]) -> Iterator[bytes]:
    for request in requests:
        if request.WhichOneof("part") != "chunk":
            raise IngotError(ErrorCode.INVALID_ARGUMENT, "a header came in the middle of an upload", field="header")
        yield request.chunk


def _made(directory: Path) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    return directory


def _ignore(message: Any) -> None:
    """Progress of a check is not reported."""
