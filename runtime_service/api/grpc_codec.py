"""``ModelInferRequest`` and ``ModelInferResponse`` from and to the data plane's own types."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from runtime_service.api.answers import pieces
from runtime_service.api.deadline import deadline
from runtime_service.api.parameters import check_request, output_request, place_of_input, place_parameters
from runtime_service.arrays import Array
from runtime_service.batching.datatypes import from_bytes, parse_datatype, to_bytes, wire_name
from runtime_service.batching.messages import (
    NOWHERE,
    Cancellation,
    InferRequest,
    InferResponse,
    Origin,
    RegionSlice,
    SharedTensor,
    Take,
    TensorData,
    uncounted,
)
from runtime_service.batching.numbers import from_numbers
from runtime_service.executors.objects import characters
from shared_ir.dtype import DType
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.pb.inference.v2 import grpc_service_pb2 as pb
from shared_ir.service_kit.status import status_text

CONTENTS = {
    DType.BOOL: ("bool_contents", np.bool_),
    DType.INT8: ("int_contents", np.int32),
    DType.INT16: ("int_contents", np.int32),
    DType.INT32: ("int_contents", np.int32),
    DType.INT64: ("int64_contents", np.int64),
    DType.UINT8: ("uint_contents", np.uint32),
    DType.UINT16: ("uint_contents", np.uint32),
    DType.UINT32: ("uint_contents", np.uint32),
    DType.UINT64: ("uint64_contents", np.uint64),
    DType.FLOAT32: ("fp32_contents", np.float32),
    DType.FLOAT64: ("fp64_contents", np.float64),
    DType.STRING: ("bytes_contents", np.object_),
}
"""Field of ``InferTensorContents`` for each element type that has one, and how its elements are held."""
_NAME_TAG, _LONG = 1 << 3 | 2, 128
"""Of the field ``model_name``; and the first length that takes two bytes."""
_VALUE_BYTES = 80
"""Of one typed value at most: in its array, the one before it, and once it is written."""


def decode(
    request: pb.ModelInferRequest,
    remaining: float | None = None,
    cancellation: Cancellation | None = None,
    peer: str = "",
    hold: Take = uncounted,
    grow: Take = uncounted,
    size: int = 0,
    waits: bool = True,
    origin: Origin = NOWHERE,
) -> InferRequest:
    """The request in our types; ``remaining`` is the time until the caller's deadline in seconds, for the others see
    :class:`InferRequest`.

    Raises:
        IngotError: INVALID_ARGUMENT, naming the tensor.
    """
    parameters = _parameters(request.parameters)
    check_request(parameters)
    return InferRequest(
        model_name=request.model_name,
        model_version=request.model_version,
        id=request.id,
        inputs=_inputs(request),
        outputs=tuple(output_request(output.name, _parameters(output.parameters)) for output in request.outputs),
        parameters=parameters,
        deadline=deadline(parameters, remaining),
        cancellation=cancellation,
        peer=peer,
        hold=hold,
        grow=grow,
        size=size,
        waits=waits,
        origin=origin,
    )


def model_of(message: bytes) -> str:
    """The name of the model in a serialised request that begins with it, as protobuf writes it; empty otherwise."""
    size = message[1] if len(message) > 1 and message[0] == _NAME_TAG else _LONG
    return message[2 : 2 + size].decode(errors="replace") if size < _LONG else ""


def is_raw(request: pb.ModelInferRequest) -> bool:
    """Whether the answer is to have raw contents: who sends no typed ones has not chosen them."""
    return bool(request.raw_input_contents) or not any(tensor.HasField("contents") for tensor in request.inputs)


def sequence_of(request: pb.ModelInferRequest) -> str:
    """What a request goes on with, if it does: steps of a sequence are computed in the order in which they were sent."""
    if "sequence_id" not in request.parameters:
        return ""
    given = request.parameters["sequence_id"]
    known = given.string_param or given.int64_param or given.uint64_param
    return f"{known} of {request.model_name}" if known else ""


def stream_error(error: IngotError, request: pb.ModelInferRequest | None) -> pb.ModelStreamInferResponse:
    """What a stream says of a request that failed, with the id by which its client knows it, and goes on."""
    failed = pb.ModelInferResponse(id=request.id if request is not None else "")
    return pb.ModelStreamInferResponse(error_message=status_text(error), infer_response=failed)


def encode(response: InferResponse, raw: bool, take: Take) -> pb.ModelInferResponse:
    """``raw`` puts the tensors into ``raw_output_contents``; types without a typed field are raw always.

    Raises:
        IngotError: as ``take``, which is asked before each piece is made, for the message's bytes and once more for those that are sent.
    """
    message = pb.ModelInferResponse(
        model_name=response.model_name, model_version=response.model_version, id=response.id
    )
    raw = raw or any(output.dtype not in CONTENTS for output in response.outputs)
    for output in response.outputs:
        tensor = message.outputs.add(name=output.name, datatype=wire_name(output.dtype), shape=output.array.shape)
        if output.place is not None:  # Triton's clients count on an entry for every output where there are any
            message.raw_output_contents.extend([b""] if raw else [])
            for name, value in place_parameters(output.place).items():
                field = "string_param" if isinstance(value, str) else "int64_param"
                setattr(tensor.parameters[name], field, value)
        elif raw:
            data = to_bytes(output.array, take)
            take(len(data))
            message.raw_output_contents.append(data)
        else:
            _fill(getattr(tensor.contents, CONTENTS[output.dtype][0]), output, take)
    return message


def _fill(contents: Any, output: TensorData, take: Take) -> None:
    """Typed contents: an array of protobuf's grows by doubling, and the last one is there beside the new one."""
    for some in pieces(output.array, take):
        values = some
        if output.dtype is DType.STRING:
            take(2 * sum(map(characters, some)))
            values = [text.encode("utf-8", "surrogateescape") for text in some]
        take(_VALUE_BYTES * len(some))
        contents.extend(values)


