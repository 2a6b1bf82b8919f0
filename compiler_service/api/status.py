"""Errors on the wire: gRPC status by code, and the whole error in trailing metadata."""

from __future__ import annotations

from collections.abc import Mapping

import grpc

from shared_ir.errors import Blame, ErrorCode, IngotError
from shared_ir.pb.ingot.compiler.v1 import compiler_pb2 as pb

ERROR_METADATA = "ingot-error-bin"

STATUS: Mapping[ErrorCode, grpc.StatusCode] = {
    ErrorCode.INVALID_MODEL: grpc.StatusCode.INVALID_ARGUMENT,
    ErrorCode.UNSUPPORTED_OPSET: grpc.StatusCode.INVALID_ARGUMENT,
    ErrorCode.UNSUPPORTED_OPERATOR: grpc.StatusCode.INVALID_ARGUMENT,
    ErrorCode.UNSUPPORTED_DOMAIN: grpc.StatusCode.INVALID_ARGUMENT,
    ErrorCode.UNSUPPORTED_ATTRIBUTE: grpc.StatusCode.INVALID_ARGUMENT,
    ErrorCode.UNSUPPORTED_DTYPE: grpc.StatusCode.INVALID_ARGUMENT,
    ErrorCode.TYPE_MISMATCH: grpc.StatusCode.INVALID_ARGUMENT,
    ErrorCode.EXTERNAL_DATA: grpc.StatusCode.INVALID_ARGUMENT,
    ErrorCode.LIMIT_EXCEEDED: grpc.StatusCode.INVALID_ARGUMENT,
    ErrorCode.INVALID_ARGUMENT: grpc.StatusCode.INVALID_ARGUMENT,
    ErrorCode.INVALID_TARGET: grpc.StatusCode.INVALID_ARGUMENT,
    ErrorCode.NOT_FOUND: grpc.StatusCode.NOT_FOUND,
    ErrorCode.ALREADY_EXISTS: grpc.StatusCode.ALREADY_EXISTS,
    ErrorCode.CHECKSUM_MISMATCH: grpc.StatusCode.DATA_LOSS,
    ErrorCode.CANCELLED: grpc.StatusCode.CANCELLED,
    ErrorCode.DEADLINE_EXCEEDED: grpc.StatusCode.DEADLINE_EXCEEDED,
    ErrorCode.ARTIFACT_CORRUPT: grpc.StatusCode.DATA_LOSS,
    ErrorCode.ARTIFACT_UNTRUSTED: grpc.StatusCode.PERMISSION_DENIED,
    ErrorCode.ARTIFACT_INCOMPATIBLE: grpc.StatusCode.FAILED_PRECONDITION,
    ErrorCode.NUMERIC_MISMATCH: grpc.StatusCode.INTERNAL,
    ErrorCode.RESOURCE_EXHAUSTED: grpc.StatusCode.RESOURCE_EXHAUSTED,
    ErrorCode.UNAVAILABLE: grpc.StatusCode.UNAVAILABLE,
    ErrorCode.RESOURCE_LIMIT: grpc.StatusCode.FAILED_PRECONDITION,
    ErrorCode.COMPILER_FAULT: grpc.StatusCode.INTERNAL,
    ErrorCode.INTERNAL: grpc.StatusCode.INTERNAL,
}

_BLAME = {Blame.USER: pb.BLAME_USER, Blame.SERVICE: pb.BLAME_SERVICE}


def error_to_pb(error: IngotError) -> pb.ErrorDetail:
    return pb.ErrorDetail(
        code=error.code.value,
        blame=_BLAME[error.blame],
        message=error.message,
        node=error.node,
        tensor=error.tensor,
        field=error.field,
        expected=error.expected,
        received=error.received,
        remedy=error.remedy,
    )


def abort(context: grpc.ServicerContext, error: IngotError) -> None:
    """End the call with ``error``. Always raises."""
    context.set_trailing_metadata(((ERROR_METADATA, error_to_pb(error).SerializeToString()),))
    context.abort(STATUS[error.code], str(error)[:2000])
