"""A look at the outline of a serialised ModelProto before protobuf parses it.

It tells a truncated file from one that is no protobuf, reads the versions, and counts what the main graph holds, so that a
small hostile file cannot make the parser allocate without bound. Wire format: protobuf.dev/programming-guides/encoding.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
_MODEL_WIRE_TYPES = {
    1: VARINT,
    2: BYTES,
    3: BYTES,
    4: BYTES,
    5: VARINT,
    6: BYTES,
    7: BYTES,
    8: BYTES,
    14: BYTES,
    20: BYTES,
    25: BYTES,
    26: BYTES,
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


def outline(data: bytes | memoryview, most_entries: int) -> Outline:
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
        if (number, wire_type) == (1, BYTES):
            domain = bytes(content).decode("utf-8", "replace")
        elif (number, wire_type) == (2, VARINT):
            version = value
    return domain, version


def _fields(view: memoryview) -> Iterator[tuple[int, int, int, memoryview]]:
    """Number, wire type, integer value and content of every field."""
    nothing = view[:0]
    for number, wire_type, _, content, after in spans(view, 0, len(view)):
        value = _varint(view, content, after)[0] if wire_type == VARINT else 0
        yield number, wire_type, value, view[content:after] if wire_type == BYTES else nothing


def numbers_of(*fields: tuple[int, int]) -> re.Pattern[bytes]:
    """What matches any numbers of these fields in a row, given by field number (to 15) and wire type: each is written with a
    tag of its own, and a tree ensemble has millions."""
    contents = {VARINT: rb"[\x80-\xff]{0,9}[\x00-\x7f]", FIXED32: rb".{4}", FIXED64: rb".{8}"}
    choices = [re.escape(bytes([number << 3 | kind])) + contents[kind] for number, kind in fields]
    return re.compile(rb"(?:%b)++" % rb"|".join(choices), re.DOTALL)


def spans(
    view: memoryview, start: int, end: int, passed_over: re.Pattern[bytes] | None = None
) -> Iterator[tuple[int, int, int, int, int]]:
    """Number and wire type of every field of the message ``view[start:end]``, where it starts, where its content starts and
    where it ends; of all but those that match ``passed_over``.

    Raises:
        WireError: the bytes do not parse.
    """
    at = start
    while at < end:
        if passed_over is not None and (run := passed_over.match(view, at, end)):
            at = run.end()
            continue
        field_start = at
        tag, at = _varint(view, at, end)
        number, wire_type = tag >> 3, tag & 7
        if number == 0:
            raise WireError("field number 0")
        content = at
        if wire_type == VARINT:
            _, at = _varint(view, at, end)
        elif wire_type == BYTES:
            length, content = _varint(view, at, end)
            at = content + length
        elif wire_type in (FIXED32, FIXED64):
            at += 4 if wire_type == FIXED32 else 8
        else:
            raise WireError(f"wire type {wire_type}")
        if at > end:
            size = f" of {at - content} bytes" if wire_type == BYTES else ""
            raise TruncatedError(f"field {number}{size} reaches past the end")
        yield number, wire_type, field_start, content, at


def varint_bytes(value: int) -> bytes:
    """A number in wire format."""
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _varint(view: memoryview, at: int, end: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= end:
            raise TruncatedError("the bytes end inside a number")
        byte = view[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise WireError("a number of more than 64 bits")
