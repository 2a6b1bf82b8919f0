"""The client of a runtime service: inference over the Open Inference Protocol v2, gRPC or HTTP."""

from __future__ import annotations

import http.client
import json
import math
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from ingot.channel import authorization, call, check_timeout, late, open_channel, unreachable
from ingot.home import Addresses, home_directory
from ingot.records import TensorInfo
from ingot.server_address import server_address
from shared_ir.arrays import storage_dtype
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.foreign_json import foreign_json
from shared_ir.pb.inference.v2 import grpc_service_pb2 as pb
from shared_ir.pb.inference.v2 import grpc_service_pb2_grpc
from shared_ir.service_kit.status import error_from_document
from shared_ir.service_kit.tls import client_tls
from shared_ir.wire.byte_strings import bytes_of, strings_of
from shared_ir.wire.names import DTYPES

Array = NDArray[Any]
"""An array of numpy, of any element type."""

_DTYPES = {name: storage_dtype(dtype) for name, dtype in DTYPES.items()}
_START = "Start it with `ingot up`, or set INGOT_RUNTIME_HTTP_ADDRESS to where it runs."
_JSON_LENGTH = "Inference-Header-Content-Length"


class Endpoint:
    """Infers at a runtime service. Every method raises :class:`IngotError`.

    Args:
        address: ``host:port``; by default ``INGOT_RUNTIME_ADDRESS`` (``INGOT_RUNTIME_HTTP_ADDRESS`` for HTTP), else what
            ``ingot up`` wrote, else the usual port of this machine.
        protocol: ``grpc`` or ``http``; the latter sends tensors as binary data behind the JSON.
        ca_certificate: PEM file with the authorities that signed the service's certificate; turns TLS on.
        client_certificate, client_key: PEM files to show a service that asks for a certificate; turn TLS on too.
    """

    def __init__(
        self,
        address: str | None = None,
        protocol: Literal["grpc", "http"] = "grpc",
        *,
        token: str = "",
        ca_certificate: str | Path | None = None,
        client_certificate: str | Path | None = None,
        client_key: str | Path | None = None,
        timeout: float = 60.0,
    ) -> None:
        known = Addresses.find(home_directory())
        self.address = server_address(address or (known.grpc if protocol == "grpc" else known.http))
        self._timeout = check_timeout(timeout)
        self._token = token
        tls = client_tls(ca_certificate, client_certificate, client_key)
        self._channel = open_channel(self.address, tls) if protocol == "grpc" else None
        # Made once: gRPC reads memory that is freed where one is made for a channel that is closed.
        self._stub: Any = self._channel and grpc_service_pb2_grpc.GRPCInferenceServiceStub(self._channel)
        self._tls = tls.context() if tls is not None else None

    def close(self) -> None:
        """Hang up; ``with`` does so at its end."""
        if self._channel is not None:
            self._channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def inputs(self, model: str, version: str = "") -> tuple[TensorInfo, ...]:
        """Inputs of a model as it is served; ``-1`` stands for an extent that may vary."""
        if self._channel is None:
            found = self._get(f"{_path(model, version)}")["inputs"]
            given = self._get(f"{_path(model, version)}/config")["input"]
            optional = {t["name"] for t in given if t.get("optional")}
            return tuple(_info(t["name"], t["datatype"], t["shape"], t["name"] in optional) for t in found)
        metadata = self._call("ModelMetadata", pb.ModelMetadataRequest(name=model, version=version))
        config = self._call("ModelConfig", pb.ModelConfigRequest(name=model, version=version)).config
        optional = {t.name for t in config.input if t.optional}
        return tuple(_info(t.name, t.datatype, t.shape, t.name in optional) for t in metadata.inputs)

    def infer(self, model: str, feeds: Mapping[str, Array], version: str = "") -> dict[str, Array]:
        """Outputs by name."""
        if self._channel is None:
            return self._infer_http(model, feeds, version)
        request = pb.ModelInferRequest(model_name=model, model_version=version)
        for name, array in feeds.items():
            request.inputs.add(name=name, datatype=_wire_name(name, array), shape=array.shape)
            request.raw_input_contents.append(_bytes(array))
        response = self._call("ModelInfer", request)
        return {
            output.name: _array(output.datatype, tuple(output.shape), raw, output.name)
            for output, raw in zip(response.outputs, response.raw_output_contents, strict=True)
        }

    def metrics(self) -> str:
        """Numbers of the service in the text format of Prometheus; over HTTP alone.

        Raises:
            IngotError: INVALID_ARGUMENT, of an endpoint of gRPC.
        """
        if self._channel is not None:
            raise IngotError(
                ErrorCode.INVALID_ARGUMENT, "metrics are served over HTTP", field="protocol", expected="http"
            )
        return self._exchange("GET", "/metrics", b"", 0)[1].decode(errors="replace")

    def _infer_http(self, model: str, feeds: Mapping[str, Array], version: str) -> dict[str, Array]:
        tensors, blobs = [], []
        for name, array in feeds.items():
            data = _bytes(array)
            tensor = {"name": name, "datatype": _wire_name(name, array), "shape": list(array.shape)}
            tensors.append(tensor | {"parameters": {"binary_data_size": len(data)}})
            blobs.append(data)
        document = {"inputs": tensors, "parameters": {"binary_data_output": True}}
        head = json.dumps(document).encode()
        length, body = self._exchange("POST", f"{_path(model, version)}/infer", head + b"".join(blobs), len(head))
        answer, rest = foreign_json(body[:length]), memoryview(body)[length:]
        outputs = {}
        for tensor in answer["outputs"]:
            size = tensor["parameters"]["binary_data_size"]
            outputs[tensor["name"]] = _array(tensor["datatype"], tuple(tensor["shape"]), rest[:size], tensor["name"])
            rest = rest[size:]
        return outputs

    def _get(self, path: str) -> Any:
        return foreign_json(self._exchange("GET", path, b"", 0)[1])

    def _exchange(self, method: str, path: str, body: bytes, json_length: int) -> tuple[int, bytes]:
        """Length of the JSON part of the answer, and the answer."""
        if self._tls is None:
            connection = http.client.HTTPConnection(self.address, timeout=self._timeout)
        else:
            connection = http.client.HTTPSConnection(self.address, timeout=self._timeout, context=self._tls)
        headers = {"Content-Type": "application/octet-stream", _JSON_LENGTH: str(json_length)} if body else {}
        headers |= {"Authorization": f"Bearer {self._token}"} if self._token else {}
        try:
            connection.connect()
        except OSError as error:
            raise unreachable(self.address, str(error), _START) from error
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            data = response.read()
        except TimeoutError as error:
            raise late(self.address, str(error)) from error
        except (OSError, http.client.HTTPException) as error:
            raise unreachable(self.address, _reason(error), _START) from error
        finally:
            connection.close()
        if response.status != 200:
            raise _http_error(response.status, data)
        return int(response.headers.get(_JSON_LENGTH, len(data))), data

    def _call(self, method: str, request: Any) -> Any:
        function = getattr(self._stub, method)
        return call(self.address, lambda: function(request, timeout=self._timeout, metadata=authorization(self._token)))


