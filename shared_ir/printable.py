"""Text of others on its way to people: characters that a terminal or a reader would obey become visible.

A model, a client or a service may put escape sequences, carriage returns and overrides of the direction of writing into names
and messages. All that leaves for a terminal or a log goes through here: errors as text, whatever a console prints, log lines.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence


def printable(text: str, kept: str = "\n\t") -> str:
    """``text``; what is neither printable nor in ``kept`` is written as a Python escape."""
    return _escaped(text, kept, lambda c: c.encode("unicode_escape").decode())


def printable_json(document: str) -> str:
    """The same JSON document; what is not printable, which is inside of its strings, is written as JSON escapes."""
    return _escaped(document, "\n", lambda c: json.dumps(c)[1:-1])


_MOST_NAMED = 12


def some_of(names: Sequence[object]) -> str:
    """``names`` for a sentence: of many of them the first ones, and how many others there are."""
    named = ", ".join(map(str, names[:_MOST_NAMED]))
    return named if len(names) <= _MOST_NAMED else f"{named} and {len(names) - _MOST_NAMED} more"


def _escaped(text: str, kept: str, escape: Callable[[str], str]) -> str:
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in kept else escape(c) for c in text)
