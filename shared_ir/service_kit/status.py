"""Errors on the wire, of both services: status codes by kind of error, and the whole error beside them.

Over gRPC a failed call carries an ``ErrorDetail``, serialised, in the trailing metadata entry ``ingot-error-bin``.
"""

from __future__ import annotations

import functools
import os
import sys
import tempfile
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any, NoReturn

import grpc
from google.protobuf.message import DecodeError

from shared_ir.errors import Blame, ErrorCode, IngotError
from shared_ir.foreign_json import foreign_json
from shared_ir.pb.ingot.compiler.v1 import compiler_pb2 as pb
from shared_ir.printable import printable

ERROR_METADATA = "ingot-error-bin"
RETRY_SECONDS = 1
"""What clients are told to wait after RESOURCE_EXHAUSTED and UNAVAILABLE."""
MAX_TEXT_BYTES = 1000
"""Of the status text in UTF-8; gRPC writes bytes that are not ASCII in three."""
MAX_DETAIL_BYTES = 3000
"""Of the serialised detail, which becomes a third longer on its way. Both together stay below the 8 KiB of metadata that clients
accept; a call with more fails with an error about metadata instead."""

_INVALID = (grpc.StatusCode.INVALID_ARGUMENT, HTTPStatus.BAD_REQUEST)
_PRECONDITION = (grpc.StatusCode.FAILED_PRECONDITION, HTTPStatus.CONFLICT)
_INTERNAL = (grpc.StatusCode.INTERNAL, HTTPStatus.INTERNAL_SERVER_ERROR)

