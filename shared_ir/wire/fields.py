"""Serialised protobuf messages as fields, without a description of them and without copies.

Wire format: https://protobuf.dev/programming-guides/encoding.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5


class WireError(ValueError):
    """The bytes are not a sequence of protobuf fields."""


class TruncatedError(WireError):
    """A field reaches past the end of the bytes."""


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
        number, wire_type, content, at = field_at(view, at, end)
        if at > end:
            raise past_the_end(number, wire_type, at - content)
        yield number, wire_type, field_start, content, at


def field_at(view: memoryview, at: int, end: int) -> tuple[int, int, int, int]:
    """Number and wire type of a field, where its content starts and where it ends, which may be behind ``end``.

    Raises:
        WireError: the bytes do not parse; TruncatedError, they end before its content.
    """
    tag, at = varint(view, at, end)
    number, wire_type = tag >> 3, tag & 7
    if number == 0:
        raise WireError("field number 0")
    content = at
    if wire_type == VARINT:
        _, at = varint(view, at, end)
    elif wire_type == BYTES:
        length, content = varint(view, at, end)
        at = content + length
    elif wire_type in (FIXED32, FIXED64):
        at += 4 if wire_type == FIXED32 else 8
    else:
        raise WireError(f"wire type {wire_type}")
    return number, wire_type, content, at


def past_the_end(number: int, wire_type: int, length: int) -> TruncatedError:
    size = f" of {length} bytes" if wire_type == BYTES else ""
    return TruncatedError(f"field {number}{size} reaches past the end")


def varint_bytes(value: int) -> bytes:
    """A number in wire format."""
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def varint(view: memoryview, at: int, end: int) -> tuple[int, int]:
    """A number, and where it ends."""
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
