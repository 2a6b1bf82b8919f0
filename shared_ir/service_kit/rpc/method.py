"""A method of a server: what its handler says of it, and how its messages are read, counted and written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from shared_ir.errors import ErrorCode, IngotError
from shared_ir.service_kit.calls.exchange import Terms, terms_of
from shared_ir.service_kit.calls.handler import ADMITS, AT_ONCE, bound_mark, is_refusal
from shared_ir.service_kit.calls.lanes import Lane
from shared_ir.service_kit.calls.outlet import is_detached
from shared_ir.service_kit.memory.message_cost import cost_of


@dataclass(frozen=True, slots=True)
class RpcMethod:
    """``behaviour`` is ``(request or requests, context) -> response, responses`` or what exchange and outlet say.

    Attributes:
        is_refusal: it ends at once, before its messages.
        at_once: whether a call with this message takes so little time that it may be answered by the thread that reads all connections.
        admits: raises IngotError where a message that begins so is not wanted from that peer.
    """

    path: str
    handler: Any
    lane: Lane
    behaviour: Callable[..., Any]
    parse: Callable[[bytes], Any]
    serialise: Callable[[Any], bytes]
    cost: Callable[[bytes], int]
    takes_stream: bool
    gives_stream: bool
    terms: Terms | None
    is_detached: bool
    is_refusal: bool
    at_once: Callable[[bytes], bool] | None
    admits: Callable[[bytes, str], None] | None

    @classmethod
    def of(cls, path: str, handler: Any, lane: Lane) -> RpcMethod:
        """From a handler of gRPC's. Raises IngotError INTERNAL: it takes messages that nothing counts."""
        inner = handler.unary_unary or handler.unary_stream or handler.stream_unary or handler.stream_stream
        return cls(
            path=path,
            handler=handler,
            lane=lane,
            behaviour=inner,
            parse=handler.request_deserializer or _same,
            serialise=handler.response_serializer or _same,
            cost=len if is_refusal(inner) else cost_of(handler.request_deserializer),
            takes_stream=handler.request_streaming,
            gives_stream=handler.response_streaming,
            terms=terms_of(inner),
            is_detached=is_detached(inner),
            is_refusal=is_refusal(inner),
            at_once=bound_mark(inner, AT_ONCE),
            admits=bound_mark(inner, ADMITS),
        )

    def read(self, data: bytes) -> Any:
        """Raises IngotError INVALID_ARGUMENT."""
        try:
            return self.parse(data)
        except Exception as error:  # whatever the parser makes of it: these bytes are no message
            raise IngotError(
                ErrorCode.INVALID_ARGUMENT,
                "the call carries bytes that are no message of this method",
                expected="a message of the method's request type",
                received=f"{len(data)} bytes",
                remedy="Use stubs that were made from the service's own description.",
            ) from error


def at_once(predicate: Callable[[Any, bytes], bool]) -> Callable[[Any], Any]:
    """Marks a method of a servicer, which ``predicate`` gets, and a message: see :class:`RpcMethod`."""

    def mark(method: Any) -> Any:
        setattr(method, AT_ONCE, predicate)
        return method

    return mark


def admitted(check: Callable[[Any, bytes, str], None]) -> Callable[[Any], Any]:
    """Marks a method of a servicer whose messages may be large: ``check`` gets it, how a message begins that does not come at once, and
    whose it is. It raises the IngotError with which the call ends before the rest comes."""

    def mark(method: Any) -> Any:
        setattr(method, ADMITS, check)
        return method

    return mark


def _same(data: Any) -> Any:
    return data
