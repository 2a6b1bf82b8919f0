"""What is told of each inference that is over: a line of the access log, and spans of OpenTelemetry.

Both are off unless they are asked for; then nobody looks at a request for them.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import Any

from runtime_service.batching.execution import BatchResult
from runtime_service.batching.messages import Origin
from shared_ir.service_kit.status import visible
from shared_ir.service_kit.telemetry.log import EXTRA
from shared_ir.service_kit.telemetry.trace_parent import TraceParent
from shared_ir.service_kit.telemetry.tracing import TRACING

_LOG = logging.getLogger("ingot.access")
_OK = "OK"
_MOST_TEXT = 100
"""Bytes of what a client chose, in a line or a span."""


@dataclass(frozen=True, slots=True)
class Report:
    """One inference, from ``started`` to ``ended`` on ``time.monotonic``.

    Attributes:
        model: as the client named it.
        version: that was reached, or 0.
        request_id: of the message; that of its head stands for it where there is none.
        code: of the error; empty where there is a result.
    """

    model: str
    version: int
    request_id: str
    peer: str
    origin: Origin
    started: float
    ended: float
    result: BatchResult | None = None
    code: str = ""

    def about(self) -> dict[str, Any]:
        """What a line and a span have in common."""
        found: dict[str, Any] = {
            "model": visible(self.model, _MOST_TEXT),
            "version": str(self.version or ""),
            "request_id": visible(self.request_id or self.origin.request_id, _MOST_TEXT),
            "protocol": self.origin.protocol,
            "peer": self.peer,
            "code": self.code or _OK,
        }
        if self.result is not None:
            found |= {"rows": self.result.execution.rows, "requests": self.result.execution.requests}
        return found


class InferenceReports:
    """Of a server; ``has_access_log``: whether every inference has a line."""

    def __init__(self, has_access_log: bool = False) -> None:
        self._has_access_log = has_access_log

    @property
    def is_on(self) -> bool:
        """Whether anything is told of anything: requests are not looked at for it otherwise."""
        return self._has_access_log or TRACING.is_on

    def tell(self, report: Report) -> None:
        about = report.about()
        trace = TraceParent.parse(report.origin.traceparent)
        if TRACING.is_on:
            trace = _spans(report, about) or trace
        if self._has_access_log:
            about |= {"trace_id": trace.trace_id if trace else "", "seconds": round(report.ended - report.started, 6)}
            if report.result is not None:
                about["queue_seconds"] = round(report.result.queue_time, 6)
                about["compute_seconds"] = round(report.result.execution.compute_time, 6)
            name = about["model"]
            _LOG.info("inference on %s from %s: %s", name, report.peer, about["code"], extra={EXTRA: about})


def _spans(report: Report, about: dict[str, Any]) -> TraceParent | None:
    """That of the request. Those of its parts are below it, one after the other: of a request that was computed in pieces they have the
    lengths of all pieces together."""
    since = time.time() - time.monotonic()  # of one clock on the other
    attributes = {f"ingot.{name}": value for name, value in about.items()}
    parent = TRACING.past(
        "infer",
        report.origin.traceparent,
        since + report.started,
        since + report.ended,
        "SERVER",
        report.code,
        **attributes,
    )
    trace = TraceParent.parse(parent)
    if report.result is not None and trace is not None and trace.is_sampled:
        execution, at = report.result.execution, since + report.result.execution.began
        TRACING.past("queue", parent, at - report.result.queue_time, at)
        parts = {
            "compute input": execution.merge_time,
            "compute": execution.compute_time,
            "compute output": execution.split_time,
        }
        for name, seconds in parts.items():
            TRACING.past(name, parent, at, at + seconds)
            at += seconds
    return trace
