"""The head of a gRPC call, and the heads and trailers of answers, as HTTP/2 carries them.

Format: https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md
"""

from __future__ import annotations

import base64
import binascii
import functools
import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote_from_bytes

import grpc

from shared_ir.service_kit.http2.frames import literal
from shared_ir.service_kit.http2.headers import Http2Head

Metadata = tuple[tuple[str, str | bytes], ...]
_TIMEOUT = re.compile(rb"([0-9]{1,8})([HMSmun])")
_CONTENT_TYPE = re.compile(rb"application/grpc(?:[+;]|$)")
"""NOTE: grpc-web is framed otherwise."""
_SECONDS = {b"H": 3600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}
_ENTRY_BYTES = 200
"""Of a pair of texts, beside their characters."""
_OWN = frozenset({b"te", b"content-type", b"grpc-timeout", b"grpc-encoding", b"grpc-accept-encoding"})
"""Fields that are between the two ends of the transport."""
_PLAIN = bytes(range(0x20, 0x7F)).replace(b"%", b"").decode()
_STATUS_200 = b"\x88"
"""``:status: 200``, which has a place in every table."""
ANSWER_HEAD = (
    _STATUS_200 + literal(b"content-type", b"application/grpc") + literal(b"grpc-accept-encoding", b"identity")
)
SUCCESS = literal(b"grpc-status", b"0")
NO_GRPC = literal(b":status", b"415")


@dataclass(frozen=True, slots=True)
class RequestHead:
    """``path`` is ``/service/method``; ``timeout`` in seconds, None without end; ``refusal`` says why it cannot be a call; ``size`` is what
    its metadata take in memory, in bytes, 0 for a small one, which calls that say the same share."""

    path: str
    metadata: Metadata
    timeout: float | None = None
    refusal: tuple[grpc.StatusCode, str] | None = None
    is_grpc: bool = True
    size: int = 0


def read_head(head: Http2Head) -> RequestHead:
    """What a request says of its call."""
    return _remembered(head) if head.is_small else _read(head)


def _read(head: Http2Head) -> RequestHead:
    fields = dict(head.fields)
    is_grpc = head.method == b"POST" and _CONTENT_TYPE.match(fields.get(b"content-type", b"")) is not None
    refusal = None
    timeout = None
    if b"grpc-timeout" in fields:
        match = _TIMEOUT.fullmatch(fields[b"grpc-timeout"])
        if match is None:
            refusal = grpc.StatusCode.INTERNAL, "the timeout of the call is malformed"
        else:
            timeout = int(match[1]) * _SECONDS[match[2]]
    encoding = fields.get(b"grpc-encoding", b"identity")
    if encoding != b"identity":
        text = f"the compression {encoding.decode('latin-1')[:50]!r} is disabled: messages are taken as they are"
        refusal = grpc.StatusCode.UNIMPLEMENTED, text
    try:
        metadata = tuple(_entry(name, value) for name, value in head.fields if name not in _OWN)
    except binascii.Error:
        metadata, refusal = (), (grpc.StatusCode.INTERNAL, "binary metadata is malformed")
    size = 0 if head.is_small else sum(_ENTRY_BYTES + len(name) + len(value) for name, value in head.fields)
    return RequestHead(head.path.decode("latin-1"), metadata, timeout, refusal, is_grpc, size)


_remembered = functools.lru_cache(maxsize=1024)(_read)


def _entry(name: bytes, value: bytes) -> tuple[str, str | bytes]:
    key = name.decode("ascii")
    if not key.endswith("-bin"):
        return key, value.decode("latin-1")
    first = value.partition(b",")[0]
    return key, base64.b64decode(first + b"=" * (-len(first) % 4), validate=True)


def trailers(code: grpc.StatusCode, details: str, metadata: Any = ()) -> bytes:
    """The compressed block that ends a call."""
    if code is grpc.StatusCode.OK and not details and not metadata:
        return SUCCESS
    number: int = code.value[0]
    found = [literal(b"grpc-status", b"%d" % number)]
    if details:
        found.append(literal(b"grpc-message", _quoted(details)))
    for name, value in metadata:
        data = base64.b64encode(value).rstrip(b"=") if isinstance(value, bytes) else value.encode()
        found.append(literal(name.encode(), data))
    return b"".join(found)


def _quoted(text: str) -> bytes:
    """A value may have no blanks around it."""
    inner = text.strip(" ")
    before = len(text) - len(text.lstrip(" "))
    after = len(text) - len(inner) - before
    return b"%20" * before + quote_from_bytes(inner.encode(), safe=_PLAIN).encode() + b"%20" * after
