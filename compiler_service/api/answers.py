"""What the methods of the servicer have in common: how they end, and who calls."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import grpc
from redis.exceptions import RedisError

from shared_ir.errors import ErrorCode, IngotError
from shared_ir.pb.ingot.compiler.v1 import compiler_pb2_grpc
from shared_ir.service_kit.access.gate import HEADER, Gate
from shared_ir.service_kit.access.namespace import Namespace
from shared_ir.service_kit.access.principal import Principal
from shared_ir.service_kit.status import abort, internal

logger = logging.getLogger(__name__)


class Answering(compiler_pb2_grpc.CompilerServiceServicer):  # type: ignore[misc]
    """A servicer that knows who calls."""

    _gate: Gate

    def _caller(self, context: grpc.ServicerContext) -> Principal:
        """Raises IngotError UNAUTHENTICATED, the token was taken away since the call came."""
        metadata: Any = context.invocation_metadata() or ()
        return self._gate.caller(dict(metadata).get(HEADER))

    def _by(self, context: grpc.ServicerContext) -> str:
        """Who asks, for the audit log: the user of his token; else the name in his certificate, else where he calls from."""
        names: Any = context.auth_context().get("x509_common_name") or ()  # bytes, whatever the stubs say
        user = self._caller(context).user
        return user or next((name.decode(errors="replace") for name in names), context.peer())

    def _model_of(self, request: Any) -> str:
        """The name among all of the model that ``request`` is about; empty for none."""
        return str(getattr(request, "name", "") or getattr(request, "model", ""))

    def _abort(self, context: grpc.ServicerContext, request: Any, error: Exception) -> None:
        if isinstance(error, grpc.RpcError):  # the client has gone in the middle of what it sent
            raise error
        found = typed(error)
        namespace = Namespace(self._caller(context).namespace)
        if namespace.name:
            found = namespace.told(found, self._model_of(request))
            if found.code is ErrorCode.NOT_FOUND:
                found = replace(found, expected="")  # it lists what there is, of others too
        abort(context, found)


def answered(method: Callable[..., Any]) -> Callable[..., Any]:
    """Turns what a unary method raises into a status."""

    @functools.wraps(method)
    def call(self: Any, request: Any, context: grpc.ServicerContext) -> Any:
        try:
            return method(self, request, context)
        except Exception as error:
            self._abort(context, request, error)

    return call


def streamed(method: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
    """Turns what a streaming method raises into a status."""

    @functools.wraps(method)
    def call(self: Any, request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        try:
            yield from method(self, request, context)
        except Exception as error:
            self._abort(context, request, error)

    return call


def typed(error: Exception) -> IngotError:
    if isinstance(error, IngotError):
        return error
    if isinstance(error, RedisError):
        logger.warning("Redis: %s", error)
        remedy = "Try again in a moment; published models are not affected."
        return IngotError(ErrorCode.UNAVAILABLE, "the job queue cannot be reached", remedy=remedy)
    logger.exception("a call failed", exc_info=error)
    return internal(error)
