"""What a call holds, for who makes its answer: he need not know which call that is."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from shared_ir.service_kit.lanes import Call

_ANSWERED = threading.local()
"""``call`` is the one that this thread answers."""


def grow(count: int) -> None:
    """Bytes of the answer to the call of this thread, before they are made; raises IngotError RESOURCE_EXHAUSTED."""
    call: Call | None = getattr(_ANSWERED, "call", None)
    if call is not None:
        call.guest.grow(count)


def hold(count: int) -> None:
    """Bytes that are made of the message of the call of this thread, until it is over; raises as :func:`grow`."""
    call: Call | None = getattr(_ANSWERED, "call", None)
    if call is not None:
        call.hold(count)


@contextmanager
def answering(call: Call) -> Iterator[None]:
    """This thread answers ``call``."""
    _ANSWERED.call = call
    try:
        yield
    finally:
        _ANSWERED.call = None
