"""Inference requests and responses as JSON with optional binary tensors behind it.

Formats: Open Inference Protocol v2 (``required_api.md``) and Triton's ``extension_binary_data.md``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from runtime_service.api.answers import json_values
from runtime_service.api.deadline import deadline
from runtime_service.api.parameters import check_request, output_request, place_of_input, place_parameters
from runtime_service.batching.datatypes import from_bytes, parse_datatype, to_bytes, wire_name
from runtime_service.batching.messages import (
    InferRequest,
    InferResponse,
    OutputRequest,
    Parameter,
    SharedTensor,
    Take,
    TensorData,
)
from runtime_service.batching.numbers import from_numbers
from runtime_service.batching.validation import signature
from runtime_service.models.served import Interface
from shared_ir.dtype import DType
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.plan.program import TensorSpec
from shared_ir.service_kit.http_message import HttpResponse, parse_json

JSON_LENGTH = "inference-header-content-length"
"""Header with the length of the JSON part in bytes; binary tensors follow it."""


_SHORT_BYTES = 1 << 16
"""JSON up to this size is one piece."""
_JSON_KINDS: dict[type[Any], str] = {dict: "an object", list: "an array", str: "a string"}


@dataclass(frozen=True, slots=True)
class BinaryOutputs:
    """Which outputs the client wants as bytes: all or none, but for the exceptions by name."""

    default: bool = False
    by_name: Mapping[str, bool] | None = None

    def wants(self, name: str) -> bool:
        return (self.by_name or {}).get(name, self.default)


Body = bytes | bytearray | memoryview


def json_part(body: Body, json_length: str | None) -> memoryview:
    """The JSON of a request, ``json_length`` being the value of :data:`JSON_LENGTH`; raises as :func:`decode`."""
    view = memoryview(body)
    return view if json_length is None else view[: _json_length(json_length, len(view))]


def decode(model: str, version: str, body: Body, split: int) -> tuple[InferRequest, BinaryOutputs]:
    """A request of ``split`` bytes of JSON, and binary tensors behind them.

    Raises:
        IngotError: INVALID_ARGUMENT naming the tensor or field.
    """
    view = memoryview(body)
    document = _expect(parse_json(view[:split]), dict, "body")
    parameters = _parameters(document)
    check_request(parameters)
    inputs: list[TensorData | SharedTensor] = []
    rest = view[split:]
    for item in _expect(document.get("inputs"), list, "inputs"):
        tensor, rest = _input(_expect(item, dict, "inputs"), rest)
        inputs.append(tensor)
    if len(rest):
        raise IngotError(
            ErrorCode.INVALID_ARGUMENT,
            "the body has more binary data than its inputs declare",
            field="binary_data_size",
            received=f"{len(rest)} bytes too many",
        )
    outputs, binary = _outputs(document, bool(parameters.get("binary_data_output", False)))
    request = InferRequest(
        model_name=model,
        model_version=version,
        id=_expect(document.get("id", ""), str, "id"),
        inputs=tuple(inputs),
        outputs=outputs,
        parameters=parameters,
        deadline=deadline(parameters),
    )
    return request, binary


def decode_raw(model: str, version: str, body: Body, expected: Interface) -> tuple[InferRequest, BinaryOutputs]:
    """A raw request: the body is the one input, of batch 1; its one other variable dim follows from the size.

    Raises:
        IngotError: INVALID_ARGUMENT, the model is not of that kind, or the size does not fit.
    """
    if len(expected.inputs) != 1:
        raise _raw_refused(f"a model with one input, {model!r} has {len(expected.inputs)}")
    spec = expected.inputs[0]
    if spec.dtype is DType.STRING:
        raise _raw_refused("an input of numbers, whose shape follows from the size")
    shape = _raw_shape(spec, len(body), expected.batch)
    tensor = TensorData(spec.name, spec.dtype, from_bytes(memoryview(body), spec.dtype, shape, spec.name))
    return InferRequest(model, (tensor,), version), BinaryOutputs(default=True)


def encode(response: InferResponse, binary: BinaryOutputs, take: Take) -> HttpResponse:
    """JSON, followed by the binary outputs in the order of the JSON.

    Raises:
        IngotError: as ``take``, which is asked before each piece is made.
    """
    head = {"model_name": response.model_name, "model_version": response.model_version}
    if response.id:
        head["id"] = response.id
    text = [_json(head)[:-1] + b',"outputs":[']
    tail: list[bytes] = []
    for i, tensor in enumerate(response.outputs):
        document = {
            "name": tensor.name,
            "datatype": wire_name(tensor.dtype),
            "shape": list(tensor.array.shape),
        }
        comma = b"," * bool(i)
        if tensor.place is not None:
            text.append(comma + _json({**document, "parameters": place_parameters(tensor.place)}))
        elif binary.wants(tensor.name):
            tail.append(to_bytes(tensor.array, take))
            text.append(comma + _json({**document, "parameters": {"binary_data_size": len(tail[-1])}}))
        else:
            text += (comma + _json(document)[:-1] + b',"data":[', *json_values(tensor.array, take), b"]}")
    text.append(b"]}")
    length = sum(map(len, text))
    if length <= _SHORT_BYTES:
        text = [b"".join(text)]
    kind, headers = "application/json", {}
    if tail:
        kind, headers = "application/octet-stream", {"Inference-Header-Content-Length": str(length)}
    return HttpResponse(parts=(*text, *tail), headers={"Content-Type": kind, **headers})


def _json(document: dict[str, Any]) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()


def _input(item: dict[str, Any], rest: memoryview) -> tuple[TensorData | SharedTensor, memoryview]:
    name = _expect(item.get("name"), str, "inputs.name")
    parameters = _parameters(item, name)
    place = place_of_input(parameters, name)
    dtype = parse_datatype(_expect(item.get("datatype"), str, "inputs.datatype", name), name)
    shape = _shape(item.get("shape"), name)
    size = parameters.get("binary_data_size")
    if place is not None:
        if "data" in item or size is not None:
            message, field = "an input has data although it lies in shared memory", "data"
            raise IngotError(ErrorCode.INVALID_ARGUMENT, message, tensor=name, field=field)
        return SharedTensor(name, dtype, shape, place), rest
    if size is None:
        if "data" not in item:
            raise IngotError(ErrorCode.INVALID_ARGUMENT, "an input has no data", tensor=name, field="data")
        return TensorData(name, dtype, from_numbers(item["data"], dtype, shape, name)), rest
    if "data" in item:
        raise IngotError(ErrorCode.INVALID_ARGUMENT, "an input has JSON and binary data", tensor=name, field="data")
    if isinstance(size, bool) or not isinstance(size, int) or not 0 <= size <= len(rest):
        raise IngotError(
            ErrorCode.INVALID_ARGUMENT,
            "binary_data_size does not fit the body",
            tensor=name,
            expected=f"an integer from 0 to {len(rest)}, the binary bytes left",
            received=repr(size)[:100],
        )
    return TensorData(name, dtype, from_bytes(rest[:size], dtype, shape, name)), rest[size:]


def _outputs(document: dict[str, Any], default: bool) -> tuple[tuple[OutputRequest, ...], BinaryOutputs]:
    found: list[OutputRequest] = []
    binary: dict[str, bool] = {}
    for item in _expect(document.get("outputs", []), list, "outputs"):
        name = _expect(_expect(item, dict, "outputs").get("name"), str, "outputs.name")
        parameters = _parameters(item, name)
        found.append(output_request(name, parameters))
        if "binary_data" in parameters:
            binary[name] = bool(parameters["binary_data"])
    return tuple(found), BinaryOutputs(default, binary)


def _parameters(item: dict[str, Any], tensor: str = "") -> dict[str, Parameter]:
    parameters = _expect(item.get("parameters", {}), dict, "parameters", tensor)
    for name, value in parameters.items():
        if not isinstance(value, bool | int | float | str | None):
            raise IngotError(
                ErrorCode.INVALID_ARGUMENT,
                "a parameter is of the wrong kind",
                tensor=tensor,
                field=name[:100],
                expected="a truth value, a number or a string",
                received=_JSON_KINDS[type(value)],
            )
    return {name: value for name, value in parameters.items() if value is not None}


def _shape(value: object, tensor: str) -> tuple[int, ...]:
    extents = _expect(value, list, "shape", tensor)
    if not all(type(extent) is int and 0 <= extent < 2**63 for extent in extents):
        raise IngotError(
            ErrorCode.INVALID_ARGUMENT,
            "a shape is malformed",
            tensor=tensor,
            field="shape",
            expected="a list of integers >= 0",
            received=repr(extents)[:100],
        )
    return tuple(extents)


def _expect(value: Any, kind: type[Any], field: str, tensor: str = "") -> Any:
    """``value``, which must be of this JSON kind."""
    if not isinstance(value, kind):
        raise IngotError(
            ErrorCode.INVALID_ARGUMENT,
            "a field of the request is missing or of the wrong kind",
            tensor=tensor,
            field=field,
            expected=_JSON_KINDS[kind],
            received="nothing" if value is None else type(value).__name__,
        )
    return value


def _json_length(text: str, available: int) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 20 and int(text) <= available):
        raise IngotError(
            ErrorCode.INVALID_ARGUMENT,
            "the header Inference-Header-Content-Length does not fit the body",
            field="Inference-Header-Content-Length",
            expected=f"an integer from 0 to {available}",
            received=repr(text)[:100],
        )
    return int(text)


def _raw_shape(spec: TensorSpec, size: int, batch: str | None) -> tuple[int, ...]:
    variable = [axis for axis, dim in enumerate(spec.shape) if not isinstance(dim, int)]
    if batch is not None or len(variable) > 1:  # the first variable axis is the batch
        variable = variable[1:]
    if len(variable) > 1:
        raise _raw_refused(f"an input with at most one variable dim besides the batch, not {signature(spec)}")
    shape = [dim if isinstance(dim, int) else 1 for dim in spec.shape]
    if variable:
        row = spec.dtype.itemsize
        for extent in shape:
            row *= extent
        shape[variable[0]] = size // row if row else 0
    return tuple(shape)


def _raw_refused(expected: str) -> IngotError:
    return IngotError(
        ErrorCode.INVALID_ARGUMENT,
        "this model cannot take a raw request",
        field="Inference-Header-Content-Length: 0",
        expected=expected,
        remedy="Send a JSON part that names the inputs and their shapes.",
    )
