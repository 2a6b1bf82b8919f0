"""Small constant matrices times tensors, written out: transforms of fast algorithms."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from shared_ir.expr import Binary, BinaryOp, Expr, equal, select

Matrix = tuple[tuple[Fraction, ...], ...]


def additions(matrix: Matrix) -> int:
    """Additions that multiply a vector by ``matrix``."""
    return sum(1 for row in matrix for c in row if c) - len(matrix)


def combination(matrix: Matrix, row: Expr, terms: Sequence[Expr]) -> Expr:
    """``matrix[row] . terms``, one case per row: schedules unroll the axis of ``row``."""
    found = [_row(coefficients, terms) for coefficients in matrix]
    result = found[-1]
    for i in range(len(found) - 2, -1, -1):
        result = select(equal(row, i), found[i], result)
    return result


def _row(coefficients: Sequence[Fraction], terms: Sequence[Expr]) -> Expr:
    """The sum of the terms with a coefficient other than 0, those of coefficient 1 first, even powers before odd ones: the sums
    for a point and its negative begin alike."""
    powers = list(zip(coefficients, terms, strict=True))
    own = [(c, t) for c, t in (*powers[::2], *powers[1::2]) if c]
    own.sort(key=lambda pair: pair[0] != 1)
    total: Expr | None = None
    for coefficient, term in own:
        if total is None:
            total = term if coefficient == 1 else term * float(coefficient)
        elif abs(coefficient) == 1:
            total = Binary(BinaryOp.ADD if coefficient > 0 else BinaryOp.SUB, total, term)
        else:
            total = total + term * float(coefficient)
    assert total is not None
    return total
