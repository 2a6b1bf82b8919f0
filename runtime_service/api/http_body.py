"""Bodies of HTTP/1.1 requests: lengths, chunks, compression, all bounded (RFC 9112 sections 6 and 7)."""

from __future__ import annotations

import zlib
from email.message import Message
from http import HTTPStatus
from typing import Protocol

_CHUNK = 1 << 20


class ByteStream(Protocol):
    """A buffered binary reader."""

    def readinto(self, buffer: memoryview, /) -> int: ...

    def readline(self, size: int, /) -> bytes: ...


class BadRequest(Exception):
    """The body cannot be read; the connection must be closed after answering ``status``."""

    def __init__(self, status: HTTPStatus, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


def read_body(stream: ByteStream, headers: Message, limit: int) -> bytes | memoryview:
    """The decoded body of a request, at most ``limit`` bytes; empty when the headers announce none.

    Raises:
        BadRequest: lengths that contradict each other, too long, truncated, of an unknown coding.
        TimeoutError: it did not arrive in time.
    """
    lengths = headers.get_all("Content-Length", [])
    codings = ",".join(headers.get_all("Transfer-Encoding", [])).lower().replace(" ", "")
    if codings:
        if lengths:
            raise BadRequest(HTTPStatus.BAD_REQUEST, "a request has both Content-Length and Transfer-Encoding")
        if codings != "chunked":
            raise BadRequest(HTTPStatus.NOT_IMPLEMENTED, f"unknown Transfer-Encoding {codings[:100]!r}")
        body: bytes | memoryview = _read_chunks(stream, limit)
    else:
        body = _read_exactly(stream, _content_length(lengths, limit))
    coding = headers.get("Content-Encoding", "identity").strip().lower()
    return body if coding == "identity" else _decompress(body, coding, limit)


def _content_length(lengths: list[str], limit: int) -> int:
    distinct = {part.strip() for length in lengths for part in length.split(",")}
    if not distinct:
        return 0
    text = distinct.pop()
    if distinct or not (text.isascii() and text.isdecimal()):
        raise BadRequest(HTTPStatus.BAD_REQUEST, "malformed Content-Length")
    if len(text) > 18 or int(text) > limit:
        raise _too_large(limit)
    return int(text)


def _read_exactly(stream: ByteStream, length: int) -> memoryview:
    # Grown as data arrives: a declared length alone must not make the server allocate it.
    buffer = bytearray(min(length, 16 * _CHUNK))
    filled = 0
    while filled < length:
        if filled == len(buffer):
            buffer += bytes(min(length - filled, len(buffer)))
        with memoryview(buffer) as view:
            count = stream.readinto(view[filled:])
        if not count:
            raise BadRequest(HTTPStatus.BAD_REQUEST, "the connection ended inside the body")
        filled += count
    return memoryview(buffer)


def _read_chunks(stream: ByteStream, limit: int) -> bytes:
    parts: list[bytes] = []
    total = 0
    while True:
        size_text = _line(stream).partition(b";")[0].strip()
        if not size_text or len(size_text) > 16 or size_text.strip(b"0123456789abcdefABCDEF"):
            raise BadRequest(HTTPStatus.BAD_REQUEST, "malformed chunk size")
        size = int(size_text, 16)
        total += size
        if total > limit:
            raise _too_large(limit)
        if size == 0:
            break
        parts.append(bytes(_read_exactly(stream, size)))
        if _line(stream):
            raise BadRequest(HTTPStatus.BAD_REQUEST, "malformed chunk")
    for _ in range(100):  # trailer fields
        if not _line(stream):
            return b"".join(parts)
    raise BadRequest(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "too many trailer fields")


def _line(stream: ByteStream) -> bytes:
    line = stream.readline(8192)
    if not line.endswith(b"\n"):
        raise BadRequest(HTTPStatus.BAD_REQUEST, "malformed chunked body")
    return line.rstrip(b"\r\n")


def _decompress(body: bytes | memoryview, coding: str, limit: int) -> bytes:
    if coding not in ("gzip", "deflate"):
        raise BadRequest(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"unknown Content-Encoding {coding[:100]!r}")
    decoder = zlib.decompressobj(wbits=47 if coding == "gzip" else 15)
    try:
        data = decoder.decompress(body, limit + 1)
    except zlib.error as error:
        raise BadRequest(HTTPStatus.BAD_REQUEST, f"the body is not valid {coding}: {error}") from error
    if len(data) > limit:
        raise _too_large(limit)
    if not decoder.eof:
        raise BadRequest(HTTPStatus.BAD_REQUEST, f"the {coding} body is truncated")
    return data


def _too_large(limit: int) -> BadRequest:
    return BadRequest(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        f"the request is larger than {limit} bytes; INGOT_RUNTIME_MAX_REQUEST_BYTES sets the limit",
    )
