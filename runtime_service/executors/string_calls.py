"""Functions of the executor on strings: object arrays of str in, arrays out."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from runtime_service.arrays import Array
from runtime_service.executors.objects import Room, in_parts
from runtime_service.executors.regular_expressions import Pattern
from shared_ir.errors import ErrorCode, IngotError

_CELL_BYTES = 24
"""Of an element of a result: in a list, in an array, and its number."""


def string_concat(a: Array, b: Array, *, room: Room) -> Array:
    pairs = list(zip(a.reshape(-1).tolist(), b.reshape(-1).tolist(), strict=True))
    room(sum(len(x) + len(y) + _CELL_BYTES for x, y in pairs))
    return _strings([x + y for some in in_parts(pairs, room) for x, y in some], a.shape)


def string_split(x: Array, *, delimiter: str = "", maxsplit: int | None = None, room: Room) -> tuple[Array, Array]:
    """Parts, filled up with empty strings along a new last axis, and their numbers; without delimiter split at white space."""
    most = -1 if maxsplit is None else maxsplit
    texts = in_parts(x.reshape(-1).tolist(), room)
    parts = [text.split(delimiter or None, most) if text else [] for some in texts for text in some]
    width = max((len(p) for p in parts), default=0)
    room(_CELL_BYTES * width * len(parts))
    filled = [part for some in in_parts(parts, room) for row in some for part in (*row, *[""] * (width - len(row)))]
    return _strings(filled, (*x.shape, width)), np.array([len(p) for p in parts], np.int64).reshape(x.shape)


def string_normalizer(
    x: Array,
    *,
    case_change_action: str = "NONE",
    is_case_sensitive: int = 0,
    stopwords: Sequence[str] = (),
    locale: str = "",
) -> Array:
    """``x`` without stop words, in upper or lower case; one empty string where nothing is left.

    Raises:
        IngotError: INVALID_ARGUMENT, a matrix of more than one row.
    """
    if x.ndim == 2 and x.shape[0] != 1:
        received = str(x.shape[0])
        raise IngotError(ErrorCode.INVALID_ARGUMENT, "StringNormalizer takes one row", expected="1", received=received)
    change = {"UPPER": str.upper, "LOWER": str.lower}.get(case_change_action, str)
    folded: Callable[[str], str] = str if is_case_sensitive else str.lower
    stops = {folded(word) for word in stopwords}
    kept = [change(text) for text in x.reshape(-1).tolist() if folded(text) not in stops] or [""]
    return _strings(kept, (1, len(kept)) if x.ndim == 2 else (len(kept),))


def tokenizer(
    x: Array,
    *,
    mark: int,
    mincharnum: int,
    pad_value: str,
    separators: Sequence[str] = (),
    tokenexp: str = "",
    room: Room,
) -> Array:
    """The parts of strings that match ``tokenexp``, or between ``separators`` (one empty separator: characters), which have
    ``mincharnum`` characters at least; rows are filled up with ``pad_value``. ``mark`` puts start and end of text around them.

    Raises:
        IngotError: UNSUPPORTED_ATTRIBUTE for what is no regular expression here.
    """
    if tokenexp:
        pattern = Pattern(tokenexp, "tokenexp")
        found = [[text[i:j] for i, j in pattern.found_in(text)] for text in x.reshape(-1).tolist()]
    elif list(separators) == [""]:
        found = [list(text) for text in x.reshape(-1).tolist()]
    else:
        found = [[text] for text in x.reshape(-1).tolist()]
        for separator in separators:
            pattern = Pattern(separator, "separators")
            found = [[part for piece in row for part in _between(pattern, piece)] for row in found]
    rows = [[token for token in row if len(token) >= max(1, mincharnum)] for row in found]
    if mark and any(rows):
        rows = [["\x02", *row, "\x03"] for row in rows]
    width = max((len(row) for row in rows), default=0)
    room(_CELL_BYTES * width * len(rows))
    filled = [t for some in in_parts(rows, room) for row in some for t in (*row, *[pad_value] * (width - len(row)))]
    return _strings(filled, (*x.shape, width))


def _between(pattern: Pattern, text: str) -> list[str]:
    """What stands between the matches, groups of the pattern or not."""
    ends = [0, *(place for span in pattern.found_in(text) for place in span), len(text)]
    return [text[start:end] for start, end in zip(ends[::2], ends[1::2], strict=True)]


def regex_full_match(x: Array, *, pattern: str) -> Array:
    """Whether each string as a whole is of the form ``pattern``.

    Raises:
        IngotError: UNSUPPORTED_ATTRIBUTE for a pattern that is no regular expression here.
    """
    compiled = Pattern(pattern, "pattern")
    found = [compiled.matches_all_of(text) for text in x.reshape(-1).tolist()]
    return np.array(found, np.bool_).reshape(x.shape)


def string_of(x: Array) -> Array:
    """Numbers as text: floats in the fewest digits that tell them apart, in scientific form beyond 1e-4 and 1e8."""
    if x.dtype.kind not in "biu":
        return _strings([_float_text(v) for v in x.reshape(-1)], x.shape)
    numbers = x.astype(np.int64) if x.dtype.kind == "b" else x
    return _strings([str(int(v)) for v in numbers.reshape(-1)], x.shape)


def _float_text(value: Any) -> str:
    number = float(value)
    if np.isnan(number):
        return "NaN"
    if np.isinf(number):
        return "INF" if number > 0 else "-INF"
    narrow = value if isinstance(value, (np.float16, np.float32, np.float64)) else np.float32(value)
    return np.format_float_positional(narrow, trim="-") if 1e-4 <= abs(number) < 1e8 or number == 0 else str(narrow)


def number_of(x: Array, *, dtype: np.dtype[Any]) -> Array:
    """The numbers that strings spell out.

    Raises:
        IngotError: INVALID_ARGUMENT, a string that is no number.
    """
    texts = x.reshape(-1).tolist()
    try:
        if dtype.kind in "iu":
            values: list[Any] = [
                int(text) if re.fullmatch(r"\s*[+-]?\d+\s*", text) else int(float(text)) for text in texts
            ]
        else:
            values = [float(text) for text in texts]
        return np.array(values, np.float64 if dtype.kind not in "iu" else dtype).astype(dtype).reshape(x.shape)
    except (ValueError, OverflowError) as error:
        raise IngotError(
            ErrorCode.INVALID_ARGUMENT,
            "a string is no number",
            expected=f"numbers as {dtype}",
            received=str(error)[:200],
        ) from error


def _strings(texts: Sequence[str], shape: tuple[int, ...]) -> Array:
    found = np.empty(len(texts), object)
    found[:] = texts
    return found.reshape(shape)


FUNCTIONS: Mapping[str, Any] = MappingProxyType(
    {
        f.__name__: f
        for f in (string_concat, string_split, string_normalizer, tokenizer, regex_full_match, string_of, number_of)
    }
)
