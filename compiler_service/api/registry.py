"""The part of the servicer that is about published models: lists, labels, deletions, downloads, the audit log."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator
from pathlib import Path

import grpc

from compiler_service.api import registry_converters as converters
from compiler_service.api.answers import Answering, answered, streamed
from compiler_service.api.pages import Messages
from compiler_service.api.traffic import Traffic
from shared_ir.artifact.published import BLOBS
from shared_ir.artifact.signed import corrupt
from shared_ir.pb.ingot.compiler.v1 import compiler_pb2 as pb
from shared_ir.registry.pages import changes_page, model_summary, models_page, page_size, versions_page
from shared_ir.registry.registry import ArtifactRegistry
from shared_ir.service_kit.access.namespace import Namespace
from shared_ir.storage.files import open_regular

_LOG = logging.getLogger(__name__)
CHUNK_BYTES = 1024 * 1024
"""Bytes of one chunk of a download."""


class RegistryServicer(Answering):
    """Decode, call, encode."""

    _repository: ArtifactRegistry
    _traffic: Traffic

    @answered
    def ListModels(self, request: pb.ListModelsRequest, context: grpc.ServicerContext) -> pb.ListModelsResponse:
        chosen = converters.model_filter_from_pb(request)
        size, messages = page_size(request.page_size), Messages(converters.model_to_pb)
        page = models_page(self._repository, size, request.page_token, chosen, messages.weigh)
        return pb.ListModelsResponse(models=messages.of(page), next_page_token=page.token)

    @answered
    def GetModel(self, request: pb.GetModelRequest, context: grpc.ServicerContext) -> pb.Model:
        return self._model(request.name)

    @answered
    def ListVersions(self, request: pb.ListVersionsRequest, context: grpc.ServicerContext) -> pb.ListVersionsResponse:
        size, chosen = page_size(request.page_size), converters.version_filter_from_pb(request)
        messages = Messages(converters.version_to_pb)
        page = versions_page(self._repository, request.name, size, request.page_token, chosen, messages.weigh)
        return pb.ListVersionsResponse(versions=messages.of(page)[::-1], next_page_token=page.token)

    @answered
    def SetLabel(self, request: pb.SetLabelRequest, context: grpc.ServicerContext) -> pb.Model:
        by = self._by(context)
        self._repository.set_label(request.name, request.label, request.version, by=by, etag=request.etag)
        return self._model(request.name)

    @answered
    def DeleteLabel(self, request: pb.DeleteLabelRequest, context: grpc.ServicerContext) -> pb.Model:
        self._repository.delete_label(request.name, request.label, self._by(context), request.etag)
        return self._model(request.name)

    @answered
    def DeleteVersion(
        self, request: pb.DeleteVersionRequest, context: grpc.ServicerContext
    ) -> pb.DeleteVersionResponse:
        self._repository.delete_version(request.name, request.version, self._by(context))
        return pb.DeleteVersionResponse()

    @answered
    def DeleteModel(self, request: pb.DeleteModelRequest, context: grpc.ServicerContext) -> pb.DeleteModelResponse:
        count = self._repository.delete_model(request.name, self._by(context), request.force)
        return pb.DeleteModelResponse(versions=count)

    @answered
    def ListEvents(self, request: pb.ListEventsRequest, context: grpc.ServicerContext) -> pb.ListEventsResponse:
        size, chosen = page_size(request.page_size), converters.change_filter_from_pb(request, self._prefix(context))
        messages = Messages(converters.change_to_pb)
        page = changes_page(self._repository, size, request.page_token, chosen, messages.weigh)
        return pb.ListEventsResponse(events=messages.of(page), next_page_token=page.token)

    @streamed
    def DownloadArtifact(
        self, request: pb.DownloadArtifactRequest, context: grpc.ServicerContext
    ) -> Iterator[pb.DownloadArtifactResponse]:
        kind = request.WhichOneof("which")
        which = getattr(request, kind) if kind else None
        version = self._repository.resolve(request.name, which)
        for path, content in self._repository.files(version, request.artifact_key):
            size = content.stat().st_size if isinstance(content, Path) else len(content)
            yield pb.DownloadArtifactResponse(header=pb.FileHeader(path=path, size=size))
            for chunk in self._traffic.download(_whole(path, _pieces(content))):
                yield pb.DownloadArtifactResponse(chunk=chunk)

    def _prefix(self, context: grpc.ServicerContext) -> str:
        """With which the names of all models begin that the caller may see."""
        return Namespace(self._caller(context).namespace).stored("")

    def _model(self, name: str) -> pb.Model:
        return converters.model_to_pb(model_summary(self._repository, name))


def _whole(path: str, pieces: Iterator[bytes]) -> Iterator[bytes]:
    """``pieces`` of a file; of a blob they are looked at as they go, since it was perhaps spoiled where it lay.

    Raises:
        IngotError: ARTIFACT_CORRUPT, after the last one.
    """
    received = hashlib.sha256()
    for piece in pieces:
        received.update(piece)
        yield piece
    if path.startswith(BLOBS) and received.hexdigest() != path.removeprefix(BLOBS):
        _LOG.error("%s in the store is not what it was when it was signed: it was asked for, and is refused", path)
        expected, found = path.removeprefix(BLOBS), received.hexdigest()
        raise corrupt("a blob is not what it was when it was signed", field=path, expected=expected, received=found)


def _pieces(content: bytes | memoryview | Path) -> Iterator[bytes]:
    if isinstance(content, Path):
        with open_regular(content) as file:
            while piece := file.read(CHUNK_BYTES):
                yield piece
    else:
        for start in range(0, len(content), CHUNK_BYTES):
            yield bytes(content[start : start + CHUNK_BYTES])
