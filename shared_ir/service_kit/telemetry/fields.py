"""What every line of the log says of what it is about: job, stage, user, trace."""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar

CHANGE = "change."
"""Begins the names of fields that say what a call was to change."""
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
        self._token = _CURRENT.set({**_CURRENT.get(), **{name: text for name, text in self._fields.items() if text}})

    def __exit__(self, *_: object) -> None:
        _CURRENT.reset(self._token)


def say(**fields: str) -> None:
    """From here on to the end of the block of :func:`saying` around it."""
    _CURRENT.set({**_CURRENT.get(), **{name: text for name, text in fields.items() if text}})
