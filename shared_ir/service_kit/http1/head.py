"""Heads of HTTP/1.1 requests, read strictly: what two readers could understand differently is refused (RFC 9112 sections 2 to 5).

A server behind a proxy that takes a line for another one than the proxy did answers requests that nobody sent ("smuggling").
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus

from shared_ir.errors import ErrorCode, IngotError
from shared_ir.service_kit.http1.source import ByteSource, Reading

MOST_TARGET_BYTES = 16 * 1024
MOST_HEAD_BYTES = 64 * 1024
MOST_FIELDS = 100
_ONCE = frozenset({"host", "authorization", "origin", "content-encoding", "inference-header-content-length", "expect"})
"""Fields of which a second one would contradict the first."""
_REQUEST = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]{1,32}) ([\x21-\x7e]+) HTTP/([0-9])\.([0-9])\r\n")
FIELD = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]++):([^\x00-\x08\x0a-\x1f\x7f]*+)\r\n")
"""A field, with blanks around its value. NOTE: possessive, so that a line of blanks takes no longer than another one."""
BLANKS = b" \t"
_HOST = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._~!$&'()*+;=%-]*)(?::[0-9]{0,5})?")
"""One host, perhaps none, and its port (RFC 9110, section 7.2)."""
_ABSOLUTE = re.compile(r"https?://([^/?#]+)(/[^#]*|\?[^#]*)?", re.IGNORECASE)


class HttpRefusal(Exception):
    """A request that cannot be read to its end; the connection must be closed after answering with ``status``."""

    def __init__(self, status: HTTPStatus, error: IngotError) -> None:
        super().__init__(str(error))
        self.status = status
        self.error = error


@dataclass(frozen=True, slots=True)
class Http1Head:
    """``path`` starts with a slash, and has no query; names of ``fields`` are in lower case, values of equal names joined by commas."""

    method: str
    path: str
    fields: Mapping[str, str]
    keeps: bool
    is_old: bool
    """HTTP/1.0"""


def read_head(source: ByteSource) -> Reading[Http1Head | None]:
    """The next head; ``None`` where the stream ends before it.

    Raises:
        HttpRefusal: it is malformed, or larger than a server reads.
    """
    line = yield from source.line(MOST_TARGET_BYTES)
    if line == b"\r\n":  # old clients end a body with one
        line = yield from source.line(MOST_TARGET_BYTES)
    if not line:
        return None
    match = _REQUEST.fullmatch(line)
    if match is None:
        if len(line) >= MOST_TARGET_BYTES:
            raise _refusal(
                HTTPStatus.REQUEST_URI_TOO_LONG, "the request line is too long", f"{MOST_TARGET_BYTES} bytes"
            )
        raise _refusal(HTTPStatus.BAD_REQUEST, "the request line is malformed", "METHOD /path HTTP/1.1")
    method, target, major, minor = match.groups()
    if major != b"1" or minor not in b"01":
        raise _refusal(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED, "this is a server of HTTP/1.1", "HTTP/1.1")
    fields = yield from _read_fields(source, MOST_HEAD_BYTES - len(line))
    is_old = minor == b"0"
    if not is_old and "host" not in fields:
        raise _refusal(HTTPStatus.BAD_REQUEST, "the request has no Host", "one Host header")
    found, host = _origin_form(target.decode())
    if host is not None:
        fields["host"] = host
    if not _HOST.fullmatch(fields.get("host", "")):
        raise _refusal(
            HTTPStatus.BAD_REQUEST, "the Host of the request is none", "a name or address, and its port", "host"
        )
    options = [option.strip(" \t") for option in fields.get("connection", "").lower().split(",")]
    keeps = "close" not in options and (not is_old or "keep-alive" in options)
    return Http1Head(method.decode(), found.partition("?")[0], fields, keeps, is_old)


def _read_fields(source: ByteSource, left: int) -> Reading[dict[str, str]]:
    fields: dict[str, str] = {}
    for _ in range(MOST_FIELDS + 1):
        line = yield from source.line(left)
        if line == b"\r\n":
            return fields
        left -= len(line)
        if left <= 0:
            break
        match = FIELD.fullmatch(line)
        if match is None:
            raise _refusal(HTTPStatus.BAD_REQUEST, "a header of the request is malformed", "lines of `name: value`")
        name, value = match[1].decode().lower(), match[2].strip(BLANKS).decode("latin-1")
        if name in fields:
            if name in _ONCE:
                raise _refusal(HTTPStatus.BAD_REQUEST, "a header came twice", "it once", name)
            value = f"{fields[name]}, {value}"
        fields[name] = value
    raise _refusal(
        HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
        "the request has too many headers, or too long ones",
        f"{MOST_FIELDS} headers of {MOST_HEAD_BYTES} bytes together at most",
    )


def _origin_form(target: str) -> tuple[str, str | None]:
    """The path, and the host of a target that names one."""
    if target.startswith("/"):
        return target, None
    if match := _ABSOLUTE.fullmatch(target):
        path = match[2] or "/"
        return (path if path.startswith("/") else f"/{path}"), match[1]
    raise _refusal(HTTPStatus.BAD_REQUEST, "the target of the request is malformed", "a path that starts with a slash")


def _refusal(status: HTTPStatus, message: str, expected: str, field: str = "") -> HttpRefusal:
    return HttpRefusal(status, IngotError(ErrorCode.INVALID_ARGUMENT, message, field=field, expected=expected))
