"""What every line of the log says of what it is about: job, stage, user, trace."""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar

from shared_ir.printable import printable

CHANGE = "change."
"""Begins the names of fields that say what a call was to change."""
MOST_CHARACTERS = 1000
"""Of what a line says of one thing."""
FIELDS = ("job", "stage", "user", "trace_id")
_CURRENT: ContextVar[Mapping[str, str]] = ContextVar("ingot_fields", default={})  # noqa: B039, never changed


def current_fields() -> Mapping[str, str]:
    """Of the call or stage that this thread works for; what is not known is left out."""
    return _CURRENT.get()


class saying:
    """Lines inside the block say this too; what is empty is left as it was."""

    __slots__ = ("_fields", "_token")

    def __init__(self, **fields: str) -> None:
        self._fields = fields

    def __enter__(self) -> None:
        self._token = _CURRENT.set({**_CURRENT.get(), **_told(self._fields)})

    def __exit__(self, *_: object) -> None:
        _CURRENT.reset(self._token)


def say(**fields: str) -> None:
    """From here on to the end of the block of :func:`saying` around it."""
    _CURRENT.set({**_CURRENT.get(), **_told(fields)})


def _told(fields: Mapping[str, str]) -> Mapping[str, str]:
    return {name: told(text) for name, text in fields.items() if text}


def told(text: str) -> str:
    """What a line of the log says of ``text``, which clients may have chosen: no more than so many characters, and none that begins
    another line."""
    shown = printable(text[:MOST_CHARACTERS], kept="")
    return shown if len(text) <= MOST_CHARACTERS else f"{shown}... ({len(text)} characters)"
