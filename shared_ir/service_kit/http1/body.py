"""Bodies of HTTP/1.1 requests: lengths, chunks, compression, all bounded (RFC 9112 sections 6 and 7)."""

from __future__ import annotations

import re
import threading
import zlib
from collections.abc import Callable
from http import HTTPStatus
from typing import Protocol, Self

import numpy

from shared_ir.errors import ErrorCode, IngotError
from shared_ir.service_kit.http1.head import FIELD, Http1Head, HttpRefusal
from shared_ir.service_kit.http1.source import ByteSource, Need, Reading

_LEAST_STEP, _MOST_STEP = 1 << 16, 1 << 20
_MOST_FRAMING = 64 * 1024
"""Bytes of a chunked body that are not its data, beyond as many as are."""
_CHUNKS_OF_A_TURN = 200
"""They take a millisecond."""
_EXTENSION = re.compile(rb"(?:[ \t]*;[^\x00-\x08\x0a-\x1f\x7f]*+)?")
_MOST_LINE_BYTES = 8192
_SLICE_BYTES = 64 * 1024
"""Compressed bytes that are given to the decoder at once: it copies what it has not used yet."""
_LARGE = threading.BoundedSemaphore(1)
"""Held while a body is unpacked that has come to a step already."""
_LOOK_SECONDS = 0.1
"""How often who waits for that looks whether its client is still there."""


class Holder(Protocol):
    """Counts what a body takes; refuses with an IngotError."""

    def take(self, count: int, /) -> bool:
        """Whether there is room for so many bytes more; where there is not yet, it is asked again."""


class Unpacker(Protocol):
    """Counts what is unpacked; refuses with an IngotError."""

    def take(self, count: int, /) -> None: ...

    def give(self, count: int, /) -> None: ...


def has_body(head: Http1Head) -> bool:
    return "transfer-encoding" in head.fields or head.fields.get("content-length", "0") != "0"


def declared_length(head: Http1Head, limit: int) -> int | None:
    """How long the body says it is; ``None`` for one in chunks.

    Raises:
        HttpRefusal: lengths that contradict each other, that are more than ``limit``, an unknown coding.
    """
    codings = head.fields.get("transfer-encoding")
    length = head.fields.get("content-length")
    if codings is None:
        return 0 if length is None else _content_length(length, limit)
    if length is not None or head.is_old:
        raise _bad("a request has both Content-Length and Transfer-Encoding, or the latter in HTTP/1.0")
    if codings.lower() != "chunked":
        raise _bad("unknown Transfer-Encoding", "chunked", HTTPStatus.NOT_IMPLEMENTED)
    return None


def coding_of(head: Http1Head) -> str:
    """How the body is packed: ``identity``, ``gzip`` or ``deflate``; raises HttpRefusal for others."""
    coding = head.fields.get("content-encoding", "identity").lower()
    if coding not in ("identity", "gzip", "deflate"):
        raise _bad("unknown Content-Encoding", "gzip or deflate", HTTPStatus.UNSUPPORTED_MEDIA_TYPE)
    return coding


def read_body(
    source: ByteSource, length: int | None, limit: int, holder: Holder
) -> Reading[bytes | bytearray | memoryview]:
    """The body of a request as it comes, of ``length`` bytes, or in chunks of at most ``limit`` bytes together. ``holder`` has its bytes.

    Raises:
        HttpRefusal: truncated, malformed, too large.
        IngotError: of ``holder``.
    """
    if length is None:
        return (yield from _read_chunks(source, limit, holder))
    if length <= len(source):
        yield from _counted(holder, length)
        return source.take(length)
    return (yield from _read_exactly(source, length, holder))


def _content_length(text: str, limit: int) -> int:
    distinct = {part.strip(" \t") for part in text.split(",")}
    text = distinct.pop()
    if distinct or not (text.isascii() and text.isdecimal()):
        raise _bad("malformed Content-Length", "one number")
    if len(text) > 18 or int(text) > limit:
        raise _too_large(limit)
    return int(text)


def _counted(holder: Holder, count: int) -> Reading[None]:
    while not holder.take(count):
        yield Need.ROOM


def _read_exactly(source: ByteSource, length: int, holder: Holder) -> Reading[memoryview]:
    # NOTE: memory of such an array becomes real where it is written, so that a declared length alone takes none.
    view = memoryview(numpy.empty(length, numpy.uint8))  # type: ignore[arg-type]  # arrays are buffers
    filled = 0
    while filled < length:
        step = _step(filled, length - filled)
        yield from _counted(holder, step)
        yield from _fill(source, view[filled : filled + step])
        filled += step
    return view


def _step(filled: int, left: int) -> int:
    """How many bytes to count and read next: the more have come, the more are expected."""
    return min(left, _MOST_STEP, max(filled, _LEAST_STEP))


