"""Functions of the executor on strings: object arrays of str in, arrays out."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from runtime_service.arrays import Array
from runtime_service.executors.objects import ObjectAllowance, characters
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.regular_expressions import Pattern, patterns

_TEXT_BYTES = 80
"""Of a string beside its characters."""
_CELL_BYTES, _ROW_BYTES = 24, 128
"""Of an element of a result, in lists and in an array; of a list."""
_DIGITS_BYTES = 32
"""Of a number's text; floats beyond 1e8 and below 1e-4 are in scientific form."""
_SLICE_CHARACTERS = 1 << 16
Row = list[str]


def string_concat(a: Array, b: Array, *, room: ObjectAllowance) -> Array:
    room.take(_CELL_BYTES * a.size)
    found, at = np.empty(a.size, object), 0
    for left, right in zip(room.each(a), room.each(b), strict=True):
        room.take(sum(_TEXT_BYTES + characters(x) + characters(y) for x, y in zip(left, right, strict=True)))
        found[at : at + len(left)] = [x + y for x, y in zip(left, right, strict=True)]
        at += len(left)
    return found.reshape(a.shape)


def string_split(
    x: Array, *, delimiter: str = "", maxsplit: int | None = None, room: ObjectAllowance
) -> tuple[Array, Array]:
    """Parts, filled up with empty strings along a new last axis, and their numbers; without delimiter split at white space."""
    most = -1 if maxsplit is None else maxsplit

    def parts(text: str) -> Row:
        count = _most_parts(text, delimiter, room)
        count = count if most < 0 else min(count, most + 1)
        room.take(count * (_CELL_BYTES + _TEXT_BYTES) + characters(text))
        return text.split(delimiter or None, most) if text else []

    rows = _rows(x, parts, room)
    return _filled(rows, "", x.shape, room), np.array([len(row) for row in rows], np.int64).reshape(x.shape)


def _most_parts(text: str, delimiter: str, room: ObjectAllowance) -> int:
    """Parts of ``text`` at most."""
    if delimiter:
        return text.count(delimiter) + 1
    count = 1
    for start in range(0, len(text), _SLICE_CHARACTERS):
        room.take(0)
        count += len(text[start : start + _SLICE_CHARACTERS].split())
    return count


def string_normalizer(
    x: Array,
    *,
    case_change_action: str = "NONE",
    is_case_sensitive: int = 0,
    stopwords: Sequence[str] = (),
    locale: str = "",
    room: ObjectAllowance,
) -> Array:
    """``x`` without stop words, in upper or lower case; one empty string where nothing is left.

    Raises:
        IngotError: INVALID_ARGUMENT, a matrix of more than one row.
    """
    if x.ndim == 2 and x.shape[0] != 1:
        received = str(x.shape[0])
        raise IngotError(ErrorCode.INVALID_ARGUMENT, "StringNormalizer takes one row", expected="1", received=received)
    change = {"UPPER": str.upper, "LOWER": str.lower}.get(case_change_action, str)
    folded: Callable[[str], str] = str if is_case_sensitive or not stopwords else str.lower
    stops = {folded(word) for word in stopwords}
    kept: Row = []
    room.take(_CELL_BYTES * x.size)
    for some in room.each(x):
        left = [text for text in some if folded(text) not in stops]
        room.take(_TEXT_BYTES * len(left) + 3 * sum(map(characters, left)))  # one character may become three
        kept += map(change, left)
    kept = kept or [""]
    return _strings(kept, (1, len(kept)) if x.ndim == 2 else (len(kept),))


def tokenizer(
    x: Array,
    *,
    mark: int,
    mincharnum: int,
    pad_value: str,
    separators: Sequence[str] = (),
    tokenexp: str = "",
    room: ObjectAllowance,
) -> Array:
    """The parts of strings that match ``tokenexp``, or between ``separators`` (one empty separator: characters), which have
    ``mincharnum`` characters at least; rows are filled up with ``pad_value``. ``mark`` puts start and end of text around them.

    Raises:
        IngotError: UNSUPPORTED_ATTRIBUTE for what is no regular expression here.
    """
    expressions, field = ((tokenexp,), "tokenexp") if tokenexp else (separators, "separators")
    compiled = patterns(expressions, field, room.take)

    def tokens(text: str) -> Row:
        if tokenexp:
            found = _parts(text, compiled[0].found_in(text), room)
        elif list(separators) == [""]:
            found = _parts(text, ((i, i + 1) for i in range(len(text))), room)
        else:
            found = [text]
            for pattern in compiled:
                found = [part for piece in found for part in _parts(piece, _between(pattern, piece), room)]
        found = [token for token in found if len(token) >= max(1, mincharnum)]
        room.take(_CELL_BYTES * len(found))
        return found

    rows = _rows(x, tokens, room)
    if mark and any(rows):
        room.take(_ROW_BYTES * len(rows) + _CELL_BYTES * sum(map(len, rows)))
        rows = [["\x02", *row, "\x03"] for row in rows]
    return _filled(rows, pad_value, x.shape, room)


