"""What answers are made of, piece by piece: each asks for its memory before it is made."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from runtime_service.arrays import Array
from runtime_service.batching.messages import Take

_PIECE_ELEMENTS = 4096
"""Elements of a piece."""
_PIECE_CHARACTERS = 1 << 15
"""Characters of a piece; each may be twelve bytes of JSON."""


def json_values(array: Array, take: Take) -> Iterator[bytes]:
    """The elements of ``array``, with commas between them."""
    comma = b""
    for some in pieces(array, take):
        is_long = array.dtype == object and len(some[0]) > _PIECE_CHARACTERS
        for text in _quoted(some[0]) if is_long else (json.dumps(some, separators=(",", ":"))[1:-1].encode(),):
            take(len(comma) + len(text))
            yield comma + text
            comma = b""
        comma = b","


def _quoted(text: str) -> Iterator[bytes]:
    """A long string as JSON."""
    yield b'"'
    for start in range(0, len(text), _PIECE_CHARACTERS):
        yield json.dumps(text[start : start + _PIECE_CHARACTERS])[1:-1].encode()
    yield b'"'


def pieces(array: Array, take: Take) -> Iterator[list[Any]]:
    """The elements of ``array``, some at a time: few of those that are long."""
    flat = array.reshape(-1)
    for start in range(0, flat.size, _PIECE_ELEMENTS):
        take(0)
        part = flat[start : start + _PIECE_ELEMENTS]
        some = (part.astype("float32") if part.dtype.kind == "V" else part).tolist()
        yield from _short(some) if array.dtype == object else (some,)


def _short(texts: list[str]) -> Iterator[list[str]]:
    """Lists of texts that make a piece together, or of one."""
    found: list[str] = []
    size = 0
    for text in texts:
        if found and size + len(text) > _PIECE_CHARACTERS:
            yield found
            found, size = [], 0
        found.append(text)
        size += len(text)
    if found:
        yield found
