"""Numbers from elsewhere."""

from __future__ import annotations

import math

FIRST_SECOND, LAST_SECOND = -62_135_596_800, 253_402_300_799
"""Since the epoch: the years 1 to 9999, which google.protobuf.Timestamp stands for."""
_BEYOND = 1 << 63
_MOST_DIGITS = len(str(_BEYOND))


def whole_number(text: str) -> int | None:
    """The number that ``text`` writes in ASCII digits and int64 holds; None where there is none.

    ``int`` raises ValueError for what ``isdigit`` takes: signs that look like digits, and some thousands of digits.
    """
    number = int(text) if text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS else _BEYOND
    return number if number < _BEYOND else None


def is_within(number: float, least: float, most: float = math.inf) -> bool:
    """Whether ``number`` is finite and in the range. NOTE: comparisons with NaN are false, so that ``number < least`` lets it through."""
    return math.isfinite(number) and least <= number <= most


class WrittenInfinity(float):
    """An infinity that a document spells out, told from a number that is too large for a float and became one."""