def _inputs(request: pb.ModelInferRequest) -> tuple[TensorData | SharedTensor, ...]:
    places = [place_of_input(_parameters(tensor.parameters), tensor.name) for tensor in request.inputs]
    raw, sent = request.raw_input_contents, places.count(None)
    if raw and len(raw) != sent:
        raise IngotError(
            ErrorCode.INVALID_ARGUMENT,
            "raw_input_contents does not have one entry per input",
            field="raw_input_contents",
            expected=f"{sent} entries",
            received=str(len(raw)),
        )
    rest = iter(raw)
    return tuple(
        _input(tensor, next(rest, None)) if place is None else _shared(tensor, place)
        for tensor, place in zip(request.inputs, places, strict=True)
    )


def _shared(tensor: pb.ModelInferRequest.InferInputTensor, place: RegionSlice) -> SharedTensor:
    if tensor.HasField("contents"):
        message = "an input has contents although it lies in shared memory"
        raise IngotError(ErrorCode.INVALID_ARGUMENT, message, tensor=tensor.name, field="contents")
    return SharedTensor(tensor.name, parse_datatype(tensor.datatype, tensor.name), tuple(tensor.shape), place)


def _input(tensor: pb.ModelInferRequest.InferInputTensor, raw: bytes | None) -> TensorData:
    dtype = parse_datatype(tensor.datatype, tensor.name)
    shape = tuple(tensor.shape)
    if raw is None:
        return TensorData(tensor.name, dtype, _typed(tensor, dtype, shape))
    if tensor.HasField("contents"):
        raise IngotError(
            ErrorCode.INVALID_ARGUMENT,
            "an input has contents although raw_input_contents is used",
            tensor=tensor.name,
            field="contents",
        )
    return TensorData(tensor.name, dtype, from_bytes(raw, dtype, shape, tensor.name))


def _typed(tensor: pb.ModelInferRequest.InferInputTensor, dtype: DType, shape: tuple[int, ...]) -> Array:
    if dtype not in CONTENTS:  # FP16, BF16: the protocol has no field for them
        raise IngotError(
            ErrorCode.INVALID_ARGUMENT,
            f"tensors of datatype {tensor.datatype} have no typed contents",
            tensor=tensor.name,
            remedy="Send them in raw_input_contents.",
        )
    name, element = CONTENTS[dtype]
    filled = [field.name for field, _ in tensor.contents.ListFields()]
    if filled not in ([name], []):
        raise IngotError(
            ErrorCode.INVALID_ARGUMENT,
            "the contents of an input do not fit its datatype",
            tensor=tensor.name,
            expected=f"{name} for {tensor.datatype}",
            received=", ".join(filled),
        )
    values: Iterable[Any] = getattr(tensor.contents, name)
    return from_numbers(np.fromiter(values, element), dtype, shape, tensor.name)


def _parameters(parameters: Mapping[str, pb.InferParameter]) -> dict[str, Any]:
    found = {}
    for name, value in parameters.items():
        choice = value.WhichOneof("parameter_choice")
        if choice is not None:
            found[name] = getattr(value, choice)
    return found
