"""What an inference message takes once it is parsed, counted on its bytes: an empty tensor is 2 bytes there and a hundred in memory.

Format: https://protobuf.dev/programming-guides/encoding. Every length-delimited field down to the contents of tensors is looked at as if it
were a message; what is none (names, raw data) is passed over at its first byte that cannot be one.
"""

from __future__ import annotations

from typing import Any

from shared_ir.errors import ErrorCode, IngotError

_SMALL_BYTES = 4096
"""Messages up to so many bytes are not looked at: all that they can become is less than that of one picture."""
MOST_FIELDS = 100_000
"""Fields of one message, those of its tensors among them."""
_FIELD_BYTES = 128
_PACKED = 8
"""Bytes of memory for each byte of packed numbers at most."""
_PARAMETERS: dict[int, Any] = {4: {}}
_INSIDE: dict[int, Any] = {5: {5: {}, **_PARAMETERS}, 6: {2: {}}, **_PARAMETERS}
"""Numbers of the fields of ``ModelInferRequest`` that are messages themselves: inputs (and in them contents), outputs, parameters."""
_VARINT, _LONG, _BYTES, _SHORT = 0, 1, 2, 5


def message_bytes(data: bytes) -> int:
    """Bytes of memory that ``data`` takes as a message, itself among them.

    Raises:
        IngotError: INVALID_ARGUMENT, more fields than a server parses for one request.
    """
    if len(data) <= _SMALL_BYTES:
        return 2 * len(data)
    counter = _Counter(data)
    counter.walk(0, len(data), _INSIDE)
    return 2 * len(data) + counter.fields * _FIELD_BYTES + counter.packed * _PACKED


class _Counter:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self.fields = 0
        self.packed = 0

    def walk(self, at: int, end: int, inside: dict[int, Any]) -> None:
        """Count the fields from ``at`` to ``end``; ``inside`` are the numbers of those that are messages themselves."""
        while at < end:
            tag, at = self._varint(at, end)
            self.fields += 1
            if self.fields > MOST_FIELDS:
                raise _too_many()
            kind, number = tag & 7, tag >> 3
            if kind == _VARINT:
                _, at = self._varint(at, end)
            elif kind == _BYTES:
                length, at = self._varint(at, end)
                stop = min(at + length, end)
                if number in inside:
                    self.walk(at, stop, inside[number])
                elif not inside:
                    self.packed += stop - at
                at = stop
            elif kind in (_LONG, _SHORT):
                at += 8 if kind == _LONG else 4
            else:
                return  # no message: the parser says so

    def _varint(self, at: int, end: int) -> tuple[int, int]:
        value = shift = 0
        while at < end and shift < 64:
            byte = self._data[at]
            at += 1
            value |= (byte & 127) << shift
            if byte < 128:
                return value, at
            shift += 7
        return 4, end  # no number: a kind of field that there is not


def _too_many() -> IngotError:
    return IngotError(
        ErrorCode.INVALID_ARGUMENT,
        "the request has too many fields",
        field="inputs",
        expected=f"{MOST_FIELDS} at most",
        remedy="Send tensors in raw_input_contents.",
    )
