"""Elements that came one by one, as JSON or typed contents: exact, or refused by name."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import chain
from typing import Any

import numpy as np

from runtime_service.arrays import Array
from runtime_service.batching.datatypes import element_count, numpy_dtype, require_few_strings, wire_name
from shared_ir.dtype import DType
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.numerals import WrittenInfinity

_INTEGERS = frozenset({int})
_TRUTHS = frozenset({bool, int})
_REALS = frozenset({int, float, WrittenInfinity})
_LARGEST: Mapping[DType, str] = {
    DType.FLOAT16: "65504",
    DType.BFLOAT16: "3.3895e+38",
    DType.FLOAT32: "3.4028235e+38",
    DType.FLOAT64: "1.7976931348623157e+308",
}
_MOST_SHOWN = 60
_LOW_BITS = np.uint64((1 << 28) - 1)
"""Of a double, which are zero where it lies half way between two numbers of a narrower type."""
_PIECE = 1 << 14
"""Numbers that are looked at together."""
Written = Callable[[], object]
"""The numbers once more, fractions as their texts."""


class _MisfitError(ValueError):
    """Says what was received instead."""


def from_numbers(
    data: object, dtype: DType, shape: Sequence[int], tensor: str, written: Written | None = None
) -> Array:
    """Numbers (a flat or nested list, or an array) as an array of ``dtype`` and ``shape``. Integers are exact, others the nearest number
    of the type; nothing wraps, and no number becomes infinite. Doubles in a list stand for what was ``written``, which is asked for where
    it matters.

    Raises:
        IngotError: INVALID_ARGUMENT, ragged, of the wrong count or kind, or out of the range of ``dtype``.
    """
    count = element_count(shape, tensor)
    try:
        if dtype is DType.STRING:
            require_few_strings(count, tensor)
            return _strings(data, count).reshape(shape)
        element = numpy_dtype(dtype, tensor)
        flat = [] if isinstance(data, np.ndarray) else _flat(data)
        values = data if isinstance(data, np.ndarray) else _numbers(flat, dtype)
        if values.size != count:
            raise _MisfitError(f"{values.size} values")
        return _converted(values, dtype, element, flat, written).reshape(shape)
    except _MisfitError as error:
        raise IngotError(
            ErrorCode.INVALID_ARGUMENT,
            "the data of a tensor does not fit its datatype and shape",
            tensor=tensor,
            expected=f"{count} values for {wire_name(dtype)}{list(shape)}, {_range(dtype)}",
            received=str(error),
        ) from None


def _range(dtype: DType) -> str:
    if dtype is DType.STRING:
        return "each a string"
    if dtype is DType.BOOL:
        return "each true or false"
    if dtype in _LARGEST:
        return f"each a number from -{_LARGEST[dtype]} to {_LARGEST[dtype]}"
    limits = np.iinfo(dtype.numpy.name)
    return f"each a whole number from {limits.min} to {limits.max}"


def _flat(data: object) -> list[Any]:
    """The innermost values of lists of one length at each level; a single value is a list of it."""
    if not isinstance(data, list):
        return [data]
    while data and type(data[0]) is list:
        if set(map(type, data)) != {list} or len(set(map(len, data))) != 1:
            raise _MisfitError("lists of uneven lengths, or lists beside values")
        data = list(chain.from_iterable(data))
    return data


def _numbers(data: list[Any], dtype: DType) -> Array:
    """NOTE: not by numpy's own reading of lists: it takes texts too, gives every element the room of the longest, and makes floats of
    integers that it has no type for."""
    allowed = _TRUTHS if dtype is DType.BOOL else _REALS if dtype.is_float else _INTEGERS
    if not set(map(type, data)) <= allowed:
        raise _MisfitError(_first(data, lambda value: type(value) not in allowed))
    if not data:
        return np.empty(0, bool if dtype is DType.BOOL else np.float64 if dtype.is_float else np.int64)
    code = "d" if dtype.is_float else "Q" if dtype is DType.UINT64 else "q"
    try:
        values = np.frombuffer(array(code, data), np.dtype(code))
    except OverflowError:
        raise _MisfitError(_first(data, lambda value: _is_beyond(value, code))) from None
    return values


def _is_beyond(value: Any, code: str) -> bool:
    try:
        array(code, [value])
    except OverflowError:
        return True
    return False


def _first(data: list[Any], is_odd: Callable[[object], bool]) -> str:
    """The value that is told of, and where it is."""
    at = next(index for index, value in enumerate(data) if is_odd(value))
    return f"{_shown(data[at])} at position {at}"


def _shown(value: object) -> str:
    if isinstance(value, int) and value.bit_length() > 8 * _MOST_SHOWN:
        return f"an integer of {value.bit_length()} bits"
    return (
        repr(value)[:_MOST_SHOWN]
        if isinstance(value, bool | int | float)
        else f"a value of type {type(value).__name__}"
    )


def _converted(
    values: Array, dtype: DType, element: np.dtype[np.generic], flat: list[Any], written: Written | None
) -> Array:
    """``values`` in the type of the tensor, in row-major order; ``flat`` are those of JSON that they were made of."""
    if dtype is DType.BOOL:
        _require_all(values, (values == 0) | (values == 1))
    elif dtype.is_float:
        with np.errstate(over="ignore", invalid="ignore"):
            found = _narrowed(values, element)
            if flat and element.itemsize < values.itemsize:
                _round_once(values, found, flat, written)
            if not (finite := np.isfinite(found)).all():
                _require_all(values, finite | ~np.isfinite(values))
                _require_written(flat)
        return found
    elif values.dtype.kind not in "iu":
        raise _MisfitError(f"values of kind {values.dtype.name}")
    elif values.size:
        limits = np.iinfo(element.name)
        if int(values.min()) < limits.min or int(values.max()) > limits.max:
            _require_all(values, (values >= limits.min) & (values <= limits.max))
    return values.astype(element, order="C", copy=False)


def _narrowed(values: Array, element: np.dtype[np.generic]) -> Array:
    """The nearest numbers of the type. NOTE: ml_dtypes goes by way of float32, which rounds twice unless what is not exact is odd there."""
    if element.kind != "V" or values.dtype != np.float64:
        return values.astype(element, order="C", copy=False)
    found = np.empty(values.size, element)
    for start in range(0, values.size, _PIECE):
        piece = values.reshape(-1)[start : start + _PIECE]
        single = piece.astype(np.float32)
        bits, is_exact = single.view(np.uint32), single == piece
        bits -= np.abs(single) > np.abs(piece)
        bits |= ~is_exact
        found[start : start + _PIECE] = single
    return found.reshape(values.shape)


def _round_once(values: Array, found: Array, flat: list[Any], written: Written | None) -> None:
    """Mend those of ``found`` that were rounded twice, to the nearest of ``values`` first: where that lies half way between two numbers of
    the type, what it was made of says which is nearer."""
    exact: list[Any] | None = None
    for index in _half_way(values, found):
        number, double = flat[index], float(values[index])
        if type(number) is float:
            if written is None:
                continue
            exact = _flat(written()) if exact is None else exact
            number = Decimal(exact[index])
        if number != double:
            side = math.inf if number > double else -math.inf
            found[index] = _narrowed(np.nextafter(values[index : index + 1], side), found.dtype)[0]


def _half_way(values: Array, found: Array) -> Iterator[int]:
    """Where the next lower and the next higher double become different numbers of the type, and the one between is none of it."""
    for start in range(0, len(values), _PIECE):
        piece = values[start : start + _PIECE]
        is_round = (piece.view(np.uint64) & _LOW_BITS) == 0
        at = np.flatnonzero(is_round & (found[start : start + _PIECE].astype(np.float64) != piece) & ~np.isnan(piece))
        if at.size:
            below, above = (_narrowed(np.nextafter(piece[at], side), found.dtype) for side in (-np.inf, np.inf))
            yield from (at[below != above] + start).tolist()


def _require_written(flat: list[Any]) -> None:
    """What is infinite was written so, and is no number that a float does not hold."""
    for at, value in enumerate(flat):
        if type(value) is float and math.isinf(value):
            raise _MisfitError(f"a number that is too large at position {at}")


def _require_all(values: Array, fits: Array) -> None:
    if not fits.all():
        at = int(np.argmin(fits.reshape(-1)))
        raise _MisfitError(f"{_shown(values.reshape(-1)[at].item())} at position {at}")


def _strings(data: object, count: int) -> Array:
    found: list[str] = []
    pending = [data]
    while pending:
        item = pending.pop()
        if isinstance(item, list | tuple | np.ndarray):
            pending.extend(reversed(list(item)))
        elif isinstance(item, bytes):
            found.append(item.decode("utf-8", "surrogateescape"))
        elif isinstance(item, str):
            found.append(item)
        else:
            raise _MisfitError(f"a value of type {type(item).__name__}")
    if len(found) != count:
        raise _MisfitError(f"{len(found)} values")
    strings = np.empty(count, object)
    strings[:] = found
    return strings
