"""A look at the outline of a serialised ModelProto before protobuf parses it.

It tells a truncated file from one that is no protobuf, reads the versions, and counts what the main graph holds, so that a
small hostile file cannot make the parser allocate without bound. Wire format: protobuf.dev/programming-guides/encoding.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_MODEL_WIRE_TYPES = {
    1: _VARINT,
    2: _BYTES,
    3: _BYTES,
    4: _BYTES,
    5: _VARINT,
    6: _BYTES,
    7: _BYTES,
    8: _BYTES,
    14: _BYTES,
    20: _BYTES,
    25: _BYTES,
    26: _BYTES,
}
"""Fields of ModelProto (onnx.proto): ir_version, producer_name, producer_version, domain, model_version, doc_string, graph,
opset_import, metadata_props, training_info, functions, configuration."""


class WireError(ValueError):
    """The bytes are not a sequence of protobuf fields."""


class TruncatedError(WireError):
    """A field reaches past the end of the bytes."""


@dataclass
class Outline:
    """What the first look tells."""

    ir_version: int | None = None
    opsets: dict[str, int] = field(default_factory=dict)
    graphs: int = 0
    graph_entries: int = 0
    known_fields: int = 0
    foreign_fields: int = 0


def outline(data: bytes, most_entries: int) -> Outline:
    """Read the outline of a ModelProto; stops counting graph entries above ``most_entries``.

    Raises:
        WireError: the bytes do not parse.
    """
    view = memoryview(data)
    found = Outline()
    for number, wire_type, value, body in _fields(view):
        if number not in _MODEL_WIRE_TYPES or wire_type != _MODEL_WIRE_TYPES[number]:
            found.foreign_fields += 1
            continue
        found.known_fields += 1
        if number == 1:
            found.ir_version = value
        elif number == 8:
            domain, version = _opset(body)
            found.opsets[domain] = version
        elif number == 7:
            found.graphs += 1
            for _ in _fields(body):
                found.graph_entries += 1
                if found.graph_entries > most_entries:
                    return found
    return found


def _opset(body: memoryview) -> tuple[str, int]:
    """Domain and version of an OperatorSetIdProto; version 0 when absent."""
    domain, version = "", 0
    for number, wire_type, value, content in _fields(body):
        if (number, wire_type) == (1, _BYTES):
            domain = bytes(content).decode("utf-8", "replace")
        elif (number, wire_type) == (2, _VARINT):
            version = value
    return domain, version


def _fields(view: memoryview) -> Iterator[tuple[int, int, int, memoryview]]:
    """Number, wire type, integer value and content of every field."""
    at, end = 0, len(view)
    nothing = view[:0]
    while at < end:
        tag, at = _varint(view, at)
        number, wire_type = tag >> 3, tag & 7
        if number == 0:
            raise WireError("field number 0")
        value, content = 0, nothing
        if wire_type == _VARINT:
            value, at = _varint(view, at)
        elif wire_type == _BYTES:
            length, at = _varint(view, at)
            if at + length > end:
                raise TruncatedError(f"field {number} of {length} bytes reaches past the end")
            content, at = view[at : at + length], at + length
        elif wire_type in (_FIXED32, _FIXED64):
            at += 4 if wire_type == _FIXED32 else 8
            if at > end:
                raise TruncatedError(f"field {number} reaches past the end")
        else:
            raise WireError(f"wire type {wire_type}")
        yield number, wire_type, value, content


def _varint(view: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(view):
            raise TruncatedError("the bytes end inside a number")
        byte = view[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise WireError("a number of more than 64 bits")
