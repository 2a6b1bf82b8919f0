"""Streams of answers that hold no thread while there is nothing to say.

gRPC's server gives a stream one thread for as long as it lives. A *detached* method returns at once, with a function that gets the
:class:`Outlet` of its call; whoever keeps that may answer from any thread, as long as it is one at a time. Nobody waits for a client.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import grpc

from shared_ir.errors import IngotError
from shared_ir.service_kit.status import grpc_metadata, grpc_status, status_text

_DETACHED = "ingot_detached"
_F = TypeVar("_F", bound=Callable[..., Any])


class Outlet(Protocol):
    """Where the answers of one call go."""

    @property
    def is_open(self) -> bool:
        """Whether the call still lives."""

    @property
    def outstanding(self) -> int:
        """Bytes of messages that the client does not take: who goes on sending has them in memory."""

    def send(self, message: Any) -> bool:
        """Hand ``message`` on, and wait for nobody; False when the call is over. A client that takes nothing for a minute is let go."""

    def when_drained(self, action: Callable[[], None]) -> None:
        """Call ``action``, which takes no time, once all that was sent is on its way: now where it is, never where the call ends before."""

    def end(self, error: IngotError | None = None) -> None:
        """Nothing comes after it."""

    def cancel(self) -> None:
        """At once, from any thread, also while another one sends."""


class PassingOutlet:
    """An outlet before another one, which it hands everything on to; a subclass says what becomes of messages."""

    def __init__(self, outlet: Outlet) -> None:
        self._outlet = outlet

    @property
    def is_open(self) -> bool:
        return self._outlet.is_open

    @property
    def outstanding(self) -> int:
        return self._outlet.outstanding

    def send(self, message: Any) -> bool:
        return self._outlet.send(message)

    def when_drained(self, action: Callable[[], None]) -> None:
        self._outlet.when_drained(action)

    def end(self, error: IngotError | None = None) -> None:
        self._outlet.end(error)

    def cancel(self) -> None:
        self._outlet.cancel()


Attach = Callable[[Outlet], None]
"""What a detached method returns: it keeps the outlet, and returns."""


def detached(method: _F) -> _F:
    """Marks a method of a servicer, ``(request, context) -> Attach``, that answers with a stream."""
    setattr(method, _DETACHED, True)
    return method


def is_detached(method: Any) -> bool:
    return getattr(method, _DETACHED, False) is True


def end_call(context: grpc.ServicerContext, send: Callable[[Any], None], error: IngotError | None) -> None:
    """End a call whose handler has returned. NOTE: ``context.abort`` raises, which nobody would catch by then."""
    if error is None:
        context.set_code(grpc.StatusCode.OK)
    else:
        context.set_trailing_metadata(grpc_metadata(error))
        context.set_code(grpc_status(error))
        context.set_details(status_text(error))
    send(None)
