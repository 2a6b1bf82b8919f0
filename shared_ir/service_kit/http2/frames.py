"""Frames of HTTP/2 as they are written (RFC 9113, sections 4 and 6)."""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterable, Mapping

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEAD_BYTES = 9
DEFAULT_WINDOW_BYTES = 65_535
DEFAULT_FRAME_BYTES = 16_384
MOST_WINDOW = (1 << 31) - 1
MOST_FRAME = (1 << 24) - 1

END_STREAM, ACK = 0x1, 0x1
END_HEADERS = 0x4
PADDED = 0x8
PRIORITISED = 0x20

_HEAD = struct.Struct(">HBBBL")
_SETTING = struct.Struct(">HL")
_WORD = struct.Struct(">L")


class FrameKind(enum.IntEnum):
    DATA = 0
    HEADERS = 1
    PRIORITY = 2
    RST_STREAM = 3
    SETTINGS = 4
    PUSH_PROMISE = 5
    PING = 6
    GOAWAY = 7
    WINDOW_UPDATE = 8
    CONTINUATION = 9


class Setting(enum.IntEnum):
    HEADER_TABLE_SIZE = 1
    ENABLE_PUSH = 2
    MAX_CONCURRENT_STREAMS = 3
    INITIAL_WINDOW_SIZE = 4
    MAX_FRAME_SIZE = 5
    MAX_HEADER_LIST_SIZE = 6


class Code(enum.IntEnum):
    """Why a stream or a connection ends (section 7)."""

    NO_ERROR = 0
    PROTOCOL_ERROR = 1
    INTERNAL_ERROR = 2
    FLOW_CONTROL_ERROR = 3
    SETTINGS_TIMEOUT = 4
    STREAM_CLOSED = 5
    FRAME_SIZE_ERROR = 6
    REFUSED_STREAM = 7
    CANCEL = 8
    COMPRESSION_ERROR = 9
    CONNECT_ERROR = 10
    ENHANCE_YOUR_CALM = 11
    INADEQUATE_SECURITY = 12
    HTTP_1_1_REQUIRED = 13


class ConnectionFault(Exception):
    """What a peer sent ends the connection with ``code``."""

    def __init__(self, code: Code, text: str) -> None:
        super().__init__(text)
        self.code = code


class StreamFault(Exception):
    """What a peer sent ends one stream with ``code``."""

    def __init__(self, code: Code, text: str) -> None:
        super().__init__(text)
        self.code = code


def head(kind: int, flags: int, stream: int, size: int) -> bytes:
    """The 9 bytes before a payload of ``size``."""
    return _HEAD.pack(size >> 8, size & 0xFF, kind, flags, stream)


def settings(values: Mapping[int, int]) -> bytes:
    payload = b"".join(_SETTING.pack(name, value) for name, value in values.items())
    return head(FrameKind.SETTINGS, 0, 0, len(payload)) + payload


def parse_settings(payload: bytes) -> Iterable[tuple[int, int]]:
    """``(name, value)`` in their order. Raises ConnectionFault FRAME_SIZE_ERROR."""
    if len(payload) % _SETTING.size:
        raise ConnectionFault(Code.FRAME_SIZE_ERROR, "settings of no whole number")
    return tuple(_SETTING.iter_unpack(payload))


SETTINGS_ACK = head(FrameKind.SETTINGS, ACK, 0, 0)


def window_update(stream: int, count: int) -> bytes:
    return head(FrameKind.WINDOW_UPDATE, 0, stream, 4) + _WORD.pack(count)


def reset(stream: int, code: Code) -> bytes:
    return head(FrameKind.RST_STREAM, 0, stream, 4) + _WORD.pack(code)


def goaway(last: int, code: Code, text: str = "") -> bytes:
    """``last`` is the highest stream that was, or is still, answered."""
    payload = _WORD.pack(last) + _WORD.pack(code) + text.encode()[:200]
    return head(FrameKind.GOAWAY, 0, 0, len(payload)) + payload


def ping(payload: bytes, flags: int = 0) -> bytes:
    return head(FrameKind.PING, flags, 0, len(payload)) + payload


def word(payload: bytes | memoryview) -> int:
    """31 bits; the one above is reserved."""
    return int.from_bytes(payload[:4], "big") & MOST_WINDOW


def literal(name: bytes, value: bytes) -> bytes:
    """One header field that changes no table and is looked up in none (RFC 7541, section 6.2.2), its strings as they are."""
    return b"\x00" + _string(name) + _string(value)


def _string(text: bytes) -> bytes:
    size = len(text)
    if size < 127:
        return bytes((size,)) + text
    rest, found = size - 127, bytearray(b"\x7f")
    while rest >= 128:
        found.append(rest & 0x7F | 0x80)
        rest >>= 7
    found.append(rest)
    return bytes(found) + text
