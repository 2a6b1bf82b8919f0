"""``inference.GRPCInferenceService``: decode, call the data plane, encode."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, TypeVar

import grpc
from google.protobuf.json_format import ParseDict

from runtime_service.api import documents
from runtime_service.api.answers import taking
from runtime_service.api.grpc_codec import decode, encode
from runtime_service.batching.messages import Cancellation
from runtime_service.dataplane import DataPlane, no_control
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.pb.inference.v2 import grpc_service_pb2 as pb
from shared_ir.pb.inference.v2.grpc_service_pb2_grpc import GRPCInferenceServiceServicer
from shared_ir.service_kit.calls import grow
from shared_ir.service_kit.lanes import peer_name
from shared_ir.service_kit.status import abort, internal

_LOG = logging.getLogger(__name__)
Context = grpc.ServicerContext
T = TypeVar("T")


class InferenceServicer(GRPCInferenceServiceServicer):  # type: ignore[misc]  # generated code is untyped
    """Methods that are not here answer UNIMPLEMENTED: shared memory, tracing, log settings, streams."""

    def __init__(self, dataplane: DataPlane, control: bool = True) -> None:
        """``control``: whether models may be loaded and unloaded here at all."""
        self._dataplane = dataplane
        self._control = control

    def ModelInfer(self, request: pb.ModelInferRequest, context: Context) -> pb.ModelInferResponse:
        cancellation = Cancellation()
        context.add_callback(cancellation.cancel)

        def infer() -> pb.ModelInferResponse:
            decoded = decode(request, context.time_remaining(), cancellation, peer_name(context))
            answer = self._dataplane.infer(decoded)
            raw = bool(request.raw_input_contents) or not request.inputs  # who sends nothing has not chosen
            return encode(answer, raw, taking(decoded, grow))

        return _answer(context, infer)

    def ServerLive(self, request: pb.ServerLiveRequest, context: Context) -> pb.ServerLiveResponse:
        return pb.ServerLiveResponse(live=self._dataplane.live())

    def ServerReady(self, request: pb.ServerReadyRequest, context: Context) -> pb.ServerReadyResponse:
        return pb.ServerReadyResponse(ready=self._dataplane.ready())

    def ModelReady(self, request: pb.ModelReadyRequest, context: Context) -> pb.ModelReadyResponse:
        return _answer(
            context,
            lambda: pb.ModelReadyResponse(ready=self._dataplane.model_ready(request.name, request.version)),
        )

    def ServerMetadata(self, request: pb.ServerMetadataRequest, context: Context) -> pb.ServerMetadataResponse:
        document = documents.server_metadata(self._dataplane.server_metadata())
        return ParseDict(document, pb.ServerMetadataResponse())

    def ModelMetadata(self, request: pb.ModelMetadataRequest, context: Context) -> pb.ModelMetadataResponse:
        def metadata() -> pb.ModelMetadataResponse:
            found = self._dataplane.model_metadata(request.name, request.version)
            return ParseDict(documents.model_metadata(found), pb.ModelMetadataResponse())

        return _answer(context, metadata)

    def ModelConfig(self, request: pb.ModelConfigRequest, context: Context) -> pb.ModelConfigResponse:
        def config() -> pb.ModelConfigResponse:
            found = self._dataplane.model_config(request.name, request.version)
            return ParseDict({"config": documents.model_config(found)}, pb.ModelConfigResponse())

        return _answer(context, config)

    def ModelStatistics(self, request: pb.ModelStatisticsRequest, context: Context) -> pb.ModelStatisticsResponse:
        def statistics() -> pb.ModelStatisticsResponse:
            found = self._dataplane.model_statistics(request.name, request.version)
            document = {"model_stats": [documents.model_statistics(item) for item in found]}
            return ParseDict(document, pb.ModelStatisticsResponse())

        return _answer(context, statistics)

    def RepositoryIndex(self, request: pb.RepositoryIndexRequest, context: Context) -> pb.RepositoryIndexResponse:
        found = self._dataplane.repository_index(request.ready)
        document = {"models": [documents.version_status(status) for status in found]}
        return ParseDict(document, pb.RepositoryIndexResponse())

    def RepositoryModelLoad(
        self, request: pb.RepositoryModelLoadRequest, context: Context
    ) -> pb.RepositoryModelLoadResponse:
        def load() -> pb.RepositoryModelLoadResponse:
            self._check_control()
            self._dataplane.load(request.model_name, _load_policy(dict(request.parameters)))
            return pb.RepositoryModelLoadResponse()

        return _answer(context, load)

    def RepositoryModelUnload(
        self, request: pb.RepositoryModelUnloadRequest, context: Context
    ) -> pb.RepositoryModelUnloadResponse:
        def unload() -> pb.RepositoryModelUnloadResponse:
            self._check_control()
            self._dataplane.unload(request.model_name)
            return pb.RepositoryModelUnloadResponse()

        return _answer(context, unload)

    def _check_control(self) -> None:
        if not self._control:
            raise no_control()


def _answer(context: Context, call: Callable[[], T]) -> T:
    """The result of ``call``, or its error as a status. Nothing but a bug of ours becomes INTERNAL."""
    try:
        return call()
    except IngotError as error:
        abort(context, error)
    except Exception as error:
        _LOG.exception("a call failed")
        abort(context, internal(error))


def _load_policy(parameters: dict[str, Any]) -> str:
    """The ``policy`` parameter of a load request; Triton's own parameters would replace files of the model."""
    for name in parameters:
        if name != "policy":
            raise IngotError(
                ErrorCode.INVALID_ARGUMENT,
                "unknown parameter of a load request",
                field=name[:100],
                expected="'policy'",
                remedy="Models come from the artifact store, with the configuration of this server.",
            )
    return str(parameters["policy"].string_param) if parameters else ""
