"""HTTP requests and responses as values, so that routes can be tried without a socket."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Protocol

from shared_ir.errors import ErrorCode, IngotError
from shared_ir.numerals import WrittenInfinity
from shared_ir.service_kit.status import http_document, http_headers, http_status


def _unbounded(count: int) -> AbstractContextManager[None]:
    return nullcontext()


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """``path`` is without the query, still percent-encoded; header names are in lower case. ``has_gone`` tells whether the client has
    hung up; ``holding`` counts bytes that are made of the body, for the time of a block, ``hold`` until the request is over, ``grow`` those
    of the answer, before they are made; ``peer`` is whose share they are of. ``waits`` is whether its answer may take time."""

    method: str
    path: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | bytearray | memoryview = b""
    has_gone: Callable[[], bool] = lambda: False
    holding: Callable[[int], AbstractContextManager[None]] = _unbounded
    peer: str = ""
    grow: Callable[[int], None] = lambda count: None
    hold: Callable[[int], None] = lambda count: None
    waits: bool = True


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """``parts`` are sent one after the other; ``Content-Length`` is their sum. ``note`` goes to the log."""

    status: HTTPStatus = HTTPStatus.OK
    parts: tuple[bytes, ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    note: str = ""

    @classmethod
    def json(cls, document: Any, status: HTTPStatus = HTTPStatus.OK, note: str = "", **headers: str) -> HttpResponse:
        body = json.dumps(document, separators=(",", ":")).encode()
        return cls(status, (body,), {"Content-Type": "application/json", **headers}, note)

    @classmethod
    def failure(
        cls, error: IngotError, status: HTTPStatus | None = None, headers: Mapping[str, str] | None = None
    ) -> HttpResponse:
        """The error body of the protocol, ``{"error": text}``, and beside it the fields of ``error``.

        Its kind gives the status where none is named.
        """
        document = http_document(error)
        given = http_headers(error) | dict(headers or {})
        return cls.json(document, status or http_status(error), document["error"], **given)


def _never(size: int) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class Admission:
    """A request whose body may come, at most ``most_body`` bytes; ``answer`` gets it with its body, and raises nothing else than
    WouldWait, where it must not wait and would have to.

    ``is_quick`` tells of the size of a body whether the answer takes so little time that the thread may make it that reads all connections.
    """

    most_body: int
    answer: Callable[[HttpRequest], HttpResponse]
    is_quick: Callable[[int], bool] = _never


class Application(Protocol):
    """What a server serves. No method raises."""

    def admit(self, request: HttpRequest, /) -> HttpResponse | Admission:
        """Before the body of ``request`` is read: who answers it, or why it is not wanted."""

    def refused(self, request: HttpRequest, error: IngotError, /) -> None:
        """``request`` was admitted, and its body has not come: it is too large, too slow, or there is no room for it."""


MOST_VALUES = 4_000_000
"""Numbers, strings and the like of one document. Each takes some 32 bytes once it is parsed, and time in which no other thread of the
interpreter runs: a second for all of them."""
MOST_CONTAINERS = 100_000
"""Objects and arrays of one document: an empty one takes 3 bytes of text and 64 of memory."""
_VALUE_BYTES, _CONTAINER_BYTES = 48, 128
_SLICE_BYTES = 1 << 20
_CONSTANTS = {"NaN": math.nan, "Infinity": WrittenInfinity("inf"), "-Infinity": WrittenInfinity("-inf")}
"""Once for all documents: each of these objects is larger than other numbers."""
_DECODER = json.JSONDecoder(parse_constant=_CONSTANTS.__getitem__)
_WRITTEN = json.JSONDecoder(parse_constant=_CONSTANTS.__getitem__, parse_float=str)


def json_bytes(data: bytes | bytearray | memoryview) -> int:
    """Bytes of memory that the JSON value in ``data`` takes at most while it is parsed.

    Counted before: a few thousand bytes may be a document of gigabytes once they are unpacked.

    Raises:
        IngotError: INVALID_ARGUMENT, more values than a server parses for one request.
    """
    containers = values = 0
    is_plain = True
    for start in range(0, len(data), _SLICE_BYTES):  # so that other threads run in between
        text = bytes(data[start : start + _SLICE_BYTES])
        containers += text.count(b"{") + text.count(b"[")
        values += text.count(b",") + text.count(b":")
        is_plain = is_plain and text.isascii() and b"\\u" not in text
        _require_at_most(MOST_CONTAINERS, containers, "objects and arrays")
        _require_at_most(MOST_VALUES, values, "values")
    return (2 if is_plain else 5) * len(data) + values * _VALUE_BYTES + containers * _CONTAINER_BYTES


def parse_json(data: bytes | bytearray | memoryview) -> Any:
    """The JSON value in ``data``, which :func:`json_bytes` has counted; NaN and Infinity are understood as in Python and Triton.

    An infinity that is written so is a :class:`WrittenInfinity`; any other was a number beyond those of float64.

    Raises:
        IngotError: INVALID_ARGUMENT, not JSON.
    """
    try:
        return _decoded(_DECODER, data)
    except (ValueError, RecursionError) as error:
        where = f"at byte {error.pos}" if isinstance(error, json.JSONDecodeError) else type(error).__name__
        raise IngotError(
            ErrorCode.INVALID_ARGUMENT,
            "the body of the request is not JSON",
            field="body",
            expected="JSON of reasonable depth, in UTF-8",
            received=f"{getattr(error, 'msg', 'something else')} ({where})",
        ) from error


def written_json(data: bytes | bytearray | memoryview) -> Any:
    """As :func:`parse_json`, of what that has read; fractions are texts as they were written, which doubles are not exactly."""
    return _decoded(_WRITTEN, data)


def _decoded(decoder: json.JSONDecoder, data: bytes | bytearray | memoryview) -> Any:
    text = bytes(data)
    return decoder.decode(text.decode(json.detect_encoding(text), "surrogatepass"))


def _require_at_most(most: int, found: int, what: str) -> None:
    if found > most:
        raise IngotError(
            ErrorCode.INVALID_ARGUMENT,
            f"the body of the request has too many {what} for JSON",
            field="body",
            expected=f"{most} at most, commas, colons and brackets inside of strings among them",
            received=f"{found} in its beginning",
            remedy="Send tensors as binary data.",
        )
