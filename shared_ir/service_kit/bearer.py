"""The token that calls must carry, of both services and both protocols."""

from __future__ import annotations

import hmac
import logging
from collections.abc import Callable
from typing import Any

import grpc

from shared_ir.errors import ErrorCode, IngotError
from shared_ir.service_kit.status import abort

_LOG = logging.getLogger(__name__)
HEADER = "authorization"
_OPEN_SERVICES = ("/grpc.health.v1.Health/",)
"""Health checks come from probes, which have no token."""


class Bearer:
    """Tells calls with the token from others, in a time that does not depend on what they carry."""

    def __init__(self, token: str) -> None:
        self._expected = f"Bearer {token}".encode()

    def accepts(self, given: str | bytes | None) -> bool:
        """``given`` is the header ``authorization`` of a call; None where it has none."""
        data = given.encode(errors="replace") if isinstance(given, str) else given or b""
        return hmac.compare_digest(data, self._expected)


def refused() -> IngotError:
    """What a client without the token is told; as a status UNAUTHENTICATED or 401."""
    return IngotError(
        ErrorCode.INVALID_ARGUMENT,
        "the call carries no token, or another one than the service's",
        field=HEADER,
        expected="Bearer <token>",
        remedy="Set INGOT_TOKEN to the service's token, or send it as `authorization: Bearer <token>`.",
    )


class TokenInterceptor(grpc.ServerInterceptor):  # type: ignore[type-arg]  # not subscriptable at run time
    """Refuses calls without the token, health checks excepted."""

    def __init__(self, token: str) -> None:
        self._bearer = Bearer(token)

    def intercept_service(
        self, continuation: Callable[[Any], Any], handler_call_details: grpc.HandlerCallDetails
    ) -> Any:
        handler = continuation(handler_call_details)
        if handler is None or handler_call_details.method.startswith(_OPEN_SERVICES):
            return handler
        given = dict(handler_call_details.invocation_metadata or ()).get(HEADER)
        # NOTE: a handler of streams is called before the first message is read; a message may be large, or never come.
        return handler if self._bearer.accepts(given) else grpc.stream_stream_rpc_method_handler(_refuse)


def _refuse(requests: Any, context: grpc.ServicerContext) -> None:
    _LOG.info("a call without the token was refused")
    abort(context, refused(), grpc.StatusCode.UNAUTHENTICATED)
