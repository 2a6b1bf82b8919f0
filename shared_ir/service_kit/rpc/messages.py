"""The messages of a call: each has a byte that says whether it is compressed, four that say how long it is, and then itself."""

from __future__ import annotations

import struct

from shared_ir.errors import ErrorCode, IngotError

_PREFIX = struct.Struct(">BL")
PREFIX_BYTES = _PREFIX.size


def framed(message: bytes) -> bytes:
    return _PREFIX.pack(0, len(message)) + message


class Assembler:
    """Puts the messages of one call together. ``most`` is the largest, in bytes."""

    __slots__ = ("_held", "_most", "_parts", "_size")

    def __init__(self, most: int) -> None:
        self._most = most
        self._parts: list[bytes] = []
        self._held = self._size = 0

    @property
    def held(self) -> int:
        """Bytes of a message that is not whole."""
        return self._held

    @property
    def missing(self) -> int:
        """Bytes that the message that has begun lacks, as far as that is known."""
        return max(0, self._size - self._held)

    @property
    def is_between(self) -> bool:
        """Whether no message has begun."""
        return not self._held

    def feed(self, data: bytes) -> list[bytes]:
        """The messages that are whole with ``data``.

        Raises:
            IngotError: INVALID_ARGUMENT, a message is compressed; RESOURCE_EXHAUSTED, it is larger than that, as gRPC has it.
        """
        if data:
            self._parts.append(data)
            self._held += len(data)
        found: list[bytes] = []
        while self._held >= PREFIX_BYTES:
            if len(self._parts[0]) < PREFIX_BYTES:
                self._parts = [b"".join(self._parts)]
            flag, size = _PREFIX.unpack_from(self._parts[0])
            self._check(flag, size)
            self._size = PREFIX_BYTES + size
            if self._held < self._size:
                break
            whole = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
            end = PREFIX_BYTES + size
            found.append(whole[PREFIX_BYTES:end])
            self._held -= end
            self._parts = [whole[end:]] if self._held else []
            self._size = 0
        return found

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
