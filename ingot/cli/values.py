"""Kinds of values of options, for ``type=``: what is none is wrong usage, and said before anything is done."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, TypeVar

from ingot.tuning import EFFORTS, MOST_SECONDS
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.numerals import is_within, whole_number
from shared_ir.usage import UsageError

Value = TypeVar("Value")
Shape = tuple[int | str | None, ...]
"""Extents, names of symbols, and None for what is left as it is."""
_MOST_SHOWN = 100
MOMENT = "2026-05-31 or 2026-05-31T12:00, local time"


def whole(least: int, most: int | None = None) -> Callable[[str], int]:
    """A whole number within a range."""

    def parse_number(text: str) -> int:
        number = whole_number(text.removeprefix("-"))
        number = -number if number is not None and text.startswith("-") else number
        if number is None or number < least or (most is not None and number > most):
            raise _refused(text, expected)
        return number

    expected = f"a whole number of at least {least}" if most is None else f"a whole number from {least} to {most}"
    return parse_number


def tuning_seconds(text: str) -> int:
    """One of :data:`ingot.tuning.EFFORTS`, or seconds."""
    if text.lower() in EFFORTS:
        return int(EFFORTS[text.lower()])
    seconds = whole_number(text)
    if seconds is None or seconds > MOST_SECONDS:
        raise _refused(text, f"{', '.join(EFFORTS)}, or a whole number of seconds from 0 to {MOST_SECONDS:g}")
    return seconds


def number(least: float, most: float) -> Callable[[str], float]:
    """A number within a range."""

    def parse_number(text: str) -> float:
        try:
            found = float(text)
        except ValueError:
            found = math.nan
        if not is_within(found, least, most):
            raise _refused(text, f"a number from {least:g} to {most:g}")
        return found

    return parse_number


def one_of(*words: str) -> Callable[[str], str]:
    """One of ``words``, in capitals or not; an empty text is none of them, and is taken."""

    def parse_word(text: str) -> str:
        if text and text.lower() not in words:
            raise _refused(text, f"one of {', '.join(words)}")
        return text.lower()

    return parse_word


def some_of(*words: str) -> Callable[[str], list[str]]:
    """Some of ``words``, with commas between."""

    def parse_words(text: str) -> list[str]:
        found = text.split(",")
        if not set(found) <= set(words):
            raise _refused(text, f"some of {', '.join(words)}, with commas between")
        return found

    return parse_words


def pair(parse: Callable[[str], Value], expected: str) -> Callable[[str], tuple[str, Value]]:
    """``NAME=VALUE``, of which ``parse`` reads the value."""

    def parse_pair(text: str) -> tuple[str, Value]:
        name, equals, value = text.partition("=")
        if not equals or not name or not value:
            raise _refused(text, expected)
        return name, parse(value)

    return parse_pair


def shape(text: str) -> tuple[str, Shape]:
    """``INPUT=1,3,h,w``: a name may have ``=`` in it, dims have none."""
    name, equals, dims = text.rpartition("=")
    parts = [part.strip() for part in dims.split(",")] if dims.strip() else []
    if not equals or not name or "" in parts:
        raise _refused(text, "a shape such as INPUT=1,3,h,w")
    numbers = [whole_number(part) for part in parts]
    return name, tuple(
        None if part == "?" else part if number is None else number for part, number in zip(parts, numbers, strict=True)
    )


def extents(text: str) -> tuple[int, ...]:
    """``1x3x48x192``; none for a scalar."""
    found = [whole_number(part) for part in text.split("x")] if text else []
    known = tuple(extent for extent in found if extent is not None)
    if len(known) < len(found):
        raise _refused(text, "a shape such as 1x3x48x192")
    return known


def moment(text: str) -> float:
    """Seconds since the epoch; 0 for an empty text."""
    try:
        return datetime.fromisoformat(text).timestamp() if text else 0.0
    except (ValueError, OverflowError, OSError) as error:
        raise _refused(text, "a time such as 2026-05-31T12:00") from error


def checked(check: Callable[[str], Any]) -> Callable[[str], str]:
    """A text that ``check`` takes, which raises IngotError for others."""

    def parse_text(text: str) -> str:
        try:
            check(text)
        except IngotError as error:
            raise argparse.ArgumentTypeError(str(error)) from error
        return text

    return parse_text


def label(text: str) -> str:
    """The name of a label."""
    from shared_ir.artifact.published import check_label  # other commands need nothing of it

    return checked(check_label)(text)


def label_version(text: str) -> tuple[str, int]:
    """``LABEL=VERSION``."""
    name, version = pair(whole(1), "LABEL=VERSION")(text)
    return new_label(name), version


def new_label(text: str) -> str:
    """The name of a label that is to be set."""
    from shared_ir.artifact.published import check_new_label  # as above

    return checked(check_new_label)(text)


def model_name(text: str) -> str:
    """A name that a new model may have."""
    from shared_ir.artifact.published import check_new_model_name  # as above

    return checked(check_new_model_name)(text)


def once(option: str, given: Iterable[tuple[str, Value]]) -> dict[str, Value]:
    """Values by name.

    Raises:
        UsageError: of two values for one name, one would be ignored.
    """
    found: dict[str, Value] = {}
    for name, value in given:
        if name in found:
            message = f"{option} says two things of {name!r}"
            raise UsageError(ErrorCode.INVALID_ARGUMENT, message, field=option, remedy="Give it once.")
        found[name] = value
    return found


def _refused(text: str, expected: str) -> argparse.ArgumentTypeError:
    return argparse.ArgumentTypeError(f"{text[:_MOST_SHOWN]!r} is not {expected}")
