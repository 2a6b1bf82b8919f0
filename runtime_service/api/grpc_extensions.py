"""Methods of Triton's extensions: shared memory, and settings of log and traces."""

from __future__ import annotations

from typing import Any

from google.protobuf.json_format import ParseDict

from runtime_service.api import documents
from runtime_service.api.grpc_answers import Context, answer
from runtime_service.dataplane import DataPlane, no_admin
from runtime_service.extensions.shared_memory import no_cuda
from shared_ir.pb.inference.v2 import grpc_service_pb2 as pb
from shared_ir.pb.inference.v2.grpc_service_pb2_grpc import GRPCInferenceServiceServicer


class ExtensionServicer(GRPCInferenceServiceServicer):  # type: ignore[misc]  # generated code is untyped
    """``admin``: whether settings of log and traces may be seen and changed here at all."""

    def __init__(self, dataplane: DataPlane, admin: bool) -> None:
        self._dataplane = dataplane
        self._admin = admin

    def SystemSharedMemoryStatus(self, request: pb.SystemSharedMemoryStatusRequest, context: Context) -> Any:
        def status() -> Any:
            found = self._dataplane.shared_memory.status(request.name)
            regions = {region.name: documents.region(region) for region in found}
            return ParseDict({"regions": regions}, pb.SystemSharedMemoryStatusResponse())

        return answer(context, status)

    def SystemSharedMemoryRegister(self, request: pb.SystemSharedMemoryRegisterRequest, context: Context) -> Any:
        def register() -> Any:
            self._dataplane.shared_memory.register(request.name, request.key, request.offset, request.byte_size)
            return pb.SystemSharedMemoryRegisterResponse()

        return answer(context, register)

    def SystemSharedMemoryUnregister(self, request: pb.SystemSharedMemoryUnregisterRequest, context: Context) -> Any:
        def unregister() -> Any:
            self._dataplane.shared_memory.unregister(request.name)
            return pb.SystemSharedMemoryUnregisterResponse()

        return answer(context, unregister)

    def CudaSharedMemoryStatus(self, request: pb.CudaSharedMemoryStatusRequest, context: Context) -> Any:
        return answer(context, lambda: _none(pb.CudaSharedMemoryStatusResponse(), request.name))

    def CudaSharedMemoryRegister(self, request: pb.CudaSharedMemoryRegisterRequest, context: Context) -> Any:
        return answer(context, lambda: _none(None, request.name or "unnamed"))

    def CudaSharedMemoryUnregister(self, request: pb.CudaSharedMemoryUnregisterRequest, context: Context) -> Any:
        """NOTE: clients forget all regions of both kinds before they begin; there are none of this one."""
        return answer(context, lambda: _none(pb.CudaSharedMemoryUnregisterResponse(), request.name))

    def TraceSetting(self, request: pb.TraceSettingRequest, context: Context) -> pb.TraceSettingResponse:
        def setting() -> pb.TraceSettingResponse:
            self._check_admin()
            changes = {name: list(setting.value) for name, setting in request.settings.items()}
            found = self._dataplane.trace_setting(request.model_name, changes or None).document()
            document = {name: {"value": values} for name, values in found.items()}
            return ParseDict({"settings": document}, pb.TraceSettingResponse())

        return answer(context, setting)

    def LogSettings(self, request: pb.LogSettingsRequest, context: Context) -> pb.LogSettingsResponse:
        def settings() -> pb.LogSettingsResponse:
            self._check_admin()
            changes = {name: _chosen(value) for name, value in request.settings.items()}
            found = pb.LogSettingsResponse()
            for name, value in self._dataplane.log_settings(changes).items():
                kind = {bool: "bool_param", int: "uint32_param", str: "string_param"}[type(value)]
                setattr(found.settings[name], kind, value)
            return found

        return answer(context, settings)

    def _check_admin(self) -> None:
        if not self._admin:
            raise no_admin()


def _none(found: Any, name: str) -> Any:
    """``found`` of all regions in the memory of GPUs, of which there are none."""
    if name:
        raise no_cuda()
    return found


def _chosen(value: Any) -> object:
    choice = value.WhichOneof("parameter_choice")
    return None if choice is None else getattr(value, choice)
