"""What a call holds, for who makes its answer: he need not know which call that is."""

from __future__ import annotations

import threading

from shared_ir.service_kit.calls.lanes import ServerCall

_ANSWERED = threading.local()
"""``call`` is the one that this thread answers."""


def grow(count: int) -> None:
    """Bytes of the answer to the call of this thread, before they are made; raises IngotError RESOURCE_EXHAUSTED."""
    call: ServerCall | None = getattr(_ANSWERED, "call", None)
    if call is not None:
        call.guest.grow(count)


def hold(count: int) -> None:
    """Bytes that are made of the message of the call of this thread, until it is over; raises as :func:`grow`."""
    call: ServerCall | None = getattr(_ANSWERED, "call", None)
    if call is not None:
        call.hold(count)


class answering:
    """In its block this thread answers ``call``. NOTE: every request goes through it; a generator would take thrice as long."""

    __slots__ = ("_call",)

    def __init__(self, call: ServerCall) -> None:
        self._call = call

    def __enter__(self) -> None:
        _ANSWERED.call = self._call

    def __exit__(self, *_: object) -> None:
        _ANSWERED.call = None