def _read_chunks(source: ByteSource, limit: int, holder: Holder) -> Reading[bytearray]:
    body = bytearray()
    counted = framing = chunks = 0
    while True:
        size, length = yield from _chunk_size(source)
        framing += length
        if framing > _MOST_FRAMING + len(body):
            raise _bad("too small chunks, or too long extensions", status=HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        if size == 0:
            break
        if len(body) + size > limit:
            raise _too_large(limit)
        while size:
            step = _step(len(body), size)
            if len(body) + step > counted:
                more = max(step, _LEAST_STEP)
                yield from _counted(holder, more)
                counted += more
            yield from _append(source, body, step)
            size -= step
        if (yield from _line(source)):
            raise _bad("malformed chunk", "its end after its bytes")
        chunks += 1
        if chunks % _CHUNKS_OF_A_TURN == 0:
            yield Need.TURN
    yield from _skip_trailer(source)
    return body


def _skip_trailer(source: ByteSource) -> Reading[None]:
    length = 0
    while line := (yield from _line(source)):
        length += len(line)
        if length > _MOST_FRAMING:
            raise _bad("too many trailer fields", status=HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        if FIELD.fullmatch(line + b"\r\n") is None:
            raise _bad("a trailer field is malformed", "lines of `name: value`")


def _chunk_size(source: ByteSource) -> Reading[tuple[int, int]]:
    """Of the next chunk, and how many bytes say so; extensions are not understood."""
    line = yield from _line(source)
    digits = line[: len(line) - len(line.lstrip(b"0123456789abcdefABCDEF"))]
    if not digits or len(digits) > 16 or _EXTENSION.fullmatch(line, len(digits)) is None:
        raise _bad("malformed chunk size", "hexadecimal digits")
    return int(digits, 16), len(line)


def _append(source: ByteSource, body: bytearray, count: int) -> Reading[None]:
    while count:
        piece = source.take(count)
        if not piece:
            if source.has_ended:
                raise _cut_off()
            yield Need.BYTES
        body += piece
        count -= len(piece)


def _fill(source: ByteSource, view: memoryview) -> Reading[None]:
    if not (yield from source.read_into(view)):
        raise _cut_off()


def _line(source: ByteSource) -> Reading[bytes]:
    line = yield from source.line(_MOST_LINE_BYTES)
    if not line.endswith(b"\r\n") or b"\r" in line[:-2]:
        raise _bad("malformed chunked body", "lines that end with CR LF")
    return line[:-2]


def unpacked(
    body: bytes | bytearray | memoryview,
    coding: str,
    limit: int,
    holder: Unpacker,
    has_gone: Callable[[], bool] = lambda: False,
) -> bytearray:
    """A packed body, at most ``limit`` bytes, which ``holder`` counts in its place. What is large is unpacked one after the other, and for
    nobody who ``has_gone``: some kilobytes take a core for a second.

    Raises:
        HttpRefusal: it is not of that coding, or larger, or its client has gone.
        IngotError: of ``holder``.
    """
    with _UnpackingTurn(has_gone) as turn:
        return _unpacked(body, coding, limit, holder, turn)


def _unpacked(
    body: bytes | bytearray | memoryview, coding: str, limit: int, holder: Unpacker, turn: _UnpackingTurn
) -> bytearray:
    decoder = zlib.decompressobj(wbits=47 if coding == "gzip" else 15)
    data = bytearray()
    end = 0
    try:
        while end < len(body) and not decoder.eof:
            rest: bytes | memoryview = memoryview(body)[end : end + _SLICE_BYTES]
            end += len(rest)
            while True:
                turn.go_on(len(data))
                piece = decoder.decompress(rest, _MOST_STEP)
                if len(data) + len(piece) > limit:
                    raise _too_large(limit)
                holder.take(len(piece))
                data += piece
                rest = decoder.unconsumed_tail
                if decoder.eof or (not rest and len(piece) < _MOST_STEP):
                    break
    except zlib.error as error:
        raise _bad(f"the body is not valid {coding}") from error
    if not decoder.eof:
        raise _bad(f"the {coding} body is truncated")
    if decoder.unused_data or end < len(body):
        raise _bad(f"the {coding} body has more bytes behind its end")
    holder.give(len(body))
    return data


class _UnpackingTurn:
    """Of one body: it has it from the moment on that it is large."""

    def __init__(self, has_gone: Callable[[], bool]) -> None:
        self._has_gone = has_gone
        self._is_alone = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_alone:
            _LARGE.release()

    def go_on(self, size: int) -> None:
        """So many bytes are unpacked. Raises HttpRefusal: nobody wants the rest."""
        if size < _MOST_STEP:
            return
        while not self._is_alone:
            self._is_alone = _LARGE.acquire(timeout=_LOOK_SECONDS)
            if not self._is_alone and self._has_gone():
                raise _cut_off()
        if self._has_gone():
            raise _cut_off()


def _cut_off() -> HttpRefusal:
    return _bad("the connection ended inside the body")


def _bad(message: str, expected: str = "", status: HTTPStatus = HTTPStatus.BAD_REQUEST) -> HttpRefusal:
    return HttpRefusal(status, IngotError(ErrorCode.INVALID_ARGUMENT, message, field="body", expected=expected))


def _too_large(limit: int) -> HttpRefusal:
    return HttpRefusal(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        IngotError(
            ErrorCode.LIMIT_EXCEEDED,
            f"the body of the request is larger than {limit} bytes",
            field="body",
            remedy="Send smaller requests; INGOT_RUNTIME_MAX_REQUEST_BYTES is the limit of inference.",
        ),
    )
