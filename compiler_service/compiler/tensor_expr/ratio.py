"""Floats computed from dims: exact quotients of integer expressions.

Exporters compute sizes by way of floats (``Cast -> Mul(0.5) -> Floor -> Cast``). Such a float is a quotient of dims; as
long as its denominator is a small power of two, float32 holds it exactly and each step means what the run would compute.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from shared_ir.dtype import DType
from shared_ir.expr import Binary, BinaryOp, Cast, Expr, cast, ceil_div, lift
from shared_ir.expr.dim import Dim, as_dim

_LARGEST_DENOMINATOR = 1 << 10


@dataclass(frozen=True)
class Ratio:
    """``numerator / denominator``, denominator > 0."""

    numerator: Dim
    denominator: Dim = 1

    @property
    def is_dyadic(self) -> bool:
        """Whether float32 holds the value exactly (dims being smaller than ``2**13`` times that)."""
        d = self.denominator
        return isinstance(d, int) and d & (d - 1) == 0 and d <= _LARGEST_DENOMINATOR

    @property
    def floor(self) -> Dim:
        return as_dim(lift(self.numerator) // lift(self.denominator))

    @property
    def ceil(self) -> Dim:
        return as_dim(ceil_div(self.numerator, self.denominator))

    def __add__(self, other: Ratio) -> Ratio:
        n = self.numerator * other.denominator + other.numerator * self.denominator
        return ratio(n, self.denominator * other.denominator)

    def __neg__(self) -> Ratio:
        return Ratio(as_dim(0 - lift(self.numerator)), self.denominator)

    def __mul__(self, other: Ratio) -> Ratio:
        return ratio(self.numerator * other.numerator, self.denominator * other.denominator)

    def __truediv__(self, other: Ratio) -> Ratio:
        return ratio(self.numerator * other.denominator, self.denominator * other.numerator)

    def expression(self, dtype: DType) -> Expr:
        """The value as a floating-point expression, in the form that :func:`ratio_of` reads."""
        return Binary(BinaryOp.DIV, cast(lift(self.numerator), dtype), cast(lift(self.denominator), dtype))


def ratio(numerator: Dim, denominator: Dim) -> Ratio:
    """The quotient in lowest terms where both are numbers."""
    numerator, denominator = as_dim(numerator), as_dim(denominator)
    if isinstance(numerator, int) and isinstance(denominator, int) and denominator:
        fraction = Fraction(numerator, denominator)
        return Ratio(fraction.numerator, fraction.denominator)
    whole = as_dim(lift(numerator) // lift(denominator))
    if as_dim(whole * denominator) == numerator:
        return Ratio(whole)
    return Ratio(numerator, denominator)


def ratio_of(value: float | Expr) -> Ratio | None:
    """A float, or an expression made by :meth:`Ratio.expression`, as a quotient; else (and not finite) None."""
    match value:
        case float() | int():
            try:
                fraction = Fraction(value)
            except (OverflowError, ValueError):
                return None
            return Ratio(fraction.numerator, fraction.denominator)
        case Binary(op=BinaryOp.DIV, lhs=Cast(x=numerator), rhs=Cast(x=denominator)):
            return Ratio(as_dim(numerator), as_dim(denominator))
    return None
