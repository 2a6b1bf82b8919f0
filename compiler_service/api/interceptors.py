"""Around every call: who may call, and how calls are counted."""

from __future__ import annotations

import hmac
import time
from collections.abc import Callable
from typing import Any

import grpc
from prometheus_client import CollectorRegistry, Counter, Histogram

_OPEN_SERVICES = ("/grpc.health.v1.Health/",)


class TokenInterceptor(grpc.ServerInterceptor):  # type: ignore[type-arg]
    """Refuses calls without the bearer token; health checks need none."""

    def __init__(self, token: str) -> None:
        self._expected = f"Bearer {token}".encode()

    def intercept_service(
        self, continuation: Callable[[Any], Any], handler_call_details: grpc.HandlerCallDetails
    ) -> Any:
        handler = continuation(handler_call_details)
        if handler is None or handler_call_details.method.startswith(_OPEN_SERVICES):
            return handler
        given = dict(handler_call_details.invocation_metadata or ()).get("authorization", "")
        if hmac.compare_digest(str(given).encode(), self._expected):
            return handler
        return _with_behaviour(handler, _refuse)


def _refuse(request: Any, context: grpc.ServicerContext) -> None:
    context.abort(
        grpc.StatusCode.UNAUTHENTICATED, "Send the service's token: metadata `authorization: Bearer <token>`."
    )


class CountingInterceptor(grpc.ServerInterceptor):  # type: ignore[type-arg]
    """Counts calls by method and status, and measures them."""

    def __init__(self, registry: CollectorRegistry) -> None:
        labels = ("method", "code")
        self._calls = Counter("ingot_compiler_calls_total", "gRPC calls that ended.", labels, registry=registry)
        self._seconds = Histogram(
            "ingot_compiler_call_seconds", "Duration of gRPC calls.", ("method",), registry=registry
        )

    def intercept_service(
        self, continuation: Callable[[Any], Any], handler_call_details: grpc.HandlerCallDetails
    ) -> Any:
        handler = continuation(handler_call_details)
        if handler is None:
            return None
        method = handler_call_details.method.rsplit("/", 1)[-1]
        inner = handler.unary_unary or handler.unary_stream or handler.stream_unary or handler.stream_stream

        def unary(request: Any, context: grpc.ServicerContext) -> Any:
            started = time.monotonic()
            try:
                return inner(request, context)
            finally:
                self._record(method, context, started)

        def stream(request: Any, context: grpc.ServicerContext) -> Any:
            started = time.monotonic()
            try:
                yield from inner(request, context)
            finally:
                self._record(method, context, started)

        return _with_behaviour(handler, stream if handler.response_streaming else unary)

    def _record(self, method: str, context: Any, started: float) -> None:
        code = context.code() or grpc.StatusCode.OK
        self._calls.labels(method, code.name).inc()
        self._seconds.labels(method).observe(time.monotonic() - started)


def _with_behaviour(handler: Any, behaviour: Callable[..., Any]) -> Any:
    """``handler`` with another function in it, its serialisers kept."""
    kind = {
        (False, False): grpc.unary_unary_rpc_method_handler,
        (False, True): grpc.unary_stream_rpc_method_handler,
        (True, False): grpc.stream_unary_rpc_method_handler,
        (True, True): grpc.stream_stream_rpc_method_handler,
    }[handler.request_streaming, handler.response_streaming]
    return kind(behaviour, handler.request_deserializer, handler.response_serializer)
