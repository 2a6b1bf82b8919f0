"""Calls of a gRPC server are let in by their head alone, before anything of their body is read."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from functools import partial
from typing import Any

import grpc

from shared_ir.errors import IngotError
from shared_ir.service_kit.access.gate import HEADER, Gate
from shared_ir.service_kit.access.principal import TokenScope
from shared_ir.service_kit.access.rechecking import rechecked
from shared_ir.service_kit.calls.handler import refusing
from shared_ir.service_kit.calls.lanes import peer_name
from shared_ir.service_kit.status import grpc_status
from shared_ir.service_kit.telemetry.log import EXTRA

_LOG = logging.getLogger("ingot.access")
_OPEN_SERVICES = ("/grpc.health.v1.Health/",)
"""Health checks come from probes, which have no token."""

ScopesOf = Callable[[str], Collection[TokenScope]]
"""From the full name of a method to what a caller of it needs."""


class AccessInterceptor(grpc.ServerInterceptor):  # type: ignore[type-arg]  # not subscriptable at run time
    """Refuses calls that ``gate`` does not let in, and those without the scopes of their method; health checks excepted. A stream ends when
    it would be refused."""

    def __init__(self, gate: Gate, scopes_of: ScopesOf = lambda method: ()) -> None:
        self._gate = gate
        self._scopes_of = scopes_of

    def intercept_service(
        self, continuation: Callable[[Any], Any], handler_call_details: grpc.HandlerCallDetails
    ) -> Any:
        method = handler_call_details.method
        if method.startswith(_OPEN_SERVICES):
            return continuation(handler_call_details)
        try:
            header = dict(handler_call_details.invocation_metadata or ()).get(HEADER)
            self._check(header, method)
        except IngotError as error:
            return refusing(error, partial(_tell, error, method))
        handler = continuation(handler_call_details)
        if handler is None or not self._gate.changes:
            return handler
        return rechecked(handler, partial(self._check, header, method))

    def _check(self, header: str | bytes | None, method: str) -> None:
        self._gate.caller(header).require(*self._scopes_of(method))


def _tell(error: IngotError, method: str, context: grpc.ServicerContext) -> None:
    about = {"method": method.rpartition("/")[2], "peer": peer_name(context), "code": grpc_status(error).name}
    _LOG.info("a call was refused: %s", error.message, extra={EXTRA: about})
