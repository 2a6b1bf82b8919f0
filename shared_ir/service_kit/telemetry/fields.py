"""What every line of the log says of what it is about: job, stage, user, trace."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

CHANGE = "change."
"""Begins the names of fields that say what a call was to change."""
FIELDS = ("job", "stage", "user", "trace_id")
_CURRENT: ContextVar[Mapping[str, str]] = ContextVar("ingot_fields", default={})  # noqa: B039, never changed


def current_fields() -> Mapping[str, str]:
    """Of the call or stage that this thread works for; what is not known is left out."""
    return _CURRENT.get()


@contextmanager
def saying(**fields: str) -> Iterator[None]:
    """Lines inside the block say this too; what is empty is left as it was."""
    token = _CURRENT.set({**_CURRENT.get(), **{name: text for name, text in fields.items() if text}})
    try:
        yield
    finally:
        _CURRENT.reset(token)


def say(**fields: str) -> None:
    """From here on to the end of the block of :func:`saying` around it."""
    _CURRENT.set({**_CURRENT.get(), **{name: text for name, text in fields.items() if text}})
