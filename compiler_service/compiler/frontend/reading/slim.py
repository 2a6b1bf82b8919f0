"""A serialised model without the bytes of its large tensors, which stay where they are.

Protobuf copies every tensor out of the file, the caller having read the file into memory first: twice the model before anything
is done. Here the large ``raw_data`` fields are left out and each tensor refers to its place in the file instead, the way that
it would refer to external data.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

import onnx

from shared_ir.wire.fields import (
    BYTES,
    FIXED32,
    VARINT,
    WireError,
    numbers_of,
    spans,
    varint_bytes,
)

OWN_FILE = "\0model"
"""The ``location`` of tensors whose data is in the model itself; no file can have this name."""

_LEAST_BYTES = 4096
_MOST_LEVELS = 100  # protobuf does not parse deeper messages either
_RAW_DATA = 9
_ELSEWHERE = frozenset({3, 13, 14})  # segment, external_data, data_location
_PARTS: Mapping[str, Mapping[int, str]] = MappingProxyType(
    {
        "model": {7: "graph", 25: "function"},
        "graph": {1: "node", 5: "tensor", 15: "sparse tensor"},
        "function": {7: "node"},
        "node": {5: "attribute"},
        "attribute": {
            5: "tensor",
            6: "graph",
            10: "tensor",
            11: "graph",
            22: "sparse tensor",
            23: "sparse tensor",
        },
        "sparse tensor": {1: "tensor", 2: "tensor"},
    }
)
"""Message -> field number -> message inside which tensors may be (onnx.proto)."""

_NUMBERS: Mapping[str, re.Pattern[bytes]] = MappingProxyType({"attribute": numbers_of((7, FIXED32), (8, VARINT))})
"""``floats`` and ``ints`` (onnx.proto)."""

Piece = bytes | memoryview


def without_tensors(model: memoryview) -> bytes:
    """``model`` with references in place of tensor data; equal to it where nothing is large."""
    return b"".join(_message(model, 0, len(model), "model", 0))


def _message(model: memoryview, start: int, end: int, kind: str, level: int) -> list[Piece]:
    """The message ``model[start:end]`` in pieces; as it is where it does not parse, for protobuf to say what is wrong."""
    if end - start < _LEAST_BYTES or level > _MOST_LEVELS:
        return [model[start:end]]
    try:
        if kind == "tensor":
            return _tensor(model, start, end)
        return _with_parts(model, start, end, kind, level)
    except WireError:
        return [model[start:end]]


def _with_parts(model: memoryview, start: int, end: int, kind: str, level: int) -> list[Piece]:
    parts, found, done = _PARTS[kind], list[Piece](), start
    for number, wire_type, at, content, after in spans(model, start, end, _NUMBERS.get(kind)):
        if number not in parts or wire_type != BYTES or after - content < _LEAST_BYTES:
            continue
        pieces = _message(model, content, after, parts[number], level + 1)
        found += [model[done:at], varint_bytes(number << 3 | BYTES) + varint_bytes(sum(map(len, pieces))), *pieces]
        done = after
    return [*found, model[done:end]]


def _tensor(model: memoryview, start: int, end: int) -> list[Piece]:
    fields = list(spans(model, start, end))
    raw = [f for f in fields if f[:2] == (_RAW_DATA, BYTES)]
    if len(raw) != 1 or any(f[0] in _ELSEWHERE for f in fields):
        return [model[start:end]]
    ((_, _, at, content, after),) = raw
    if after - content < _LEAST_BYTES:
        return [model[start:end]]
    reference = onnx.TensorProto(data_location=onnx.TensorProto.EXTERNAL)
    for key, value in (("location", OWN_FILE), ("offset", str(content)), ("length", str(after - content))):
        reference.external_data.add(key=key, value=value)
    return [model[start:at], model[after:end], reference.SerializeToString()]
