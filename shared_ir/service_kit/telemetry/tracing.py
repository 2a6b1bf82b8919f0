"""Spans of OpenTelemetry, where tracing is on; ids of traces for the log in any case."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from shared_ir.errors import ErrorCode, IngotError
from shared_ir.extras import needing
from shared_ir.service_kit.telemetry.fields import current_fields, saying
from shared_ir.service_kit.telemetry.trace_parent import HEADER, TraceParent

VARIABLE = "INGOT_TRACES"
OTLP = "otlp"
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
Attributes = Mapping[str, str | int | float | bool]


class Tracing:
    """Makes spans; none but the ids of their traces where it has no ``tracer``."""

    def __init__(self) -> None:
        self._tracer: Any = None
        self._api: Any = None
        self._close: Callable[[], None] = lambda: None

    @property
    def is_on(self) -> bool:
        return self._tracer is not None

    def use(self, provider: Any, api: Any) -> None:
        """Spans go to ``provider``, of OpenTelemetry; ``api`` is its module ``opentelemetry``."""
        self._tracer, self._api, self._close = provider.get_tracer("ingot"), api, provider.shutdown

    def close(self) -> None:
        """What is not sent yet is sent."""
        self._close()
        self._tracer = None

    @contextmanager
    def span(self, name: str, parent: str = "", kind: str = "INTERNAL", **attributes: Any) -> Iterator[None]:
        """A span around the block, below the one that ``parent`` says (a traceparent) or that it is in."""
        if self._tracer is None:
            given = TraceParent.parse(parent)
            trace_id = given.trace_id if given else current_fields().get("trace_id") or TraceParent.new().trace_id
            with saying(trace_id=trace_id):
                yield
            return
        context = self._api.propagate.extract({HEADER: parent}) if parent else None
        kinds = self._api.trace.SpanKind
        with (
            self._tracer.start_as_current_span(name, context, getattr(kinds, kind), attributes) as span,
            saying(trace_id=f"{span.get_span_context().trace_id:032x}"),
        ):
            yield

    def here(self) -> str:
        """The traceparent of who goes on with what is done here; empty outside of spans."""
        trace_id = current_fields().get("trace_id", "")
        if self._tracer is not None:
            known = self._api.trace.get_current_span().get_span_context()
            if known.is_valid:
                return _traceparent(known)
        return str(TraceParent(trace_id, TraceParent.new().span_id)) if trace_id else ""

    def past(
        self,
        name: str,
        parent: str,
        started: float,
        ended: float,
        kind: str = "INTERNAL",
        error: str = "",
        **attributes: Any,
    ) -> str:
        """A span that is over; times in seconds since the epoch.

        Args:
            error: what it has ended with, where that is no result.

        Returns:
            The traceparent of what is below it; empty where tracing is off.
        """
        if self._tracer is None:
            return ""
        trace = self._api.trace
        context = self._api.propagate.extract({HEADER: parent}) if parent else None
        kinds = trace.SpanKind
        span = self._tracer.start_span(name, context, getattr(kinds, kind), attributes, start_time=int(started * 1e9))
        if error:
            span.set_status(trace.StatusCode.ERROR, error)
        span.end(int(ended * 1e9))
        return _traceparent(span.get_span_context())


def _traceparent(context: Any) -> str:
    return str(TraceParent(f"{context.trace_id:032x}", f"{context.span_id:016x}", f"{context.trace_flags:02x}"))


TRACING = Tracing()
"""Of this process, as its log is: what is traced goes through many rooms, which would all have to be told."""


def start_tracing(process: str, environment: Mapping[str, str] = os.environ) -> None:
    """Turn tracing on where ``INGOT_TRACES`` is ``otlp``; where the spans go is said by the variables of OpenTelemetry
    (``OTEL_EXPORTER_OTLP_ENDPOINT``, ``OTEL_TRACES_SAMPLER``, ...).

    Raises:
        IngotError: INVALID_ARGUMENT, another value; UNAVAILABLE, OpenTelemetry is not installed.
    """
    given = environment.get(VARIABLE, "")
    if not given:
        return
    if given != OTLP:
        message = "there is no such way to send traces"
        raise IngotError(ErrorCode.INVALID_ARGUMENT, message, field=VARIABLE, expected=OTLP, received=given[:100])
    for name in _ENDPOINTS:
        _require_url(name, environment.get(name, ""))
    with needing("telemetry", "the client of OpenTelemetry"):
        import opentelemetry.propagate
        import opentelemetry.trace
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    provider = TracerProvider(resource=Resource.create({"service.name": f"ingot-{process}"}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    TRACING.use(provider, opentelemetry)


def _require_url(name: str, url: str) -> None:
    """Raises IngotError INVALID_ARGUMENT, naming the variable: the exporter would fail at each batch, and nobody else would know."""
    try:
        parts = urlsplit(url)
        is_one = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # of the port, or of an address in brackets
        is_one = False
    if url and not is_one:
        message, expected = "spans cannot be sent there", "http://host:4318 or https://host"
        raise IngotError(ErrorCode.INVALID_ARGUMENT, message, field=name, expected=expected, received=url[:100])
