"""The gRPC servicer: decode, call, encode."""

from __future__ import annotations

import logging
import tempfile
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import grpc

from compiler_service.api import converters
from compiler_service.api.answers import answered, streamed
from compiler_service.api.registry import RegistryServicer
from compiler_service.api.reports import Reports
from compiler_service.catalogue import Catalogue
from compiler_service.jobs.records import Event
from compiler_service.settings import Settings
from compiler_service.stages.runner import StoppedError
from compiler_service.store.sources import request_source
from compiler_service.wiring import Parts
from shared_ir.artifact.signature import public_pem
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.pb.ingot.compiler.v1 import compiler_pb2 as pb

MOST_CHECKS_AT_ONCE = 2
"""CheckModel calls that run at once."""
POLL_SECONDS = 1.0
"""How often a watcher looks whether its client is still there."""

logger = logging.getLogger(__name__)


class CompilerServicer(RegistryServicer):
    """``ingot.compiler.v1.CompilerService``.

    Args:
        stopping: set when the server stops; streams end then.
    """

    def __init__(self, parts: Parts, catalogue: Catalogue, settings: Settings, stopping: threading.Event) -> None:
        self._parts = parts
        self._jobs = parts.service
        self._repository = parts.repository
        self._reports = Reports(parts.repository)
        self._catalogue = catalogue
        self._settings = settings
        self._stopping = stopping
        self._watchers = threading.BoundedSemaphore(settings.max_watchers)
        self._checks = threading.BoundedSemaphore(MOST_CHECKS_AT_ONCE)

    # ---- models in

    @answered
    def QueryUpload(self, request: pb.QueryUploadRequest, context: grpc.ServicerContext) -> pb.QueryUploadResponse:
        received, complete = self._parts.sources.received(request.sha256)
        return pb.QueryUploadResponse(received=received, complete=complete)

    @answered
    def UploadModel(
        self, request: Iterator[pb.UploadModelRequest], context: grpc.ServicerContext
    ) -> pb.UploadModelResponse:
        first = next(request, None)
        if first is None or first.WhichOneof("part") != "header":
            raise IngotError(ErrorCode.INVALID_ARGUMENT, "an upload starts with a header", field="header")
        upload = converters.upload_from_pb(first.header)
        size = self._parts.sources.receive(upload, _chunks(request))
        return pb.UploadModelResponse(sha256=upload.sha256, size=size)

    @answered
    def CheckModel(self, request: pb.CheckModelRequest, context: grpc.ServicerContext) -> pb.CheckModelResponse:
        source = converters.source_from_pb(request.source)
        options = self._catalogue.normalise_options(converters.options_from_pb(request.options))
        self._parts.sources.require(source)
        files = request_source(self._parts.sources.files(source))
        order = {"stage": "check", "source": files, "target": None, "options": dict(options)}
        if not self._checks.acquire(timeout=30):
            raise _busy("checks", MOST_CHECKS_AT_ONCE)
        try:
            with tempfile.TemporaryDirectory(prefix="check-", dir=_made(self._settings.home / "work")) as work:
                answer = self._parts.runner.run(Path(work), order, _ignore, lambda: not context.is_active())
        except StoppedError as error:
            raise IngotError(ErrorCode.CANCELLED, "the check was cancelled") from error
        finally:
            self._checks.release()
        return converters.check_to_pb(answer["report"])

    # ---- jobs

    @answered
    def Compile(self, request: pb.CompileRequest, context: grpc.ServicerContext) -> pb.CompileResponse:
        record = self._jobs.submit(converters.submission_from_pb(request))
        return pb.CompileResponse(job=converters.job_to_pb(record))

    @answered
    def GetJob(self, request: pb.GetJobRequest, context: grpc.ServicerContext) -> pb.Job:
        return self._reports.verified(converters.job_to_pb(self._jobs.get(request.id)))

    @answered
    def ListJobs(self, request: pb.ListJobsRequest, context: grpc.ServicerContext) -> pb.ListJobsResponse:
        limit = min(max(request.limit, 0) or 50, 1000)
        records = self._jobs.store.newest(limit, converters.state_from_pb(request.state), request.name)
        return pb.ListJobsResponse(jobs=[converters.job_to_pb(record) for record in records])

    @streamed
    def WatchJob(self, request: pb.WatchJobRequest, context: grpc.ServicerContext) -> Iterator[pb.JobEvent]:
        store, after = self._jobs.store, request.after
        record = self._jobs.get(request.id)
        if not self._watchers.acquire(blocking=False):
            raise _busy("watchers", self._settings.max_watchers)
        try:
            if not after:
                yield converters.event_to_pb(Event("state", time=record.created), record)
            while context.is_active() and not self._stopping.is_set():
                events = store.events(request.id, after, block_seconds=0 if record.state.finished else POLL_SECONDS)
                ended = record.state.finished and not events
                if any(event.kind == "state" for event in events):
                    record = self._jobs.get(request.id)
                for event in events:
                    after = event.sequence
                    yield converters.event_to_pb(event, record)
                if ended:
                    return
                if not events:
                    record = self._jobs.get(request.id)
        finally:
            self._watchers.release()

    @answered
    def CancelJob(self, request: pb.CancelJobRequest, context: grpc.ServicerContext) -> pb.Job:
        return converters.job_to_pb(self._jobs.cancel(request.id))

    @answered
    def RetryJob(self, request: pb.RetryJobRequest, context: grpc.ServicerContext) -> pb.Job:
        return converters.job_to_pb(self._jobs.retry(request.id))

    @answered
    def GetReproducer(
        self, request: pb.GetReproducerRequest, context: grpc.ServicerContext
    ) -> pb.GetReproducerResponse:
        job = self._jobs.get(request.id).id
        return pb.GetReproducerResponse(text=self._parts.reproducers.load(job, request.target))

    # ---- the service itself

    @answered
    def GetCapabilities(self, request: pb.GetCapabilitiesRequest, context: grpc.ServicerContext) -> pb.Capabilities:
        signer = self._parts.signer
        pem = public_pem(signer.public)
        return converters.capabilities_to_pb(self._catalogue, self._settings.max_model_bytes, pem, signer.key_id)

    @answered
    def ListTargets(self, request: pb.ListTargetsRequest, context: grpc.ServicerContext) -> pb.ListTargetsResponse:
        return converters.targets_to_pb(self._catalogue)


def _chunks(requests: Iterable[pb.UploadModelRequest]) -> Iterator[bytes]:
    for request in requests:
        if request.WhichOneof("part") != "chunk":
            raise IngotError(ErrorCode.INVALID_ARGUMENT, "a header came in the middle of an upload", field="header")
        yield request.chunk


def _busy(what: str, limit: int) -> IngotError:
    message = f"there are too many {what}"
    return IngotError(
        ErrorCode.RESOURCE_EXHAUSTED, message, expected=f"at most {limit} at once", remedy="Try again later."
    )


def _made(directory: Path) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    return directory


def _ignore(message: Any) -> None:
    """Progress of a check is not reported."""
