"""The regular expressions of models: RE2's, as ONNX has them. Time and memory are linear in the text, and other threads run meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from shared_ir.errors import ErrorCode, IngotError
from shared_ir.extras import needing

_USUAL, _MOST = 256 << 10, 8 << 20
"""Bytes that RE2 may take for an expression in one direction, its states among them: of nearly all, and of the largest."""
_USUAL_STEPS = 1000
"""Of an expression that is matched as fast in so little memory."""
_SHOWN_CHARACTERS = 200
"""Characters of an expression in an error."""
_TOO_LARGE = "pattern too large"


class Pattern:
    """A compiled expression.

    Attributes:
        size: bytes that it takes at most, with the states that matching adds.

    Raises:
        IngotError: UNSUPPORTED_ATTRIBUTE for what is no regular expression here; UNAVAILABLE, RE2 is not installed.
    """

    def __init__(self, text: str, field: str) -> None:
        self.size = 2 * _USUAL
        reason, compiled = _compiled(text, _USUAL)
        if reason.startswith(_TOO_LARGE) or (not reason and compiled.programsize > _USUAL_STEPS):
            self.size = 2 * _MOST
            reason, compiled = _compiled(text, _MOST)
        if reason:
            raise IngotError(
                ErrorCode.UNSUPPORTED_ATTRIBUTE,
                "a regular expression is not understood",
                field=field,
                expected="an expression of RE2",
                received=f"{text[:_SHOWN_CHARACTERS]!r}: {reason[:_SHOWN_CHARACTERS]}",
            )
        self._compiled: Any = compiled

    def matches_all_of(self, text: str) -> bool:
        """Whether ``text`` as a whole is of this form. Raises IngotError INVALID_ARGUMENT for what is no text."""
        with _only_text(text):
            return self._compiled.fullmatch(text) is not None

    def found_in(self, text: str) -> Iterator[tuple[int, int]]:
        """Where the matches in ``text`` begin and end, from left to right. Raises IngotError INVALID_ARGUMENT for what is no text."""
        with _only_text(text):
            for match in self._compiled.finditer(text):
                yield match.span()


def patterns(texts: Iterable[str], field: str, take: Callable[[int], None]) -> list[Pattern]:
    """Each of ``texts`` compiled; ``take`` is asked for the bytes of each before the next one."""
    found = []
    for text in texts:
        take(0)
        found.append(Pattern(text, field))
        take(found[-1].size)
    return found


def _compiled(text: str, most: int) -> tuple[str, Any]:
    """Why ``text`` cannot be compiled in ``most`` bytes, or the expression.

    NOTE: RE2's package remembers the last hundred expressions of the process. It forgets them all after a large one: that many
    of those would be a gigabyte.
    """
    with needing("runtime", "what runs the regular expressions of a model"):
        import re2
    options = re2.Options()
    options.log_errors, options.max_mem = False, most
    try:
        return "", re2.compile(text, options)
    except UnicodeEncodeError:
        return "it is no text", None
    except re2.error as error:
        reason = error.args[0] if error.args else ""
        return (reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)) or "an error", None
    finally:
        if most > _USUAL:
            re2.purge()


@contextmanager
def _only_text(text: str) -> Iterator[None]:
    try:
        yield
    except UnicodeEncodeError as error:
        raise IngotError(
            ErrorCode.INVALID_ARGUMENT,
            f"a string is no text: {error}",
            expected="characters that UTF-8 has",
            received=repr(text[:40]),
        ) from error
