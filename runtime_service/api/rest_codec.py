"""Inference requests and responses as JSON with optional binary tensors behind it.

Formats: Open Inference Protocol v2 (``required_api.md``) and Triton's ``extension_binary_data.md``.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from functools import partial
from typing import Any

from runtime_service.api.answers import json_values
from runtime_service.api.parameters import place_parameters
from runtime_service.api.rest_document import BinaryOutputs, Document, Input
from runtime_service.batching.datatypes import from_bytes, to_bytes, wire_name
from runtime_service.batching.messages import (
    InferResponse,
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
from shared_ir.service_kit.http.message import HttpResponse

JSON_LENGTH = "inference-header-content-length"
"""Header with the length of the JSON part in bytes; binary tensors follow it."""


_SHORT_BYTES = 1 << 16
"""JSON up to this size is one piece."""


Body = bytes | bytearray | memoryview


def json_part(body: Body, json_length: str | None) -> memoryview:
    """The JSON of a request, ``json_length`` being the value of :data:`JSON_LENGTH`; raises as :func:`decode`."""
    view = memoryview(body)
    return view if json_length is None else view[: _json_length(json_length, len(view))]


def tensors(
    document: Document, rest: memoryview, written: Callable[[], Any] | None = None
) -> tuple[TensorData | SharedTensor, ...]:
    """The inputs of a request; ``rest`` are the bytes behind its JSON, which ``written`` gives once more, with fractions as their texts.

    Raises:
        IngotError: INVALID_ARGUMENT naming the tensor or field.
    """
    found = []
    for at, each in enumerate(document.inputs):
        values = None if written is None else partial(_written_values, written, at)
        tensor, rest = _tensor(each, rest, values)
        found.append(tensor)
    if len(rest):
        raise IngotError(
            ErrorCode.INVALID_ARGUMENT,
            "the body has more binary data than its inputs declare",
            field="binary_data_size",
            received=f"{len(rest)} bytes too many",
        )
    return tuple(found)


def raw_tensor(model: str, body: Body, expected: Interface) -> TensorData:
    """The one input of a raw request, whose body it is, of batch 1; its one other variable dim follows from the size.

    Raises:
        IngotError: INVALID_ARGUMENT, the model is not of that kind, or the size does not fit.
    """
    if len(expected.inputs) != 1:
        raise _raw_refused(f"a model with one input, {model!r} has {len(expected.inputs)}")
    spec = expected.inputs[0]
    if spec.dtype is DType.STRING:
        raise _raw_refused("an input of numbers, whose shape follows from the size")
    shape = _raw_shape(spec, len(body), expected.batch)
    return TensorData(spec.name, spec.dtype, from_bytes(memoryview(body), spec.dtype, shape, spec.name))


def encode(response: InferResponse, binary: BinaryOutputs, take: Take) -> HttpResponse:
    """JSON, followed by the binary outputs in the order of the JSON.

    Raises:
        IngotError: as ``take``, which is asked before each piece is made.
    """
    head = _head(response.model_name, response.model_version)
    named = b',"id":' + json.dumps(response.id).encode() if response.id else b""
    text = [head, named, b',"outputs":[']
    tail: list[bytes] = []
    comma = b""
    for tensor in response.outputs:
        text += (comma, _output_head(tensor.name, tensor.dtype, tensor.array.shape))
        if tensor.place is not None:
            text.append(b',"parameters":%s}' % json.dumps(place_parameters(tensor.place)).encode())
        elif binary.wants(tensor.name):
            tail.append(to_bytes(tensor.array, take))
            text.append(b',"parameters":{"binary_data_size":%d}}' % len(tail[-1]))
        else:
            text += (b',"data":[', *json_values(tensor.array, take), b"]}")
        comma = b","
    text.append(b"]}")
    length = sum(map(len, text))
    if length <= _SHORT_BYTES:
        text = [b"".join(text)]
    kind, headers = "application/json", {}
    if tail:
        kind, headers = "application/octet-stream", {"Inference-Header-Content-Length": str(length)}
    return HttpResponse(parts=(*text, *tail), headers={"Content-Type": kind, **headers})


@functools.lru_cache(maxsize=1024)
def _head(model: str, version: str) -> bytes:
    """The beginning of an answer."""
    return f'{{"model_name":{json.dumps(model)},"model_version":{json.dumps(version)}'.encode()


@functools.lru_cache(maxsize=1024)
def _output_head(name: str, dtype: DType, shape: tuple[int, ...]) -> bytes:
    """The beginning of an output."""
    return f'{{"name":{json.dumps(name)},"datatype":"{wire_name(dtype)}","shape":{json.dumps(list(shape))}'.encode()


def _written_values(written: Callable[[], Any], at: int) -> object:
    return written()["inputs"][at]["data"]


def _tensor(
    head: Input, rest: memoryview, written: Callable[[], object] | None
) -> tuple[TensorData | SharedTensor, memoryview]:
    """An input, and the bytes behind it; ``rest`` are those that no input before it had."""
    if head.place is not None:
        return SharedTensor(head.name, head.dtype, head.shape, head.place), rest
    if head.has_values:
        values = from_numbers(head.values, head.dtype, head.shape, head.name, written)
        return TensorData(head.name, head.dtype, values), rest
    size = head.size
    if isinstance(size, bool) or not isinstance(size, int) or not 0 <= size <= len(rest):
        raise IngotError(
            ErrorCode.INVALID_ARGUMENT,
            "binary_data_size does not fit the body",
            tensor=head.name,
            expected=f"an integer from 0 to {len(rest)}, the binary bytes left",
            received=repr(size)[:100],
        )
    return TensorData(head.name, head.dtype, from_bytes(rest[:size], head.dtype, head.shape, head.name)), rest[size:]


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
