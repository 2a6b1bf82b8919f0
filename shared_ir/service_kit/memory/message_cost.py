"""What a message takes once it is parsed, counted on its bytes before: an empty tensor is 2 bytes there and a hundred in memory.

Format: https://protobuf.dev/programming-guides/encoding. The sizes are at least those of protobuf's own parser (upb), which doubles an
array that is full and keeps the old one: ``tests/shared_ir/service_kit/test_message_cost.py`` compares them with what it allocates.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from shared_ir.errors import ErrorCode, IngotError

MOST_FIELDS = 100_000
"""Fields of one message, those of the messages in it among them: each takes a microsecond to look at."""
_MOST_DEPTH = 100
"""Messages in messages, as protobuf has it."""
_SMALL_BYTES, _SMALL_TIMES = 4096, 96
"""Messages up to so many bytes are not looked at: no byte of theirs becomes more than so many."""
_GROWTH = 4
"""Times that an array takes of what is in it."""
_LEAST = 1024
_MESSAGE_BYTES, _SLOT_BYTES = 96, 24
_FIELD_BYTES = 40
_ENTRY_BYTES = 256
_POINTER, _STRING = 8, 16
_BLOCK_BYTES = 1 << 16
"""Texts up to this size share blocks of memory, of which half may stay empty."""
_VARINT, _LONG, _BYTES, _SHORT = 0, 1, 2, 5
_WIDTHS: Mapping[int, tuple[int, int]] = {
    FieldDescriptor.TYPE_DOUBLE: (_LONG, 8),
    FieldDescriptor.TYPE_FIXED64: (_LONG, 8),
    FieldDescriptor.TYPE_SFIXED64: (_LONG, 8),
    FieldDescriptor.TYPE_FLOAT: (_SHORT, 4),
    FieldDescriptor.TYPE_FIXED32: (_SHORT, 4),
    FieldDescriptor.TYPE_SFIXED32: (_SHORT, 4),
    FieldDescriptor.TYPE_BOOL: (_VARINT, 1),
    FieldDescriptor.TYPE_INT32: (_VARINT, 4),
    FieldDescriptor.TYPE_UINT32: (_VARINT, 4),
    FieldDescriptor.TYPE_SINT32: (_VARINT, 4),
    FieldDescriptor.TYPE_ENUM: (_VARINT, 4),
    FieldDescriptor.TYPE_INT64: (_VARINT, 8),
    FieldDescriptor.TYPE_UINT64: (_VARINT, 8),
    FieldDescriptor.TYPE_SINT64: (_VARINT, 8),
}
"""How numbers are written, and their bytes in memory."""


def cost_of(parser: Any) -> Callable[[bytes], int]:
    """What counts the messages that ``parser`` reads: ``FromString`` of a class of messages, or None for bytes as they are.

    Raises:
        IngotError: INTERNAL, a parser of something else; its method cannot be served.
    """
    if parser is None:
        return len
    description = getattr(getattr(parser, "__self__", None), "DESCRIPTOR", None)
    if not isinstance(description, Descriptor):
        raise IngotError(ErrorCode.INTERNAL, "a method takes messages that nothing counts")
    return functools.partial(message_bytes, description)


def message_bytes(description: Descriptor, data: bytes) -> int:
    """Bytes of memory that ``data`` takes as a message, itself among them.

    Raises:
        IngotError: INVALID_ARGUMENT, more fields than a server parses for one request, or bytes that cannot be counted: groups, fields
            that end outside of their message, and what is no field.
    """
    if len(data) <= _SMALL_BYTES:
        return _LEAST + _SMALL_TIMES * len(data)
    counter = _Counter(data)
    counter.walk(0, len(data), _message(description), 0)
    return _LEAST + 2 * len(data) + counter.size


@dataclass(frozen=True, slots=True)
class _Field:
    """``element`` are bytes that one value takes, more with ``message``; ``wire`` is how a number is written."""

    element: int
    wire: int
    is_packable: bool
    message: Descriptor | None


@dataclass(frozen=True, slots=True)
class _Message:
    size: int
    fields: Mapping[int, _Field]


@functools.cache
def _message(description: Descriptor) -> _Message:
    size = _MESSAGE_BYTES + _SLOT_BYTES * len(description.fields)
    if description.GetOptions().map_entry:
        size += _ENTRY_BYTES
    return _Message(size, {field.number: _field(field) for field in description.fields})


def _field(field: FieldDescriptor) -> _Field:
    times = _GROWTH if field.is_repeated else 1
    if field.type in (FieldDescriptor.TYPE_MESSAGE, FieldDescriptor.TYPE_GROUP):
        return _Field(times * _POINTER, _BYTES, False, field.message_type)
    if field.type in (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES):
        return _Field(times * _STRING, _BYTES, False, None)
    wire, width = _WIDTHS[field.type]
    return _Field(times * width, wire, field.is_repeated, None)


class _Counter:
    """Of one message; ``size`` is what it takes beside twice its bytes."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._left = MOST_FIELDS
        self.size = 0

    def walk(self, at: int, end: int, message: _Message, depth: int) -> None:
        """Count the message that lies from ``at`` to ``end``."""
        if depth > _MOST_DEPTH:
            raise _uncountable("messages in messages", f"at most {_MOST_DEPTH} deep")
        self.size += message.size
        while at < end:
            self._left -= 1
            if self._left < 0:
                raise _too_many()
            begin = at
            tag, at = self._varint(at, end)
            if not 8 <= tag < 1 << 32:
                raise _uncountable("a field without a number", "fields from 1 to 536870911")
            field = message.fields.get(tag >> 3)
            at, start = self._past(tag & 7, at, end)
            self.size += _FIELD_BYTES
            if field is None:
                self.size += _GROWTH * (at - begin)
            elif tag & 7 == field.wire:
                self._value(field, start, at, depth)
            elif tag & 7 == _BYTES and field.is_packable:
                self.size += field.element * self._packed(field.wire, start, at)
            else:  # of another kind than described: kept as it is
                self.size += _GROWTH * (at - begin)

    def _value(self, field: _Field, start: int, end: int, depth: int) -> None:
        self.size += field.element
        if field.message is not None:
            self.walk(start, end, _message(field.message), depth + 1)
        elif field.wire == _BYTES and end - start <= _BLOCK_BYTES:
            self.size += end - start

    def _packed(self, wire: int, start: int, end: int) -> int:
        """Numbers that lie one behind the other."""
        if wire != _VARINT:
            return (end - start) // (8 if wire == _LONG else 4)
        return (
            int(np.count_nonzero(np.frombuffer(self._data, np.uint8, end - start, start) < 128)) if end > start else 0
        )

    def _past(self, kind: int, at: int, end: int) -> tuple[int, int]:
        """Where a value ends, and where it begins."""
        if kind == _VARINT:
            return self._varint(at, end)[1], at
        if kind == _BYTES:
            length, at = self._varint(at, end)
        elif kind in (_LONG, _SHORT):
            length = 8 if kind == _LONG else 4
        else:
            raise _uncountable("a group, or a field of no kind", "messages as fields with a length")
        if at + length > end:
            raise _uncountable("a field that ends outside of its message", "whole fields")
        return at + length, at

    def _varint(self, at: int, end: int) -> tuple[int, int]:
        value = shift = 0
        while at < end and shift < 70:
            byte = self._data[at]
            at += 1
            value |= (byte & 127) << shift
            if byte < 128:
                return value, at
            shift += 7
        raise _uncountable("a number without end", "at most 10 bytes")


def _uncountable(found: str, expected: str) -> IngotError:
    return IngotError(
        ErrorCode.INVALID_ARGUMENT,
        f"the call carries bytes that are no message of this method: {found}",
        expected=expected,
        remedy="Use stubs that were made from the service's own description.",
    )


def _too_many() -> IngotError:
    return IngotError(
        ErrorCode.INVALID_ARGUMENT,
        "the request has too many fields",
        expected=f"{MOST_FIELDS} at most",
        remedy="Send tensors in raw_input_contents, and large values in fewer fields.",
    )
