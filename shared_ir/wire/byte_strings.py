"""Tensors of strings as bytes: every element with its length before it, as the Open Inference Protocol has BYTES.

Source: open-inference-protocol, ``specification/protocol/extension_binary_data.md``: 4 bytes of length, little-endian.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from shared_ir.errors import ErrorCode, IngotError

_LENGTH = 4
_ELEMENTS_TOGETHER = 1024
_LARGE_BYTES = 1 << 12
"""Bytes of a text that is not copied twice."""


def bytes_of(array: np.ndarray, take: Callable[[int], None] = lambda size: None) -> bytes:
    """The elements of an array of str or bytes, in row-major order. ``take`` is asked for memory before it is used, and in between; it may
    raise."""
    flat = array.reshape(-1)
    for start in range(0, flat.size, _ELEMENTS_TOGETHER):
        take(sum(2 * (_LENGTH + _width(text)) for text in flat[start : start + _ELEMENTS_TOGETHER].tolist()))
    found: list[bytes] = []
    for start in range(0, flat.size, _ELEMENTS_TOGETHER):
        take(0)
        found += _joined(map(_bytes, flat[start : start + _ELEMENTS_TOGETHER].tolist()))
    return b"".join(found)


def _joined(texts: Iterable[bytes]) -> list[bytes]:
    """Each with its length before it; those that are short are put together."""
    found: list[bytes] = []
    short: list[bytes] = []
    for text in texts:
        short.append(len(text).to_bytes(_LENGTH, "little"))
        if len(text) <= _LARGE_BYTES:
            short.append(text)
            continue
        found += (b"".join(short), text)
        short = []
    return [*found, b"".join(short)]


def _width(text: object) -> int:
    """Bytes of ``text`` in UTF-8."""
    return len(text) if isinstance(text, str) and text.isascii() else len(_bytes(text))


def _bytes(text: object) -> bytes:
    return text if isinstance(text, bytes) else str(text).encode("utf-8", "surrogateescape")


def strings_of(data: bytes | memoryview, count: int, tensor: str) -> np.ndarray:
    """The inverse of :func:`bytes_of`: a vector of str. Bytes that are no UTF-8 stay as surrogates.

    Raises:
        IngotError: INVALID_ARGUMENT, ``data`` does not hold ``count`` strings.
    """
    found: list[str] = []
    at, view = 0, memoryview(data)
    while at + _LENGTH <= len(view) and len(found) < count:
        end = at + _LENGTH + int.from_bytes(view[at : at + _LENGTH], "little")
        if end > len(view):
            break
        found.append(bytes(view[at + _LENGTH : end]).decode("utf-8", "surrogateescape"))
        at = end
    if len(found) != count or at != len(view):
        raise IngotError(
            ErrorCode.INVALID_ARGUMENT,
            "the binary data of a tensor of strings does not fit its shape",
            tensor=tensor,
            expected=f"{count} strings, each with its length in 4 bytes before it",
            received=f"{len(found)} strings in {at} of {len(view)} bytes",
        )
    array = np.empty(count, object)
    array[:] = found
    return array
