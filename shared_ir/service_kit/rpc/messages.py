"""The messages of a call: each has a byte that says whether it is compressed, four that say how long it is, and then itself."""

from __future__ import annotations

import struct

from shared_ir.errors import ErrorCode, IngotError

_PREFIX = struct.Struct(">BL")
PREFIX_BYTES = _PREFIX.size


def framed(message: bytes) -> bytes:
    return _PREFIX.pack(0, len(message)) + message


_BEGINNING_BYTES = 256


class Assembler:
    """Puts the messages of one call together. ``most`` is the largest, in bytes.

    NOTE: what is not whole lies in one piece, however small the pieces in which it comes: an object for each would take many times as much.
    """

    __slots__ = ("_most", "_rest", "_size")

    def __init__(self, most: int) -> None:
        self._most = most
        self._rest = bytearray()
        self._size = 0

    @property
    def held(self) -> int:
        """Bytes of a message that is not whole."""
        return len(self._rest)

    @property
    def beginning(self) -> bytes:
        """Of a message that is not whole, as much as says what it is about."""
        return bytes(self._rest[PREFIX_BYTES : PREFIX_BYTES + _BEGINNING_BYTES])

    @property
    def missing(self) -> int:
        """Bytes that the message that has begun lacks, as far as that is known."""
        return max(0, self._size - len(self._rest))

    @property
    def is_between(self) -> bool:
        """Whether no message has begun."""
        return not self._rest

    def feed(self, data: bytes) -> list[bytes]:
        """The messages that are whole with ``data``.

        Raises:
            IngotError: INVALID_ARGUMENT, a message is compressed; RESOURCE_EXHAUSTED, it is larger than that, as gRPC has it.
        """
        if not self._rest:
            found, at = self._whole(data)
            self._rest += data[at:]
            return found
        self._rest += data
        if len(self._rest) < self._size:
            return []
        found, at = self._whole(self._rest)
        if at:
            self._rest = self._rest[at:]
        return found

    def _whole(self, data: bytes | bytearray) -> tuple[list[bytes], int]:
        """The messages that ``data`` begins with, and where they end."""
        found: list[bytes] = []
        at, end = 0, len(data)
        self._size = 0
        with memoryview(data) as view:
            while end - at >= PREFIX_BYTES:
                flag, size = _PREFIX.unpack_from(data, at)
                self._check(flag, size)
                start, after = at + PREFIX_BYTES, at + PREFIX_BYTES + size
                if after > end:
                    self._size = after - at
                    break
                found.append(bytes(view[start:after]))
                at = after
        return found, at

    def _check(self, flag: int, size: int) -> None:
        if flag:
            raise IngotError(
                ErrorCode.INVALID_ARGUMENT,
                "a message is compressed",
                expected="messages as they are",
                remedy="Turn compression off for this server.",
            )
        if size > self._most:
            raise IngotError(
                ErrorCode.RESOURCE_EXHAUSTED,
                "a message is larger than this server takes",
                expected=f"at most {self._most} bytes",
                received=f"{size} bytes",
            )
