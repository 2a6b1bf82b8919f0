"""JSON that somebody else wrote, where nobody counted it before: one function that has one way to fail."""

from __future__ import annotations

import json
from typing import Any

_SURROGATE = "\\ud"
"""How JSON spells half of a pair, and a whole one; characters of two halves become one as they are read."""


def foreign_json(data: bytes | str) -> Any:
    """The value that ``data`` writes.

    Objects keep the last of several fields of one name. What can be read can be written again.

    Raises:
        ValueError: whatever is wrong: it is no JSON, nested too deep, or has what JSON has no words for (infinities, also as numbers that
            are too large for a float; NaN; halves of surrogate pairs).
    """
    return parse_foreign(data, dict)


def parse_foreign(data: bytes | str, read_object: Any) -> Any:
    """As :func:`foreign_json`; ``read_object`` makes an object of the pairs of its names and values, or raises ValueError."""
    try:
        value = json.loads(data, object_pairs_hook=read_object, parse_constant=_no_number, parse_float=_finite)
        if _SURROGATE in (data.decode(errors="replace") if isinstance(data, bytes) else data).lower():
            json.dumps(value, ensure_ascii=False).encode()
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error
    return value


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is no number of JSON")


def _finite(text: str) -> float:
    number = float(text)
    if number in (float("inf"), float("-inf")):
        raise ValueError("a number is too large")
    return number
