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


def parse_json(data: bytes | memoryview) -> Any:
    """The JSON value in ``data``; NaN and Infinity are understood as in Python and Triton.

    Raises:
        IngotError: INVALID_ARGUMENT, not JSON.
    """
    try:
        return json.loads(bytes(data))
    except (ValueError, RecursionError) as error:
        raise IngotError(
            ErrorCode.INVALID_ARGUMENT, f"the body of the request is not JSON: {str(error)[:200]}", field="body"
        ) from error
