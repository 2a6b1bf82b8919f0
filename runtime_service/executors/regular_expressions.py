"""The regular expressions of models: RE2's, as ONNX has them. Time and memory are linear in the text, and other threads run meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from shared_ir.errors import ErrorCode, IngotError
from shared_ir.extras import needing


class Pattern:
    """A compiled expression.

    Raises:
        IngotError: UNSUPPORTED_ATTRIBUTE for what is no regular expression here; UNAVAILABLE, RE2 is not installed.
    """

    def __init__(self, text: str, field: str) -> None:
        with needing("runtime", "what runs the regular expressions of a model"):
            import re2
        options = re2.Options()
        options.log_errors = False
        try:
            self._compiled: Any = re2.compile(text, options)
        except re2.error as error:
            reason = error.args[0] if error.args else ""
            raise IngotError(
                ErrorCode.UNSUPPORTED_ATTRIBUTE,
                "a regular expression is not understood",
                field=field,
                expected="an expression of RE2",
                received=f"{text!r}: {reason.decode(errors='replace') if isinstance(reason, bytes) else reason}",
            ) from error

    def matches_all_of(self, text: str) -> bool:
        """Whether ``text`` as a whole is of this form. Raises IngotError INVALID_ARGUMENT for what is no text."""
        with _only_text(text):
            return self._compiled.fullmatch(text) is not None

    def found_in(self, text: str) -> Iterator[tuple[int, int]]:
        """Where the matches in ``text`` begin and end, from left to right. Raises IngotError INVALID_ARGUMENT for what is no text."""
        with _only_text(text):
            for match in self._compiled.finditer(text):
                yield match.span()


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
