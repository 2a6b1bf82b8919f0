"""Operators around symbols that the run defines."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from compiler_service.compiler.tensor_expr.operator import Operator
from compiler_service.compiler.tensor_expr.refusal import mismatch
from compiler_service.compiler.tensor_expr.scalar import clamped
from compiler_service.compiler.tensor_expr.tensor import ReduceOp, Tensor, compute, placeholder, reduce
from shared_ir.dtype import DType
from shared_ir.expr import Expr, Var, cast, equal, lift, logical_or, select
from shared_ir.expr.dim import Dim


def define(x: Tensor, *, symbols: tuple[Var, ...], expected: int = 0, message: str = "") -> Tensor:
    """``x``, whose elements are from here on called by these symbols (see :data:`shared_ir.graph.ir.DEFINE_OP`)."""
    if x.dtype is not DType.INT64 or x.shape != (len(symbols),):
        raise mismatch("Define takes an int64 vector", f"int64[{len(symbols)}]", f"{x.dtype}{list(map(str, x.shape))}")
    elements = np.empty(len(symbols), dtype=object)
    elements[:] = symbols
    return replace(placeholder("symbols", x.shape, x.dtype), value=elements)


def count_zeros(x: Tensor) -> Tensor:
    """int64 [1]: how many integers are 0."""
    return _count(x.shape, lambda *i: equal(x[i], lift(0, x.dtype)), "count_zeros")


def count_outside(x: Tensor, *, extents: tuple[Dim, ...], natural: int = 0) -> Tensor:
    """int64 [1]: how many positions lie beyond an axis, counted from its end where they are negative; ``natural``: those are wrong.

    Several ``extents`` are those of the columns of ``x``, else one holds for all of it.
    """

    def is_beyond(position: Expr, extent: Dim) -> Expr:
        return logical_or(position < (lift(0) if natural else -lift(extent)), position >= lift(extent))

    if len(extents) == 1:
        return _count(x.shape, lambda *i: is_beyond(x[i], extents[0]), "count_outside")

    def any_beyond(*index: Expr) -> Expr:
        return functools.reduce(logical_or, [is_beyond(x[(*index, lift(k))], n) for k, n in enumerate(extents)])

    return _count(x.shape[:-1], any_beyond, "count_outside")


def _count(shape: Sequence[Dim], condition: Callable[..., Expr], name: str) -> Tensor:
    if not shape:
        return compute((1,), lambda _: cast(condition(), DType.INT64), name=name)
    return reduce(ReduceOp.SUM, (1,), shape, lambda _, *i: cast(condition(*i), DType.INT64), name=name)


def first_difference(x: Tensor) -> Tensor:
    """int64 [rows, rows]: the first column in which two rows of a matrix differ; the number of columns where they are equal."""
    if x.rank != 2:
        raise mismatch("FirstDifference takes a matrix", "2 axes", str(x.rank))
    count, width = x.shape

    def differing(i: Expr, j: Expr, k: Expr) -> Expr:
        return select(equal(x[i, k], x[j, k]), lift(width), k)

    return reduce(ReduceOp.MIN, (count, count), [width], differing, name="first_difference")


def row_ranks(x: Tensor, first: Tensor) -> Tensor:
    """int32: how many rows of ``x`` come before each row in lexicographic order; of equal rows the earlier does.

    ``first`` is their first difference.
    """
    count, width = x.shape

    def wins(i: Expr, j: Expr) -> Expr:
        k = clamped(first[i, j], width)
        before = select(equal(first[i, j], width), j < i, x[j, k] < x[i, k])
        return select(before, lift(1, DType.INT32), lift(0, DType.INT32))

    return reduce(ReduceOp.SUM, (count,), [count], wins, name="row_ranks")


OPERATORS = (
    Operator("ingot.Define", define),
    Operator("ingot.CountZeros", count_zeros),
    Operator("ingot.CountOutside", count_outside),
    Operator("ingot.FirstDifference", first_difference),
    Operator("ingot.RowRanks", row_ranks),
)
