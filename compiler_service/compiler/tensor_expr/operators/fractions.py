"""Floats as exact quotients of integers, so that sizes computed from them are dims."""

from __future__ import annotations

from compiler_service.compiler.tensor_expr.meaning.known import vector
from compiler_service.compiler.tensor_expr.operator import Operator
from compiler_service.compiler.tensor_expr.refusal import mismatch
from compiler_service.compiler.tensor_expr.scalar import rounded
from compiler_service.compiler.tensor_expr.tensor import ReduceOp, Tensor, compute, reduce
from shared_ir.dtype import DType
from shared_ir.expr import Expr, cast, equal, lift, select
from shared_ir.expr.dim import Dim

LARGEST_DENOMINATOR = 1000
_FALLBACK = 1 << 20
"""Denominator of floats that are no simple fraction."""


def fractions(x: Tensor, *, bias: int) -> Tensor:
    """int64 ``[2 n]``: numerators plus ``bias``, then denominators, of the simplest fractions that round to ``x`` ``[n]``."""
    if x.rank != 1 or not x.dtype.is_float:
        raise mismatch("Fractions takes a vector of floats", "float32[n]", f"{x.dtype} of rank {x.rank}")
    count = lift(x.shape[0])

    def numerator(i: Expr, denominator: Expr) -> Expr:
        return rounded(cast(x[i], DType.FLOAT64) * cast(denominator, DType.FLOAT64))

    def fits(i: Expr, k: Expr) -> Expr:
        denominator = k + 1
        quotient = numerator(i, denominator) / cast(denominator, DType.FLOAT64)
        return select(equal(cast(quotient, x.dtype), x[i]), denominator, lift(_FALLBACK))

    simplest = reduce(ReduceOp.MIN, x.shape, [LARGEST_DENOMINATOR], fits, name="denominator")

    def body(i: Expr) -> Expr:
        own = i % count
        denominator = simplest[own]
        return select(i < count, cast(numerator(own, denominator), DType.INT64) + bias, denominator)

    return compute((count * 2,), body, name="fractions")


def ratios(*, numerators: tuple[Dim, ...], denominators: tuple[Dim, ...], dtype: DType) -> Tensor:
    """The vector of the quotients of dims."""
    pairs = zip(numerators, denominators, strict=True)
    return vector([cast(lift(n), dtype) / cast(lift(d), dtype) for n, d in pairs], dtype, name="ratios")


OPERATORS = (
    Operator("ingot.Fractions", fractions),
    Operator("ingot.Ratios", ratios),
)
