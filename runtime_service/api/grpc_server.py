"""The gRPC server of the runtime service: which methods there are, and how many threads calls of each kind have."""

from __future__ import annotations

import threading
from typing import Any

import grpc
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2

from runtime_service.api.grpc_servicer import InferenceServicer
from runtime_service.dataplane import DataPlane
from shared_ir.pb.inference.v2 import grpc_service_pb2, model_config_pb2
from shared_ir.pb.inference.v2.grpc_service_pb2_grpc import add_GRPCInferenceServiceServicer_to_server
from shared_ir.service_kit import health
from shared_ir.service_kit.access.bearer import AccessInterceptor
from shared_ir.service_kit.access.gate import HEADER, SingleToken
from shared_ir.service_kit.calls.lanes import Lane
from shared_ir.service_kit.listening import SharedSockets
from shared_ir.service_kit.memory.room import RequestRoom
from shared_ir.service_kit.rpc.server import RpcServer
from shared_ir.service_kit.tls import TlsFiles

SERVICE = grpc_service_pb2.DESCRIPTOR.services_by_name["GRPCInferenceService"].full_name
LIVENESS = "liveness"
"""Name for the health service that is SERVING as long as the process answers; that of a model tells whether it is ready, if the caller has
the token; others mean readiness of the server."""
SPARE_THREADS = 16
"""Threads of inference beyond its limit, which tell those who are too many so."""
_QUESTIONS = 16
"""Threads for everything that is neither inference nor a health check."""
_CHECKS = 4
_MOST_WATCHERS = 512
"""Of health, that come at once: they hold a thread while they begin."""
_STREAM_SECONDS = 3600.0
"""For so long a stream of inferences may be silent; less where others wait for its thread."""
_HASTE_SECONDS = 0.05
"""Seconds for which a client may keep a thread of those waiting that others wait for."""


class GrpcServer:
    """Serves a data plane on one address."""

    def __init__(
        self,
        dataplane: DataPlane,
        address: str | SharedSockets,
        *,
        max_in_flight: int,
        max_request_bytes: int,
        room: RequestRoom,
        token: str = "",
        tls: TlsFiles | None = None,
        control: bool = True,
        admin: bool = False,
    ) -> None:
        """Binds at once. ``control``: whether models may be loaded and unloaded here at all; ``admin``: whether settings of log and traces
        may be changed.

        Raises:
            IngotError: INVALID_ARGUMENT, the address cannot be used.
        """
        self.room = room
        self._dataplane = dataplane
        gate = SingleToken(token) if token else None
        self._health = health.Health(lambda context: gate is None or gate.accepts(_header(context)))
        interceptors = [AccessInterceptor(gate)] if gate else []
        self._server = RpcServer(_lanes(max_in_flight + SPARE_THREADS), room, max_request_bytes, interceptors)
        add_GRPCInferenceServiceServicer_to_server(InferenceServicer(dataplane, control, admin), self._server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        self._server.reflect((SERVICE, health.SERVICE), _reflection_pool())
        self.port = self._server.bind(address, tls)

    def start(self) -> None:
        self._health.set(LIVENESS, True)
        self.publish_readiness()
        self._server.start()

    def publish_readiness(self) -> None:
        """Tell the health service (checks and watches) whether the data plane is ready."""
        for name in ("", SERVICE):
            self._health.set(name, self._dataplane.ready())
        self._health.set_others(self._dataplane.models_ready())

    def stop(self, grace: float) -> threading.Event:
        """Refuse new calls, let those in flight finish for ``grace`` seconds; the event is set when all is over."""
        self._health.leave()
        return self._server.stop(grace)


def _lanes(inferences: int) -> Any:
    infer, questions = Lane("infer", inferences), Lane("questions", _QUESTIONS, _HASTE_SECONDS, is_paced=True)
    checks, watchers = Lane("checks", _CHECKS, _HASTE_SECONDS), Lane("watchers", 2, most_waiting=_MOST_WATCHERS)
    streams = Lane("streams", inferences, patience=_STREAM_SECONDS, work=infer)
    lanes = {f"/{SERVICE}/ModelInfer": infer, f"/{SERVICE}/ModelStreamInfer": streams}
    lanes |= {health.CHECK: checks, health.WATCH: watchers}
    return lambda method: lanes.get(method, questions)


def _header(context: grpc.ServicerContext) -> str | bytes | None:
    found: dict[str, Any] = dict(context.invocation_metadata() or ())
    return found.get(HEADER)


def _reflection_pool() -> DescriptorPool:
    """Descriptors of all services of the server; our stubs and those of gRPC live in different pools."""
    pool = DescriptorPool()
    for file in (model_config_pb2, grpc_service_pb2, health_pb2, reflection_pb2):
        pool.AddSerializedFile(file.DESCRIPTOR.serialized_pb)
    return pool
