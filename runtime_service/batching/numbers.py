"""Elements that came one by one, as JSON or typed contents: exact, or refused by name."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Mapping, Sequence
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


class _MisfitError(ValueError):
    """Says what was received instead."""


def from_numbers(data: object, dtype: DType, shape: Sequence[int], tensor: str) -> Array:
    """Numbers (a flat or nested list, or an array) as an array of ``dtype`` and ``shape``. Integers are exact, others the nearest number
    of the type; nothing wraps, and no number becomes infinite.

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
        return _converted(values, dtype, element, flat).reshape(shape)
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


def _converted(values: Array, dtype: DType, element: np.dtype[np.generic], flat: list[Any]) -> Array:
    """``values`` in the type of the tensor, in row-major order; ``flat`` are those of JSON that they were made of."""
    if dtype is DType.BOOL:
        _require_all(values, (values == 0) | (values == 1))
    elif dtype.is_float:
        with np.errstate(over="ignore", invalid="ignore"):
            found = values.astype(element, order="C", copy=False)
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
