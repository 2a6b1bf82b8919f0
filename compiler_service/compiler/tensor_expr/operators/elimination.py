"""One step of Gaussian elimination with partial pivoting, on the last two axes."""

from __future__ import annotations

from compiler_service.compiler.tensor_expr.axes import replaced
from compiler_service.compiler.tensor_expr.operator import Operator
from compiler_service.compiler.tensor_expr.operators.reduction import position_of
from compiler_service.compiler.tensor_expr.refusal import mismatch
from compiler_service.compiler.tensor_expr.scalar import absolute, clamped
from compiler_service.compiler.tensor_expr.tensor import ReduceOp, Tensor, compute
from shared_ir.expr import Expr, equal, lift, select
from shared_ir.expr.dim import as_dim, dims_text


def _pivot_row(x: Tensor) -> Tensor:
    """The row with the largest element in the first column, as a tensor of the batch shape."""
    if x.rank < 2 or x.shape[-1] != x.shape[-2]:
        raise mismatch("a square matrix is needed", "[..., n, n]", f"[{dims_text(x.shape)}]")
    column = compute(x.shape[:-1], lambda *i: absolute(x[(*i, lift(0))]), name="column")
    return position_of(ReduceOp.MAX)(column, axis=-1, keepdims=0)


def pivot(x: Tensor) -> Tensor:
    """The largest element of the first column, negated when it stands in an odd row (rows are exchanged one by one)."""
    row = _pivot_row(x)

    def body(*index: Expr) -> Expr:
        element = x[(*index, clamped(row[index], x.shape[-1]), lift(0))]
        return select(equal(row[index] % 2, 1), -element, element)

    return compute(x.shape[:-2], body, name="pivot")


def eliminated(x: Tensor) -> Tensor:
    """The other rows and columns after the first column is cleared; a column of zeros is left as it is."""
    row = _pivot_row(x)
    size = as_dim(lift(x.shape[-1]) - 1)

    def body(*index: Expr) -> Expr:
        *batch, i, j = index
        at = clamped(row[tuple(batch)], x.shape[-1])
        source = select(i < at, i, i + 1)
        top = x[(*batch, at, lift(0))]
        factor = select(equal(top, 0), 0, x[(*batch, source, lift(0))] / select(equal(top, 0), 1, top))
        return x[(*batch, source, j + 1)] - factor * x[(*batch, at, j + 1)]

    return compute(replaced(replaced(x.shape, x.rank - 1, size), x.rank - 2, size), body, name="eliminated")


OPERATORS = (
    Operator("ingot.Pivot", pivot),
    Operator("ingot.Eliminated", eliminated),
)
