"""The highest values of an output and where they are, as strings.

Source: triton-inference-server, ``docs/protocol/extension_classification.md``.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from runtime_service.arrays import Array
from runtime_service.batching.datatypes import MOST_STRINGS, wire_name
from runtime_service.batching.messages import Take
from shared_ir.dtype import DType
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.plan.program import TensorSpec

_STRING_BYTES = 128
"""Of one such string and what is around it."""
_MOST_DIGITS = 6
"""More than numbers of 16 bits need."""
_ROW_TIMES = 6
"""Times that a row is there while its highest values are looked for."""


def require_classes(spec: TensorSpec) -> None:
    """Raises IngotError INVALID_ARGUMENT: the values of this output have no order."""
    if spec.dtype in (DType.STRING, DType.BOOL):
        raise IngotError(
            ErrorCode.INVALID_ARGUMENT,
            "an output of this datatype has no classes",
            tensor=spec.name,
            field="classification",
            expected="an output of numbers",
            received=wire_name(spec.dtype),
        )


def classified(array: Array, spec: TensorSpec, count: int, take: Take) -> Array:
    """Strings ``value:index`` of the ``count`` highest elements, the highest first, of equal ones that of the lower index, NaN last.

    An output whose first dim is only known at run time has them for each row, of shape [rows, count]; any other one together, of
    shape [count]. There are no more than elements. A value is written as the shortest decimal that is no other number of its type.

    Raises:
        IngotError: INVALID_ARGUMENT, more strings than an answer may have; as ``take``, which is asked before they are made.
    """
    by_rows = len(spec.shape) > 1 and not isinstance(spec.shape[0], int)
    lead = array.shape[:1] if by_rows else (1,)
    rows = array.reshape(*lead, math.prod(array.shape[1:] if by_rows else array.shape))
    count = min(count, rows.shape[1])
    if len(rows) * count > MOST_STRINGS:
        raise IngotError(
            ErrorCode.INVALID_ARGUMENT,
            "an answer would have too many classes",
            tensor=spec.name,
            field="classification",
            expected=f"at most {MOST_STRINGS}",
            received=f"{count} of each of {len(rows)} rows",
        )
    found = np.empty((len(rows), count), object)
    for at, row in enumerate(rows):
        take(count * _STRING_BYTES + (_ROW_TIMES * row.nbytes if at == 0 else 0))
        found[at] = _highest(row, count)
    return found if by_rows else found[0]


def _highest(row: Array, count: int) -> list[str]:
    if not count:
        return []
    ranked = row.astype(np.float32) if row.dtype.kind == "V" else row  # of ml_dtypes
    if ranked.dtype.kind == "f":
        ranked = np.where(np.isnan(ranked), -np.inf, ranked)
    least = np.partition(ranked, len(row) - count)[len(row) - count]
    at = np.flatnonzero(ranked >= least)[::-1]
    # NOTE: not by negation, which the least integer does not have; both reversals keep equal ones in order
    order = at[np.argsort(ranked[at], kind="stable")][::-1][:count]
    text = _short_text if row.dtype.itemsize == 2 and row.dtype.kind in "fV" else str
    with np.errstate(over="ignore"):  # of a text that is tried
        return [f"{text(value)}:{index}" for value, index in zip(row[order], order.tolist(), strict=True)]


def _short_text(value: Any) -> str:
    """The shortest decimal that is ``value`` and no other half or bfloat16. NOTE: numpy writes a half as a double, and ml_dtypes what it
    likes."""
    number, kind = float(value), type(value)
    texts = (repr(float(f"{number:.{digits}g}")) for digits in range(1, _MOST_DIGITS))
    return next((text for text in texts if kind(float(text)) == value), repr(number))
