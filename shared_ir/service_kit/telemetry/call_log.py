"""One line of the log for each call of a gRPC server, once it is over."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any

import grpc

from shared_ir.service_kit.status import visible
from shared_ir.service_kit.telemetry.fields import CHANGE
from shared_ir.service_kit.telemetry.log import EXTRA

_ACCESS, _AUDIT = logging.getLogger("ingot.access"), logging.getLogger("ingot.audit")
_SILENT = (
    grpc.StatusCode.OK,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.INTERNAL,
)
"""Statuses without a line where only refusals have one: metrics count them, and a failure of ours has its own."""
_PROBES = "/grpc.health."
"""Ask every few seconds."""


class CallLog:
    """Lines of all calls, or of those that were refused. What changes something is told apart, as ``ingot.audit``."""

    def __init__(self, tells_all: bool = False) -> None:
        self._tells_all = tells_all

    def tell(
        self,
        method: str,
        peer: str,
        context: Any,
        started: float,
        fields: Mapping[str, str],
        silence: grpc.StatusCode = grpc.StatusCode.OK,
    ) -> None:
        """Nothing of the request is in the message but the name of a method that exists.

        Args:
            started: on ``time.monotonic``.
            fields: what was said of the call while it ran.
            silence: what it means that the call has no status of its own.
        """
        code = context.code() or silence
        if method.startswith(_PROBES) or (code in _SILENT and not self._tells_all):
            return
        text = visible((context.details() or b"").decode(errors="replace"), 300)
        about = {"method": method.rpartition("/")[2], "peer": peer, "code": code.name}
        about |= {"seconds": round(time.monotonic() - started, 6)}
        logger = _AUDIT if any(name.startswith(CHANGE) for name in fields) else _ACCESS
        logger.info(
            "%s from %s: %s%s", method, peer, code.name, f" {text}" if text else "", extra={EXTRA: {**fields, **about}}
        )
