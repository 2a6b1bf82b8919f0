"""What the methods of the servicer have in common: how they end, and who calls."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterator
from typing import Any

import grpc
from redis.exceptions import RedisError

from shared_ir.errors import ErrorCode, IngotError
from shared_ir.service_kit.status import abort, internal

logger = logging.getLogger(__name__)


def answered(method: Callable[..., Any]) -> Callable[..., Any]:
    """Turns what a unary method raises into a status."""

    @functools.wraps(method)
    def call(self: Any, request: Any, context: grpc.ServicerContext) -> Any:
        try:
            return method(self, request, context)
        except Exception as error:
            _abort(context, error)

    return call


def streamed(method: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
    """Turns what a streaming method raises into a status."""

    @functools.wraps(method)
    def call(self: Any, request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        try:
            yield from method(self, request, context)
        except Exception as error:
            _abort(context, error)

    return call


def _abort(context: grpc.ServicerContext, error: Exception) -> None:
    if isinstance(error, IngotError):
        abort(context, error)
    if isinstance(error, grpc.RpcError):  # the client has gone in the middle of what it sent
        raise error
    if isinstance(error, RedisError):
        logger.warning("Redis: %s", error)
        remedy = "Try again in a moment; published models are not affected."
        abort(context, IngotError(ErrorCode.UNAVAILABLE, "the job queue cannot be reached", remedy=remedy))
    logger.exception("a call failed", exc_info=error)
    abort(context, internal(error))


def caller(context: grpc.ServicerContext) -> str:
    """Who asks, for the audit log: the name in his certificate, else where he calls from."""
    names: Any = context.auth_context().get("x509_common_name") or ()  # bytes, whatever the stubs say
    return next((name.decode(errors="replace") for name in names), context.peer())
