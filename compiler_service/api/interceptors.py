"""Around every call: how calls are counted, traced, and told of in the log."""

from __future__ import annotations

import logging
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
from shared_ir.service_kit.handler import with_behaviour
from shared_ir.service_kit.lanes import peer_name
from shared_ir.service_kit.outlet import detached, is_detached
from shared_ir.service_kit.telemetry.fields import current_fields, saying
from shared_ir.service_kit.telemetry.log import EXTRA
from shared_ir.service_kit.telemetry.trace_parent import HEADER as TRACE
from shared_ir.service_kit.telemetry.tracing import TRACING

_ACCESS, _AUDIT = logging.getLogger("ingot.access"), logging.getLogger("ingot.audit")
_HEALTH = "/grpc.health."
"""Probes ask every few seconds: they are counted, but have no lines."""


class ObservingInterceptor(grpc.ServerInterceptor):  # type: ignore[type-arg]
    """Counts calls by method and status, and measures them; each is a span and a line of the log."""

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
                        _audit(method, request, context)

        def stream(request: Any, context: grpc.ServicerContext) -> Any:
            with self._around(method, context):
                yield from inner(request, context)

        def begun(request: Any, context: grpc.ServicerContext) -> Any:
            with self._around(method, context, is_detached=True):
                return inner(request, context)

        if is_detached(inner):
            return with_behaviour(handler, detached(begun))
        return with_behaviour(handler, stream if handler.response_streaming else unary)

    @contextmanager
    def _around(self, method: str, context: Any, is_detached: bool = False) -> Iterator[None]:
        """A detached call is over when it ends, not when its method returns."""
        started = time.monotonic()
        metadata = dict(context.invocation_metadata() or ())
        with (
            saying(user=self._user(metadata.get(AUTHORIZATION))),
            TRACING.span(method.strip("/"), str(metadata.get(TRACE, "")), "SERVER", **{"rpc.system": "grpc"}),
        ):
            try:
                yield
            finally:
                fields = dict(current_fields())
                if is_detached and context.code() is None:
                    context.add_callback(lambda: self._record(method, context, started, fields))
                else:
                    self._record(method, context, started, fields)

    def _user(self, header: Any) -> str:
        try:
            return self._gate.caller(header).user
        except IngotError:  # the token was taken away meanwhile
            return ""

    def _record(self, method: str, context: Any, started: float, fields: Mapping[str, str]) -> None:
        name, seconds = method.rsplit("/", 1)[-1], time.monotonic() - started
        code = (context.code() or grpc.StatusCode.OK).name
        self._calls.labels(name, code).inc()
        self._seconds.labels(name).observe(seconds)
        if not method.startswith(_HEALTH):
            about = {**fields, "method": name, "peer": peer_name(context), "code": code, "seconds": round(seconds, 6)}
            _ACCESS.info("%s %s", name, code, extra={EXTRA: about})


def _audit(method: str, request: Any, context: Any) -> None:
    """One line for what was to be changed, by whom, and whether it was. Names are those among all."""
    name, code = method.rsplit("/", 1)[-1], (context.code() or grpc.StatusCode.OK).name
    given = {field.name: value for field, value in request.ListFields() if isinstance(value, str | int | float)}
    lists = {field.name: list(value) for field, value in request.ListFields() if field.name in ("targets", "labels")}
    _AUDIT.info("%s %s", name, code, extra={EXTRA: {"method": name, "code": code, "change": given | lists}})
