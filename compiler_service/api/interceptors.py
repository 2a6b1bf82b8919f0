"""Around every call: how calls are counted and traced, and what the log says of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import grpc
from prometheus_client import CollectorRegistry, Counter, Histogram

from compiler_service.api.permissions import is_change
from shared_ir.errors import IngotError
from shared_ir.service_kit.access.gate import HEADER as AUTHORIZATION
from shared_ir.service_kit.access.gate import Gate
from shared_ir.service_kit.calls.handler import with_behaviour
from shared_ir.service_kit.calls.outlet import detached, is_detached
from shared_ir.service_kit.telemetry.fields import CHANGE, current_fields, say
from shared_ir.service_kit.telemetry.trace_parent import HEADER as TRACE
from shared_ir.service_kit.telemetry.tracing import TRACING

_LISTS = ("targets", "labels")


class ObservingInterceptor(grpc.ServerInterceptor):  # type: ignore[type-arg]
    """Counts calls by method and status, and measures them; each is a span, and says who calls."""

    def __init__(self, registry: CollectorRegistry, gate: Gate) -> None:
        labels = ("method", "code")
        self._gate = gate
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
        method = handler_call_details.method
        inner = handler.unary_unary or handler.unary_stream or handler.stream_unary or handler.stream_stream

        def unary(request: Any, context: grpc.ServicerContext) -> Any:
            with self._around(method, context):
                try:
                    return inner(request, context)
                finally:
                    if is_change(method):
                        say(**_change(request))

        def stream(request: Any, context: grpc.ServicerContext) -> Any:
            with self._around(method, context):
                yield from inner(request, context)

        def begun(request: Any, context: grpc.ServicerContext) -> Any:
            with self._around(method, context, ends_later=True):
                return inner(request, context)

        if is_detached(inner):
            return with_behaviour(handler, detached(begun))
        return with_behaviour(handler, stream if handler.response_streaming else unary)

    @contextmanager
    def _around(self, method: str, context: Any, ends_later: bool = False) -> Iterator[None]:
        """A detached call is over when it ends, not when its method returns."""
        started = time.monotonic()
        metadata = dict(context.invocation_metadata() or ())
        say(user=self._user(metadata.get(AUTHORIZATION)))
        said: Mapping[str, str] = {}
        try:
            with TRACING.span(method.strip("/"), str(metadata.get(TRACE, "")), "SERVER", **{"rpc.system": "grpc"}):
                try:
                    yield
                finally:
                    said = current_fields()
        finally:
            say(**said)  # for the line of the call, which comes after the span
            if not ends_later or not context.add_callback(lambda: self._record(method, context, started)):
                self._record(method, context, started)

    def _user(self, header: Any) -> str:
        try:
            return self._gate.caller(header).user
        except IngotError:  # the token was taken away meanwhile
            return ""

    def _record(self, method: str, context: Any, started: float) -> None:
        name, code = method.rsplit("/", 1)[-1], context.code() or grpc.StatusCode.OK
        self._calls.labels(name, code.name).inc()
        self._seconds.labels(name).observe(time.monotonic() - started)


def _change(request: Any) -> dict[str, str]:
    """What a call was to change, by names among all."""
    simple = {field.name: value for field, value in request.ListFields() if isinstance(value, str | int | float)}
    lists = {field.name: ",".join(value) for field, value in request.ListFields() if field.name in _LISTS}
    return {CHANGE + name: str(value) for name, value in (simple | lists).items()}