def _rows(x: Array, parts: Callable[[str], Row], room: ObjectAllowance) -> list[Row]:
    """The parts of each string."""
    room.take(_ROW_BYTES * x.size)
    return [parts(text) for some in room.each(x) for text in some]


def _filled(rows: list[Row], padding: str, shape: tuple[int, ...], room: ObjectAllowance) -> Array:
    """``rows`` as the last axis of an array."""
    width = max(map(len, rows), default=0)
    room.take(_CELL_BYTES * width * len(rows))
    found = np.full((len(rows), width), padding, object)
    at = 0
    for some in room.each(rows):
        for row in some:
            found[at, : len(row)] = row
            at += 1
    return found.reshape(*shape, width)


def _parts(text: str, spans: Iterable[tuple[int, int]], room: ObjectAllowance) -> Row:
    """What lies between places of ``text``."""
    found: Row = []
    widest = 1 if text.isascii() else 4
    for some in room.each(spans):
        room.take(sum(_CELL_BYTES + (_TEXT_BYTES + widest * (j - i)) * (j - i > 1 or widest > 1) for i, j in some))
        found += [text[i:j] for i, j in some]
    return found


def _between(pattern: Pattern, text: str) -> Iterator[tuple[int, int]]:
    """Where the text between the matches lies, groups of the pattern or not."""
    at = 0
    for start, end in pattern.found_in(text):
        yield at, start
        at = end
    yield at, len(text)


def regex_full_match(x: Array, *, pattern: str, room: ObjectAllowance) -> Array:
    """Whether each string as a whole is of the form ``pattern``.

    Raises:
        IngotError: UNSUPPORTED_ATTRIBUTE for a pattern that is no regular expression here.
    """
    (compiled,) = patterns((pattern,), "pattern", room.take)
    room.take(x.size)
    found, at = np.empty(x.size, np.bool_), 0
    for some in room.each(x):
        found[at : at + len(some)] = [compiled.matches_all_of(text) for text in some]
        at += len(some)
    return found.reshape(x.shape)


def string_of(x: Array, *, room: ObjectAllowance) -> Array:
    """Numbers as text: floats in the fewest digits that tell them apart, in scientific form beyond 1e-4 and 1e8."""
    if x.dtype.kind in "biu":
        return room.made(x, lambda some: [str(int(value)) for value in some], lambda _: _DIGITS_BYTES + _TEXT_BYTES)
    return room.made(x, lambda some: map(_float_text, np.array(some, x.dtype)), lambda _: _DIGITS_BYTES + _TEXT_BYTES)


def _float_text(value: Any) -> str:
    number = float(value)
    if np.isnan(number):
        return "NaN"
    if np.isinf(number):
        return "INF" if number > 0 else "-INF"
    narrow = value if isinstance(value, (np.float16, np.float32, np.float64)) else np.float32(value)
    return np.format_float_positional(narrow, trim="-") if 1e-4 <= abs(number) < 1e8 or number == 0 else str(narrow)


def number_of(x: Array, *, dtype: np.dtype[Any], room: ObjectAllowance) -> Array:
    """The numbers that strings spell out.

    Raises:
        IngotError: INVALID_ARGUMENT, a string that is no number.
    """
    is_whole = dtype.kind in "iu"
    read: Callable[[str], Any] = _whole_number if is_whole else float
    room.take(x.size * dtype.itemsize)
    found, at = np.empty(x.size, dtype), 0
    try:
        for some in room.each(x):
            values = np.array([read(text) for text in some], dtype if is_whole else np.float64)
            found[at : at + len(some)] = values.astype(dtype)
            at += len(some)
        return found.reshape(x.shape)
    except (ValueError, OverflowError) as error:
        raise IngotError(
            ErrorCode.INVALID_ARGUMENT,
            "a string is no number",
            expected=f"numbers as {dtype}",
            received=str(error)[:200],
        ) from error


def _whole_number(text: str) -> int:
    return int(text) if re.fullmatch(r"\s*[+-]?\d+\s*", text) else int(float(text))


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