STATUS: Mapping[ErrorCode, tuple[grpc.StatusCode, HTTPStatus]] = {
    ErrorCode.INVALID_MODEL: _INVALID,
    ErrorCode.UNSUPPORTED_OPSET: _INVALID,
    ErrorCode.UNSUPPORTED_OPERATOR: _INVALID,
    ErrorCode.UNSUPPORTED_DOMAIN: _INVALID,
    ErrorCode.UNSUPPORTED_ATTRIBUTE: _INVALID,
    ErrorCode.UNSUPPORTED_DTYPE: _INVALID,
    ErrorCode.TYPE_MISMATCH: _INVALID,
    ErrorCode.EXTERNAL_DATA: _INVALID,
    ErrorCode.LIMIT_EXCEEDED: (grpc.StatusCode.INVALID_ARGUMENT, HTTPStatus.REQUEST_ENTITY_TOO_LARGE),
    ErrorCode.INVALID_ARGUMENT: _INVALID,
    ErrorCode.INVALID_TARGET: _INVALID,
    ErrorCode.UNAUTHENTICATED: (grpc.StatusCode.UNAUTHENTICATED, HTTPStatus.UNAUTHORIZED),
    ErrorCode.PERMISSION_DENIED: (grpc.StatusCode.PERMISSION_DENIED, HTTPStatus.FORBIDDEN),
    ErrorCode.NOT_FOUND: (grpc.StatusCode.NOT_FOUND, HTTPStatus.NOT_FOUND),
    ErrorCode.ALREADY_EXISTS: (grpc.StatusCode.ALREADY_EXISTS, HTTPStatus.CONFLICT),
    ErrorCode.CONFLICT: _PRECONDITION,
    ErrorCode.CHECKSUM_MISMATCH: (grpc.StatusCode.DATA_LOSS, HTTPStatus.BAD_REQUEST),
    ErrorCode.CANCELLED: (grpc.StatusCode.CANCELLED, HTTPStatus.REQUEST_TIMEOUT),
    ErrorCode.DEADLINE_EXCEEDED: (grpc.StatusCode.DEADLINE_EXCEEDED, HTTPStatus.GATEWAY_TIMEOUT),
    ErrorCode.ARTIFACT_CORRUPT: (grpc.StatusCode.DATA_LOSS, HTTPStatus.CONFLICT),
    ErrorCode.ARTIFACT_UNTRUSTED: _PRECONDITION,  # not PERMISSION_DENIED: it is not the caller who is not trusted
    ErrorCode.ARTIFACT_INCOMPATIBLE: _PRECONDITION,
    ErrorCode.NUMERIC_MISMATCH: _INTERNAL,
    ErrorCode.RESOURCE_EXHAUSTED: (grpc.StatusCode.RESOURCE_EXHAUSTED, HTTPStatus.TOO_MANY_REQUESTS),
    ErrorCode.UNAVAILABLE: (grpc.StatusCode.UNAVAILABLE, HTTPStatus.SERVICE_UNAVAILABLE),
    ErrorCode.OUT_OF_MEMORY: _INTERNAL,
    ErrorCode.DISK_FULL: _INTERNAL,
    ErrorCode.STAGE_KILLED: _INTERNAL,
    ErrorCode.WORKER_LOST: _INTERNAL,
    ErrorCode.DEVICE_TIMEOUT: (grpc.StatusCode.UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT),
    ErrorCode.NOT_VERIFIED: _PRECONDITION,
    ErrorCode.RESOURCE_LIMIT: _PRECONDITION,  # not RESOURCE_EXHAUSTED: the same call would use as much again
    ErrorCode.COMPILER_FAULT: _INTERNAL,
    ErrorCode.INTERNAL: _INTERNAL,
}
_NEAREST = {status: code for code, (status, _) in STATUS.items() if status.name == code.name}
_RETRY = frozenset({ErrorCode.RESOURCE_EXHAUSTED, ErrorCode.UNAVAILABLE})
_BLAME = {Blame.USER: pb.BLAME_USER, Blame.SERVICE: pb.BLAME_SERVICE}
_PLACES = ("INGOT_HOME", "INGOT_CACHE_DIR", "INGOT_TRUST", "INGOT_STORE_URL", "TMPDIR")
_ADDRESSES = ("INGOT_STORE_URL", "INGOT_REDIS_URL", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3")
"""What services are reached at behind this one."""
_TEXTS = ("message", "node", "tensor", "field", "expected", "received", "remedy")


def shown(error: IngotError) -> IngotError:
    """``error`` as clients and logs may see it: each text of bounded length, without characters that terminals and readers obey.

    What clients send comes back in errors; so this is done to all of them, in one place.
    """
    return IngotError(error.code, **{name: cleaned(getattr(error, name)) for name in _TEXTS})


def cleaned(text: str) -> str:
    """:func:`visible` text without the folders of this machine, which are no business of clients."""
    for place, name in _places():
        text = text.replace(place, name)
    return visible(text)


@functools.cache
def _places() -> tuple[tuple[str, str], ...]:
    """Folders that errors of the system name, and what stands for them; the longest first."""
    package = Path(__file__).parents[2]
    found = {str(package): "<ingot>", sys.prefix: "<python>", sys.base_prefix: "<python>", str(Path.home()): "~"}
    found[tempfile.gettempdir()] = "<temporary>"
    own = {name: os.environ.get(name, "") for name in (*_PLACES, *_ADDRESSES)}
    found |= {own[name]: f"<{name}>" for name in _ADDRESSES if "://" in own[name]}
    found |= {path: f"<{name}>" for name in _PLACES if (path := own[name].removeprefix("file://")).startswith("/")}
    return tuple(
        sorted(
            ((place, name) for place, name in found.items() if place.count("/") and len(place) > 3),
            reverse=True,
            key=lambda p: len(p[0]),
        )
    )


def visible(text: str, limit: int = MAX_TEXT_BYTES) -> str:
    """At most ``limit`` bytes of ``text``; control characters and halves of surrogate pairs are written as Python escapes."""
    return _shortened(printable(text[: limit + 1], kept=""), limit)


def error_to_pb(error: IngotError) -> pb.ErrorDetail:
    texts = {name: cleaned(getattr(error, name)) for name in _TEXTS}
    return pb.ErrorDetail(code=error.code.value, blame=_BLAME[error.blame], **texts)


def error_from_pb(detail: pb.ErrorDetail) -> IngotError:
    texts = {name: getattr(detail, name) for name in _TEXTS}
    return IngotError(_known_code(detail.code, users=detail.blame == pb.BLAME_USER), **texts)


def abort(context: grpc.ServicerContext, error: IngotError) -> NoReturn:
    """End the call with ``error``. Always raises."""
    context.set_trailing_metadata(grpc_metadata(error))
    context.abort(grpc_status(error), status_text(error))
    raise AssertionError("abort returned")


def status_text(error: IngotError) -> str:
    """What a client reads that knows of no attached error."""
    return _shortened(str(shown(error)), MAX_TEXT_BYTES)


def attached_error(metadata: Iterable[tuple[str, Any]] | None) -> IngotError | None:
    """The error in the trailing metadata of a call; None where none can be read.

    Older runtime services wrote JSON; no ErrorDetail starts as that does.
    """
    value = dict(metadata or ()).get(ERROR_METADATA, b"")
    if not isinstance(value, bytes) or not value:
        return None
    try:
        return (
            _from_json(foreign_json(value))
            if value.startswith(b"{")
            else error_from_pb(pb.ErrorDetail.FromString(value))
        )
    except (DecodeError, ValueError):
        return None


def grpc_status(error: IngotError) -> grpc.StatusCode:
    return STATUS[error.code][0]


def nearest_code(status: grpc.StatusCode) -> ErrorCode:
    """What a failed call without an attached error is taken for: the code that is called as its status, else INTERNAL."""
    return _NEAREST.get(status, ErrorCode.INTERNAL)


def http_status(error: IngotError) -> HTTPStatus:
    return STATUS[error.code][1]


def grpc_metadata(error: IngotError) -> tuple[tuple[str, str | bytes], ...]:
    """Trailing metadata: the error, and the pause that gRPC's own retries observe (proposal A6)."""
    detail = (ERROR_METADATA, _fitting(error_to_pb(error)))
    return (detail, ("grpc-retry-pushback-ms", str(RETRY_SECONDS * 1000))) if error.code in _RETRY else (detail,)


def http_document(error: IngotError) -> dict[str, str]:
    """The body of a failed HTTP call: the whole text as ``error``, as the Open Inference Protocol has it, and each field by its name."""
    clean = shown(error)
    return {"error": str(clean), **clean.to_dict()}


def error_from_document(document: Mapping[str, Any]) -> IngotError | None:
    """The error in the body of a failed HTTP call; None where it has no fields, as those of older servers."""
    return _from_json(document) if isinstance(document.get("code"), str) and "message" in document else None


def http_headers(error: IngotError) -> dict[str, str]:
    return {"Retry-After": str(RETRY_SECONDS)} if error.code in _RETRY else {}


def internal(error: Exception) -> IngotError:
    """What a client is told of a bug of ours: its kind, and that the log has the rest."""
    return IngotError(
        ErrorCode.INTERNAL,
        f"the service failed with {type(error).__name__}",
        remedy="Tell the operator; the log of the service says more.",
    )


def let_go(error: BaseException) -> None:
    """Of an error that is told: nothing is kept of where it came from.

    A traceback holds the frames that the error came through, and these the request. Where one of them holds the error as well, as who
    raises what was kept somewhere does, all of it would stay until the next collection of garbage, and nobody counts that.
    """
    pending: list[BaseException | None] = [error]
    while pending:
        if (each := pending.pop()) is not None:
            pending += each.__cause__, each.__context__
            each.__traceback__ = each.__cause__ = each.__context__ = None


def _known_code(code: str, users: bool) -> ErrorCode:
    """A code that this release does not know becomes INTERNAL or INVALID_ARGUMENT, by who is to blame."""
    try:
        return ErrorCode(code)
    except ValueError:
        return ErrorCode.INVALID_ARGUMENT if users else ErrorCode.INTERNAL


def _from_json(data: Mapping[str, Any]) -> IngotError:
    texts = {name: str(data.get(name, "")) for name in _TEXTS}
    return IngotError(_known_code(str(data.get("code", "")), users=data.get("blame") == Blame.USER.value), **texts)


def _fitting(detail: pb.ErrorDetail) -> bytes:
    """Serialised; while that is too long, its longest text is cut to half."""
    while len(serialised := detail.SerializeToString()) > MAX_DETAIL_BYTES:
        longest = max(_TEXTS, key=lambda name: len(getattr(detail, name).encode()))
        text = getattr(detail, longest)
        setattr(detail, longest, _shortened(text, len(text.encode()) // 2))
    return bytes(serialised)


def _shortened(text: str, limit: int) -> str:
    """Text of at most ``limit`` bytes in UTF-8; three dots stand for its end."""
    data = text.encode()
    return text if len(data) <= limit else data[: limit - 3].decode(errors="ignore") + "..."
