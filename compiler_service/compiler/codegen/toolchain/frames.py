"""Messages over a pipe: a JSON header, prefixed by its length, and the bytes that the header announces."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO

_LENGTH = struct.Struct(">I")
_MOST_HEADER_BYTES = 1 << 20

Header = dict[str, Any]
ReadExactly = Callable[[int], bytes]
"""Returns that many bytes, or fewer at the end of the stream."""


def write_frame(stream: BinaryIO, header: Mapping[str, Any], body: bytes = b"") -> None:
    """Sends ``header`` and ``body``; the header gains the key ``size``.

    Raises:
        OSError: the other end is gone.
    """
    encoded = json.dumps({**header, "size": len(body)}).encode()
    message = memoryview(_LENGTH.pack(len(encoded)) + encoded + body)
    while message:  # an unbuffered pipe may take a part only
        message = message[stream.write(message) :]
    stream.flush()


def read_frame(read: ReadExactly) -> tuple[Header, bytes] | None:
    """The next message, or ``None`` at the end of the stream (also in the middle of a message).

    Raises:
        ValueError: what was received is not a message.
    """
    prefix = read(_LENGTH.size)
    if len(prefix) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack(prefix)
    if length > _MOST_HEADER_BYTES:
        raise ValueError(f"a header of {length} bytes")
    encoded = read(length)
    if len(encoded) < length:
        return None
    header = json.loads(encoded)
    body = read(header["size"])
    return None if len(body) < header["size"] else (header, body)