def _reason(error: Exception) -> str:
    """What went wrong; bytes of another protocol are not shown."""
    if isinstance(error, http.client.BadStatusLine) and not isinstance(error, http.client.RemoteDisconnected):
        return "what answers there does not speak HTTP/1.1: it may be the port of gRPC"
    return str(error)


def _path(model: str, version: str) -> str:
    path = f"/v2/models/{quote(model, safe='')}"
    return f"{path}/versions/{quote(version, safe='')}" if version else path


def _info(name: str, datatype: str, shape: Any, optional: bool) -> TensorInfo:
    dtype = DTYPES.get(datatype)
    known = datatype.lower() if dtype is None else dtype.value
    return TensorInfo(name, known, tuple(str(extent) for extent in shape), optional)


def _bytes(array: Array) -> bytes:
    return bytes_of(array.astype(object)) if array.dtype.kind in "OUS" else np.ascontiguousarray(array).tobytes()


def _wire_name(name: str, array: Array) -> str:
    if array.dtype.kind in "US":
        return "BYTES"
    found = next((wire for wire, dtype in _DTYPES.items() if dtype == array.dtype), None)
    if found is None:
        raise IngotError(
            ErrorCode.UNSUPPORTED_DTYPE,
            "arrays of this type cannot be sent",
            tensor=name,
            expected=", ".join(str(dtype) for dtype in _DTYPES.values()),
            received=str(array.dtype),
        )
    return found


def _array(datatype: str, shape: tuple[int, ...], data: bytes | memoryview, name: str) -> Array:
    if datatype not in _DTYPES:
        raise IngotError(
            ErrorCode.UNSUPPORTED_DTYPE, f"no numpy type for {datatype}", tensor=name, remedy="Use another client."
        )
    if datatype == "BYTES":
        return strings_of(data, math.prod(shape), name).reshape(shape)
    return np.frombuffer(data, _DTYPES[datatype]).reshape(shape)


def _http_error(status: int, data: bytes) -> IngotError:
    try:
        document = foreign_json(data)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        document = {"error": data[:500].decode(errors="replace")}
    if (typed := error_from_document(document)) is not None:
        return typed
    codes = {400: ErrorCode.INVALID_ARGUMENT, 404: ErrorCode.NOT_FOUND, 429: ErrorCode.RESOURCE_EXHAUSTED}
    codes |= {401: ErrorCode.UNAUTHENTICATED, 403: ErrorCode.PERMISSION_DENIED}
    codes |= {503: ErrorCode.UNAVAILABLE, 504: ErrorCode.DEADLINE_EXCEEDED}
    return IngotError(codes.get(status, ErrorCode.INTERNAL), str(document.get("error", document)))
