"""Tensors of strings as bytes: every element with its length before it, as the Open Inference Protocol has BYTES.

Source: open-inference-protocol, ``specification/protocol/extension_binary_data.md``: 4 bytes of length, little-endian.
"""

from __future__ import annotations

import numpy as np

from shared_ir.errors import ErrorCode, IngotError

_LENGTH = 4


def bytes_of(array: np.ndarray) -> bytes:
    """The elements of an array of str or bytes, in row-major order."""
    parts: list[bytes] = []
    for text in array.reshape(-1).tolist():
        data = text if isinstance(text, bytes) else str(text).encode("utf-8", "surrogateescape")
        parts += (len(data).to_bytes(_LENGTH, "little"), data)
    return b"".join(parts)


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
