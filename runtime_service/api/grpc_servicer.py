"""``inference.GRPCInferenceService``: decode, call the data plane, encode."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from google.protobuf.json_format import ParseDict

from runtime_service.api import documents
from runtime_service.api.grpc_answers import Context, answer, origin_of, split_key_of
from runtime_service.api.grpc_codec import decode, encode, is_raw, model_of, sequence_of, stream_error
from runtime_service.api.grpc_extensions import ExtensionServicer
from runtime_service.batching.messages import NOWHERE, Cancellation, InferRequest
from runtime_service.batching.quick import MOST_MESSAGE_BYTES
from runtime_service.batching.taking import taking
from runtime_service.dataplane import DataPlane, no_control
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.pb.inference.v2 import grpc_service_pb2 as pb
from shared_ir.service_kit.calls.answering import grow, hold
from shared_ir.service_kit.calls.exchange import Terms, exchange
from shared_ir.service_kit.calls.lanes import peer_name
from shared_ir.service_kit.rpc.method import admitted, at_once

_MOST_OF_A_STREAM = 16
"""Requests of one stream that are computed at once."""


class InferenceServicer(ExtensionServicer):
    def __init__(self, dataplane: DataPlane, control: bool = True, admin: bool = False) -> None:
        """``control``: whether models may be loaded and unloaded here at all; ``admin``: whether settings may be changed."""
        super().__init__(dataplane, admin)
        self._control = control

    def _is_quick(self, message: bytes) -> bool:
        size = len(message)
        return size <= MOST_MESSAGE_BYTES and self._dataplane.quick.is_quick(model_of(message), size)

    def _admit(self, beginning: bytes, peer: str) -> None:
        try:
            self._dataplane.check_admission(model_of(beginning), None, peer)
        except IngotError as error:
            self._dataplane.refused(InferRequest(model_of(beginning), (), peer=peer), error)
            raise

    @at_once(_is_quick)
    @admitted(_admit)
    def ModelInfer(self, request: pb.ModelInferRequest, context: Any) -> pb.ModelInferResponse:
        cancellation = Cancellation()
        context.add_callback(cancellation.cancel)

        def infer() -> pb.ModelInferResponse:
            size, waits = context.message_bytes, not context.is_at_once
            decoded = self._decoded(request, context, cancellation, size, waits)
            return encode(self._dataplane.infer(decoded), is_raw(request), taking(decoded))

        return answer(context, infer)

    @exchange(Terms(most=_MOST_OF_A_STREAM, refused=stream_error, key=sequence_of))
    def ModelStreamInfer(self, request: pb.ModelInferRequest, context: Context) -> pb.ModelStreamInferResponse:
        """Is called for each message of a stream."""
        cancellation = Cancellation(lambda: not context.is_active())  # a callback of the call would outlive the message
        decoded = self._decoded(request, context, cancellation)
        found = encode(self._dataplane.infer(decoded), is_raw(request), taking(decoded))
        found.parameters["triton_final_response"].bool_param = True
        return pb.ModelStreamInferResponse(infer_response=found)

    def _decoded(
        self, request: pb.ModelInferRequest, context: Any, cancellation: Cancellation, size: int = 0, waits: bool = True
    ) -> InferRequest:
        peer, origin = peer_name(context), origin_of(context) if self._dataplane.asks_origin else NOWHERE
        remaining = context.time_remaining()
        try:
            decoded = decode(request, remaining, cancellation, peer, hold, grow, size, waits, origin)
            return replace(decoded, split_key=split_key_of(context)) if self._dataplane.asks_split_key else decoded
        except IngotError as error:
            refused = InferRequest(request.model_name, (), request.model_version, request.id, peer=peer, origin=origin)
            self._dataplane.refused(refused, error)
            raise

    def ServerLive(self, request: pb.ServerLiveRequest, context: Context) -> pb.ServerLiveResponse:
        return pb.ServerLiveResponse(live=self._dataplane.live())

    def ServerReady(self, request: pb.ServerReadyRequest, context: Context) -> pb.ServerReadyResponse:
        return pb.ServerReadyResponse(ready=self._dataplane.ready())

    def ModelReady(self, request: pb.ModelReadyRequest, context: Context) -> pb.ModelReadyResponse:
        return answer(
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

        return answer(context, metadata)

    def ModelConfig(self, request: pb.ModelConfigRequest, context: Context) -> pb.ModelConfigResponse:
        def config() -> pb.ModelConfigResponse:
            found = self._dataplane.model_config(request.name, request.version)
            return ParseDict({"config": documents.model_config(found)}, pb.ModelConfigResponse())

        return answer(context, config)

    def ModelStatistics(self, request: pb.ModelStatisticsRequest, context: Context) -> pb.ModelStatisticsResponse:
        def statistics() -> pb.ModelStatisticsResponse:
            found = self._dataplane.model_statistics(request.name, request.version)
            document = {"model_stats": [documents.model_statistics(item) for item in found]}
            return ParseDict(document, pb.ModelStatisticsResponse())

        return answer(context, statistics)

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

        return answer(context, load)

    def RepositoryModelUnload(
        self, request: pb.RepositoryModelUnloadRequest, context: Context
    ) -> pb.RepositoryModelUnloadResponse:
        def unload() -> pb.RepositoryModelUnloadResponse:
            self._check_control()
            self._dataplane.unload(request.model_name)
            return pb.RepositoryModelUnloadResponse()

        return answer(context, unload)

    def _check_control(self) -> None:
        if not self._control:
            raise no_control()


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
