"""A look at the outline of a serialised ModelProto before protobuf parses it.

It tells a truncated file from one that is no protobuf, reads the versions, and counts what the main graph holds, so that a
small hostile file cannot make the parser allocate without bound.
"""

from __future__ import annotations

from collections.abc import Iterator

from shared_ir.wire.fields import BYTES, VARINT, spans, varint
from shared_ir.wire.model_head import MODEL_WIRE_TYPES, Outline, opset_of


def outline(data: bytes | memoryview, most_entries: int) -> Outline:
    """Read the outline of a ModelProto; stops counting graph entries above ``most_entries``.

    Raises:
        WireError: the bytes do not parse.
    """
    view = memoryview(data)
    found = Outline()
    for number, wire_type, value, body in _fields(view):
        if number not in MODEL_WIRE_TYPES or wire_type != MODEL_WIRE_TYPES[number]:
            found.foreign_fields += 1
            continue
        found.known_fields += 1
        if number == 1:
            found.ir_version = value
        elif number == 8:
            domain, version = opset_of(body)
            found.opsets[domain] = version
        elif number == 7:
            found.graphs += 1
            for _ in _fields(body):
                found.graph_entries += 1
                if found.graph_entries > most_entries:
                    return found
    return found


def _fields(view: memoryview) -> Iterator[tuple[int, int, int, memoryview]]:
    """Number, wire type, integer value and content of every field."""
    nothing = view[:0]
    for number, wire_type, _, content, after in spans(view, 0, len(view)):
        value = varint(view, content, after)[0] if wire_type == VARINT else 0
        yield number, wire_type, value, view[content:after] if wire_type == BYTES else nothing
