"""Around every call: how calls are counted."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import grpc
from prometheus_client import CollectorRegistry, Counter, Histogram

from shared_ir.service_kit.handler import with_behaviour
from shared_ir.service_kit.outlet import detached, is_detached


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

        if is_detached(inner):
            return with_behaviour(handler, detached(self._until_its_end(method, inner)))
        return with_behaviour(handler, stream if handler.response_streaming else unary)

    def _until_its_end(self, method: str, inner: Callable[..., Any]) -> Callable[..., Any]:
        """A detached method is over when its call is, not when it returns."""

        def behaviour(request: Any, context: grpc.ServicerContext) -> Any:
            started = time.monotonic()
            context.add_callback(lambda: self._record(method, context, started))
            return inner(request, context)

        return behaviour

    def _record(self, method: str, context: Any, started: float) -> None:
        code = context.code() or grpc.StatusCode.OK
        self._calls.labels(method, code.name).inc()
        self._seconds.labels(method).observe(time.monotonic() - started)
