"""Calls end with a sentence, whatever they carry: bytes that are no message, and faults of ours."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from shared_ir.errors import ErrorCode, IngotError
from shared_ir.service_kit.calls.handler import is_refusal
from shared_ir.service_kit.calls.lanes import peer_name
from shared_ir.service_kit.status import abort, internal
from shared_ir.service_kit.telemetry.log import EXTRA

_LOG = logging.getLogger(__name__)


class AnsweringInterceptor(grpc.ServerInterceptor):  # type: ignore[type-arg]  # not subscriptable at run time
    """What methods raise becomes the error of their call."""

    def intercept_service(
        self, continuation: Callable[[Any], Any], handler_call_details: grpc.HandlerCallDetails
    ) -> Any:
        handler = continuation(handler_call_details)
        if handler is None:
            return None
        inner = handler.unary_unary or handler.unary_stream or handler.stream_unary or handler.stream_stream
        return handler if is_refusal(inner) else _guarded(handler, inner)


def _guarded(handler: Any, inner: Callable[[Any, Any], Any]) -> Any:
    read = handler.request_deserializer

    def answer(given: Any, context: grpc.ServicerContext) -> Any:
        try:
            read_all = (_read(read, data) for data in given) if handler.request_streaming else _read(read, given)
            return inner(read_all, context)
        except Exception as error:
            failure = _told(error, context)
        return abort(context, failure)

    def answers(given: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        try:
            yield from inner(_read(read, given), context)
            return
        except Exception as error:
            failure = _told(error, context)
        abort(context, failure)

    if handler.response_streaming:
        return grpc.unary_stream_rpc_method_handler(answers, None, handler.response_serializer)
    kind = grpc.stream_unary_rpc_method_handler if handler.request_streaming else grpc.unary_unary_rpc_method_handler
    return kind(answer, None, handler.response_serializer)


def _read(parse: Callable[[bytes], Any], data: bytes) -> Any:
    try:
        return parse(data)
    except DecodeError as error:
        raise IngotError(
            ErrorCode.INVALID_ARGUMENT,
            "the call carries bytes that are no message of this method",
            expected="a message of the method's request type",
            received=f"{len(data)} bytes",
            remedy="Use stubs that were made from the service's own description.",
        ) from error


def _told(error: Exception, context: grpc.ServicerContext) -> IngotError:
    if isinstance(error, IngotError):
        _LOG.info(
            "a call was refused: %s",
            error.message,
            extra={EXTRA: {"peer": peer_name(context), "code": error.code.value}},
        )
        return error
    if not context.is_active():  # its client has left, and what it sent ends in the middle
        return IngotError(ErrorCode.CANCELLED, "the client has left")
    _LOG.exception("a call failed")
    return internal(error)
