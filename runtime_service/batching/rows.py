"""Rows: the leading axis along which requests may be merged into one execution and taken apart again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from runtime_service.arrays import Array
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.expr import Var
from shared_ir.expr.dim import Dim, dim_symbols
from shared_ir.plan.program import TensorSpec

Arrays = Mapping[str, Array]


def batch_symbol(inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> str | None:
    """The symbol that is the first dim of every input and output and occurs nowhere else, if there is one.

    Rows of a request that lacks an optional input are not computed with those of one that gives it.
    """
    tensors = (*inputs, *outputs)
    if not inputs or not outputs or not all(t.shape for t in tensors) or any(t.is_optional for t in inputs):
        return None
    first = tensors[0].shape[0]
    if not isinstance(first, Var) or any(t.shape[0] != first for t in tensors):
        return None
    other: list[Dim] = [dim for t in tensors for dim in t.shape[1:]]
    return None if first.name in dim_symbols(other) else first.name


def row_count(inputs: Arrays) -> int:
    """Rows of a request whose arrays share their leading axis."""
    return int(next(iter(inputs.values())).shape[0])


def group_key(inputs: Arrays) -> tuple[tuple[int, ...], ...]:
    """Requests with equal keys may be merged: all dims but the first agree."""
    return tuple(array.shape[1:] for array in inputs.values())


def concatenate(requests: Sequence[Arrays]) -> Arrays:
    """The requests below each other; one request is passed through without a copy."""
    if len(requests) == 1:
        return requests[0]
    return {name: np.concatenate([request[name] for request in requests]) for name in requests[0]}


def split(outputs: Arrays, rows: Sequence[int]) -> list[dict[str, Array]]:
    """The inverse of :func:`concatenate`: views of ``outputs``, one per request.

    Raises:
        IngotError: INTERNAL, an output does not have as many rows as went in.
    """
    total = sum(rows)
    for name, array in outputs.items():
        if array.ndim == 0 or array.shape[0] != total:
            raise _other_rows(name, total, array)
    if len(rows) == 1:
        return [dict(outputs)]
    ends = np.cumsum(rows)
    return [
        {name: array[end - count : end] for name, array in outputs.items()}
        for end, count in zip(ends, rows, strict=True)
    ]


class Joined:
    """Results of pieces below each other: each is copied to its place when it comes, so that nothing is there twice.

    Args:
        rows: of all pieces together.
        require: told, before memory is taken, how many bytes all of them take; may raise.
    """

    def __init__(self, rows: int, require: Callable[[int], None]) -> None:
        self._rows = rows
        self._require = require
        self._filled = 0
        self._texts = 0
        self.arrays: dict[str, Array] = {}

    def add(self, piece: Arrays, rows: int) -> None:
        """The results of the next ``rows`` rows.

        Raises:
            IngotError: INTERNAL, they are not as many rows, or unlike those before; or what ``require`` raises.
        """
        for name, array in piece.items():
            whole = self.arrays.get(name)
            like = array.shape[1:] if whole is None else whole.shape[1:]
            if array.ndim == 0 or array.shape != (rows, *like):
                raise _other_rows(name, rows, array)
        if not self.arrays:
            sizes = {name: array[:1].nbytes * self._rows for name, array in piece.items()}
            self._require(sum(sizes.values()))
            self.arrays = {n: np.empty((self._rows, *array.shape[1:]), array.dtype) for n, array in piece.items()}
        for name, array in piece.items():
            if array.dtype.hasobject:
                self._texts += sum(map(len, array.flat))
                self._require(self._texts)
            self.arrays[name][self._filled : self._filled + rows] = array
        self._filled += rows


def _other_rows(name: str, rows: int, array: Array) -> IngotError:
    return IngotError(
        ErrorCode.INTERNAL,
        "a merged execution returned another number of rows than it was given",
        tensor=name,
        expected=f"{rows} rows",
        received=f"shape {list(array.shape)}",
    )
