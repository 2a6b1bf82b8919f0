"""Streams end when their caller is let in no longer: he is asked for anew with every message, in either direction."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from shared_ir.errors import IngotError
from shared_ir.service_kit.calls.exchange import exchange, terms_of
from shared_ir.service_kit.calls.handler import with_behaviour
from shared_ir.service_kit.calls.outlet import Attach, Outlet, PassingOutlet, detached, is_detached

Check = Callable[[], object]
"""Raises the IngotError with which a stream ends."""


def rechecked(handler: Any, check: Check) -> Any:
    """``handler``, whose streams ask ``check`` for each message; one of single messages stays as it is."""
    inner = handler.unary_unary or handler.unary_stream or handler.stream_unary or handler.stream_stream
    if not (handler.request_streaming or handler.response_streaming):
        return handler
    if is_detached(inner):
        return with_behaviour(handler, detached(_attaching(inner, check)))
    terms = terms_of(inner)
    if terms is not None:
        return with_behaviour(handler, exchange(terms)(_answering(inner, check)))
    return with_behaviour(handler, _streaming(inner, check, handler.request_streaming, handler.response_streaming))


def _attaching(inner: Callable[..., Attach], check: Check) -> Callable[..., Attach]:
    def begun(request: Any, context: Any) -> Attach:
        attach = inner(request, context)
        return lambda outlet: attach(_CheckedOutlet(outlet, check))

    return begun


def _answering(inner: Callable[..., Any], check: Check) -> Callable[..., Any]:
    def answer(message: Any, context: Any) -> Any:
        check()
        return inner(message, context)

    return answer


def _streaming(inner: Callable[..., Any], check: Check, takes: bool, gives: bool) -> Callable[..., Any]:
    def unary(requests: Any, context: Any) -> Any:
        return inner(_each(requests, check), context)

    def stream(request: Any, context: Any) -> Iterator[Any]:
        return _each(inner(_each(request, check) if takes else request, context), check)

    return stream if gives else unary


def _each(messages: Iterator[Any], check: Check) -> Iterator[Any]:
    for message in messages:
        check()
        yield message


class _CheckedOutlet(PassingOutlet):
    """An outlet that ends instead of sending what its caller may know no longer."""

    def __init__(self, outlet: Outlet, check: Check) -> None:
        super().__init__(outlet)
        self._check = check

    def send(self, message: Any) -> bool:
        try:
            self._check()
        except IngotError as error:
            self.end(error)
            return False
        return super().send(message)
