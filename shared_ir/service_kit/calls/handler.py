"""Handlers of gRPC methods, as interceptors change them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import grpc

from shared_ir.errors import IngotError
from shared_ir.service_kit.status import abort

AT_ONCE, ADMITS = "ingot_at_once", "ingot_admits"
"""Marks of methods, which :mod:`shared_ir.service_kit.rpc.method` makes."""


def bound_mark(behaviour: Any, name: str) -> Callable[..., Any] | None:
    """The mark of a method of a servicer, or of a function around one, as a function without the servicer."""
    found = getattr(behaviour, name, None)
    owner = getattr(behaviour, "__self__", None)
    return found if found is None or owner is None else partial(found, owner)


def with_behaviour(handler: Any, behaviour: Callable[..., Any]) -> Any:
    """``handler`` with another function in it, its serialisers and what its method is marked with kept."""
    inner = handler.unary_unary or handler.unary_stream or handler.stream_unary or handler.stream_stream
    for name in (AT_ONCE, ADMITS):
        if (mark := bound_mark(inner, name)) is not None:
            setattr(behaviour, name, mark)
    kind = {
        (False, False): grpc.unary_unary_rpc_method_handler,
        (False, True): grpc.unary_stream_rpc_method_handler,
        (True, False): grpc.stream_unary_rpc_method_handler,
        (True, True): grpc.stream_stream_rpc_method_handler,
    }[handler.request_streaming, handler.response_streaming]
    return kind(behaviour, handler.request_deserializer, handler.response_serializer)


_REFUSAL = "ingot_refusal"


def refusing(error: IngotError, tell: Callable[[grpc.ServicerContext], None] = lambda context: None) -> Any:
    """A handler whose calls all end with ``error``, before anything of their messages is read; ``tell`` is told of each.

    NOTE: a handler of streams is called before the first message is read; a message may be large, or never come.
    """

    def refuse(requests: Any, context: grpc.ServicerContext) -> None:
        tell(context)
        abort(context, error)

    setattr(refuse, _REFUSAL, True)
    return grpc.stream_stream_rpc_method_handler(refuse)


def is_refusal(behaviour: Any) -> bool:
    """Whether it takes no thread."""
    return getattr(behaviour, _REFUSAL, False) is True
