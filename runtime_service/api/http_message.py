"""HTTP requests and responses as values, so that routes can be tried without a socket."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from shared_ir.errors import ErrorCode, IngotError


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """``path`` is without the query, still percent-encoded; header names are in lower case. ``has_gone`` tells whether the client has
    hung up."""

    method: str
    path: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | memoryview = b""
    has_gone: Callable[[], bool] = lambda: False


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """``parts`` are sent one after the other; ``Content-Length`` is their sum."""

    status: HTTPStatus = HTTPStatus.OK
    parts: tuple[bytes, ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def json(cls, document: Any, status: HTTPStatus = HTTPStatus.OK, **headers: str) -> HttpResponse:
        body = json.dumps(document, separators=(",", ":")).encode()
        return cls(status, (body,), {"Content-Type": "application/json", **headers})

    @classmethod
    def error(cls, status: HTTPStatus, message: str, headers: Mapping[str, str] | None = None) -> HttpResponse:
        """The error body of the protocol: ``{"error": message}``."""
        return cls.json({"error": message}, status, **(headers or {}))


Application = Callable[[HttpRequest], HttpResponse]


MOST_VALUES = 4_000_000
"""Numbers, strings and the like of one document. Each takes some 32 bytes once it is parsed, and time in which no other thread of the
interpreter runs: a second for all of them."""
MOST_CONTAINERS = 100_000
"""Objects and arrays of one document: an empty one takes 3 bytes of text and 64 of memory."""


def parse_json(data: bytes | memoryview) -> Any:
    """The JSON value in ``data``; NaN and Infinity are understood as in Python and Triton.

    What it would take is counted before it is parsed: a few thousand bytes may be a document of gigabytes once they are unpacked.

    Raises:
        IngotError: INVALID_ARGUMENT, not JSON, or more values than a server parses for one request.
    """
    text = bytes(data)
    _require_at_most(MOST_CONTAINERS, text.count(b"{") + text.count(b"["), "objects and arrays")
    _require_at_most(MOST_VALUES, text.count(b","), "values")
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise IngotError(
            ErrorCode.INVALID_ARGUMENT, f"the body of the request is not JSON: {str(error)[:200]}", field="body"
        ) from error


def _require_at_most(most: int, found: int, what: str) -> None:
    if found > most:
        raise IngotError(
            ErrorCode.INVALID_ARGUMENT,
            f"the body of the request has too many {what} for JSON",
            field="body",
            expected=f"{most} at most, commas and brackets inside of strings among them",
            received=str(found),
            remedy="Send tensors as binary data.",
        )
