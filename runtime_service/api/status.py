"""Error codes as status codes of the two protocols, and the parts of an error that travel beside its text."""

from __future__ import annotations

import json
from http import HTTPStatus

import grpc

from shared_ir.errors import ErrorCode, IngotError

RETRY_SECONDS = 1
"""What clients are told to wait after RESOURCE_EXHAUSTED and UNAVAILABLE."""

_INVALID = (grpc.StatusCode.INVALID_ARGUMENT, HTTPStatus.BAD_REQUEST)
_PRECONDITION = (grpc.StatusCode.FAILED_PRECONDITION, HTTPStatus.CONFLICT)
_INTERNAL = (grpc.StatusCode.INTERNAL, HTTPStatus.INTERNAL_SERVER_ERROR)

STATUS: dict[ErrorCode, tuple[grpc.StatusCode, HTTPStatus]] = {
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
    ErrorCode.NOT_FOUND: (grpc.StatusCode.NOT_FOUND, HTTPStatus.NOT_FOUND),
    ErrorCode.ALREADY_EXISTS: (grpc.StatusCode.ALREADY_EXISTS, HTTPStatus.CONFLICT),
    ErrorCode.CHECKSUM_MISMATCH: (grpc.StatusCode.DATA_LOSS, HTTPStatus.BAD_REQUEST),
    ErrorCode.CANCELLED: (grpc.StatusCode.CANCELLED, HTTPStatus.REQUEST_TIMEOUT),
    ErrorCode.DEADLINE_EXCEEDED: (grpc.StatusCode.DEADLINE_EXCEEDED, HTTPStatus.GATEWAY_TIMEOUT),
    ErrorCode.ARTIFACT_CORRUPT: _PRECONDITION,
    ErrorCode.ARTIFACT_UNTRUSTED: _PRECONDITION,
    ErrorCode.ARTIFACT_INCOMPATIBLE: _PRECONDITION,
    ErrorCode.NUMERIC_MISMATCH: _INTERNAL,
    ErrorCode.RESOURCE_EXHAUSTED: (grpc.StatusCode.RESOURCE_EXHAUSTED, HTTPStatus.TOO_MANY_REQUESTS),
    ErrorCode.UNAVAILABLE: (grpc.StatusCode.UNAVAILABLE, HTTPStatus.SERVICE_UNAVAILABLE),
    ErrorCode.RESOURCE_LIMIT: (grpc.StatusCode.RESOURCE_EXHAUSTED, HTTPStatus.INSUFFICIENT_STORAGE),
    ErrorCode.COMPILER_FAULT: _INTERNAL,
    ErrorCode.INTERNAL: _INTERNAL,
}
_RETRY = frozenset({ErrorCode.RESOURCE_EXHAUSTED, ErrorCode.UNAVAILABLE})


def grpc_status(error: IngotError) -> grpc.StatusCode:
    return STATUS[error.code][0]


def http_status(error: IngotError) -> HTTPStatus:
    return STATUS[error.code][1]


def grpc_metadata(error: IngotError) -> tuple[tuple[str, str | bytes], ...]:
    """Trailing metadata: the error as JSON, and the pause that gRPC's own retries observe (proposal A6)."""
    detail = ("ingot-error-bin", json.dumps(error.to_dict()).encode())
    return (detail, ("grpc-retry-pushback-ms", str(RETRY_SECONDS * 1000))) if error.code in _RETRY else (detail,)


def http_headers(error: IngotError) -> dict[str, str]:
    return {"Retry-After": str(RETRY_SECONDS)} if error.code in _RETRY else {}


def internal(error: Exception) -> IngotError:
    """What a client is told of a bug of ours: its kind, and that the log has the rest."""
    return IngotError(ErrorCode.INTERNAL, f"the server failed with {type(error).__name__}; its log has the details")
