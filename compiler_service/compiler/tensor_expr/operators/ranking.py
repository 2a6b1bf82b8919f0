"""Sorting by counting: the rank of an element is the number of elements that come before it."""

from __future__ import annotations

from compiler_service.compiler.tensor_expr.axes import normal_axis, replaced
from compiler_service.compiler.tensor_expr.broadcast import widen
from compiler_service.compiler.tensor_expr.meaning.known import known_dims
from compiler_service.compiler.tensor_expr.operator import Operator
from compiler_service.compiler.tensor_expr.scalar import is_nan, logical_not
from compiler_service.compiler.tensor_expr.tensor import ReduceOp, Tensor, compute, reduce
from shared_ir.dtype import DType
from shared_ir.expr import Expr, cast, equal, lift, logical_and, logical_or, select


def _precedes(a: Expr, b: Expr, earlier: Expr, largest: bool) -> Expr:
    """Whether ``a`` comes before ``b``: NaN counts as the largest number, and the ``earlier`` of equal elements wins."""
    before, same = (a > b if largest else a < b), equal(a, b)
    if a.dtype.is_float:
        first, second = (a, b) if largest else (b, a)
        alone = logical_and(is_nan(first), logical_not(is_nan(second)))
        before = logical_or(before, alone)
        same = logical_or(same, logical_and(is_nan(a), is_nan(b)))
    return logical_or(before, logical_and(same, earlier))


def ranks(x: Tensor, *, axis: int = -1, largest: int = 1) -> Tensor:
    """int32: how many elements along ``axis`` come before each element in sorted order; no two are equal."""
    axis = normal_axis(axis, x.rank)

    def body(*index: Expr) -> Expr:
        *own, k = index
        other, this = widen(x[replaced(own, axis, k)]), widen(x[tuple(own)])
        wins = _precedes(other, this, k < own[axis], bool(largest))
        return select(wins, lift(1, DType.INT32), lift(0, DType.INT32))

    return reduce(ReduceOp.SUM, x.shape, [x.shape[axis]], body, name="ranks")


def ranked_positions(ranks: Tensor, k: Tensor, *, axis: int = -1) -> Tensor:
    """int64: where along ``axis`` the ranks 0 to k - 1 stand."""
    axis = normal_axis(axis, ranks.rank)
    (count,) = known_dims(k, "K")
    extent = ranks.shape[axis]

    def body(*index: Expr) -> Expr:
        *own, i = index
        found = equal(ranks[replaced(own, axis, i)], cast(own[axis], DType.INT32))
        return select(found, cast(i, DType.INT32), lift(0, DType.INT32))

    position = reduce(ReduceOp.MAX, replaced(ranks.shape, axis, count), [extent], body, name="ranked_position")
    return compute(position.shape, lambda *i: cast(position[i], DType.INT64), name="position")


OPERATORS = (
    Operator("ingot.Ranks", ranks),
    Operator("ingot.RankedPositions", ranked_positions),
)
