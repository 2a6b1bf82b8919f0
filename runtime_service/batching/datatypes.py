"""Element types by their names on the wire, and arrays from raw bytes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from runtime_service.arrays import Array
from shared_ir.arrays import storage_dtype
from shared_ir.dtype import DType
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.wire.byte_strings import bytes_of, strings_of
from shared_ir.wire.names import DTYPES, WIRE_NAMES

_MAX_ELEMENTS = 2**40
MOST_STRINGS = 1_000_000
"""Of one tensor of a request."""
_MAX_RANK = 32


def wire_name(dtype: DType) -> str:
    """``FP32`` for float32; types that the protocol does not know keep their own name in capitals."""
    return WIRE_NAMES.get(dtype, dtype.value.upper())


def parse_datatype(text: str, tensor: str) -> DType:
    """The element type called ``text``.

    Raises:
        IngotError: INVALID_ARGUMENT, no such type.
    """
    dtype = DTYPES.get(text)
    if dtype is None:
        raise IngotError(
            ErrorCode.INVALID_ARGUMENT,
            "unknown datatype",
            tensor=tensor,
            expected="one of " + ", ".join(sorted(DTYPES)),
            received=repr(text[:100]),
        )
    return dtype


def numpy_dtype(dtype: DType, tensor: str) -> np.dtype[np.generic]:
    """How arrays of ``dtype`` are held in memory.

    Raises:
        IngotError: UNSUPPORTED_DTYPE, the runtime has no arrays of that type.
    """
    if dtype not in WIRE_NAMES:
        raise IngotError(
            ErrorCode.UNSUPPORTED_DTYPE,
            f"tensors of datatype {wire_name(dtype)} are not served",
            tensor=tensor,
            expected="one of " + ", ".join(sorted(DTYPES)),
            received=wire_name(dtype),
            remedy="Convert it before the model.",
        )
    return storage_dtype(dtype)


def element_count(shape: Sequence[int], tensor: str) -> int:
    """Number of elements of ``shape``.

    Raises:
        IngotError: INVALID_ARGUMENT, a dimension is negative, or no array has such a shape.
    """
    if len(shape) > _MAX_RANK:  # before any arithmetic on them: a product of many large numbers takes long
        raise _impossible_shape(tensor, f"{len(shape)} dimensions")
    nonempty = math.prod(filter(None, shape))  # numpy bounds it even for arrays without elements
    if any(extent < 0 for extent in shape) or nonempty > _MAX_ELEMENTS:
        raise _impossible_shape(tensor, str(list(shape))[:200])
    return math.prod(shape)


def _impossible_shape(tensor: str, received: str) -> IngotError:
    return IngotError(
        ErrorCode.INVALID_ARGUMENT,
        "impossible shape in a request",
        tensor=tensor,
        expected=f"at most {_MAX_RANK} dimensions >= 0, at most {_MAX_ELEMENTS} elements",
        received=received,
    )


def from_bytes(raw: bytes | memoryview, dtype: DType, shape: Sequence[int], tensor: str) -> Array:
    """``raw`` (little-endian, row-major, no padding) as a read-only array over the same memory; BYTES as an array of str.

    Raises:
        IngotError: INVALID_ARGUMENT, the byte count does not fit the shape.
    """
    if dtype is DType.STRING:
        count = element_count(shape, tensor)
        require_few_strings(count, tensor)
        return strings_of(raw, count, tensor).reshape(shape)
    element = numpy_dtype(dtype, tensor)
    size = element_count(shape, tensor) * element.itemsize
    if len(raw) != size:
        raise IngotError(
            ErrorCode.INVALID_ARGUMENT,
            "the binary data of a tensor does not fit its shape",
            tensor=tensor,
            expected=f"{size} bytes for {wire_name(dtype)}{list(shape)}",
            received=f"{len(raw)} bytes",
        )
    if dtype is DType.BOOL:  # bytes other than 0 and 1 are undefined behaviour in compiled code
        return np.not_equal(np.frombuffer(raw, np.uint8).reshape(shape), 0)
    return np.frombuffer(raw, element).reshape(shape)


def to_bytes(array: Array, take: Callable[[int], None]) -> bytes:
    """Little-endian, row-major bytes of ``array``; of strings, each with its length before it. ``take`` is asked for memory before."""
    if array.dtype == object:
        return bytes_of(array, take)
    take(array.nbytes)
    return array.tobytes()


def require_few_strings(count: int, tensor: str) -> None:
    """Strings are objects of the interpreter, each with some 60 bytes around it, and made one by one.

    Raises:
        IngotError: INVALID_ARGUMENT, more than :data:`MOST_STRINGS`.
    """
    if count > MOST_STRINGS:
        raise IngotError(
            ErrorCode.INVALID_ARGUMENT,
            "a tensor has too many strings",
            tensor=tensor,
            expected=f"at most {MOST_STRINGS}",
            received=str(count),
            remedy="Send them in several requests.",
        )
