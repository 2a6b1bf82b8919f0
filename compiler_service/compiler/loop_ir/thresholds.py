"""Where a comparison changes along one variable."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from compiler_service.compiler.loop_ir.ir import BufferLoad
from shared_ir.dtype import DType
from shared_ir.expr import Binary, BinaryOp, Expr, Var, lift, substitute, variables, walk
from shared_ir.expr.simplify import Simplifier


@dataclass(frozen=True)
class Threshold:
    """``cond`` holds at every place from ``true`` on and at none before ``false`` (``rising``), or at every one before
    ``true`` and at none from ``false`` on. It says that ``distance``, an integer, is at least 0."""

    cond: Expr
    distance: Expr
    rising: bool
    true: Expr
    false: Expr


_AT_LEAST_ZERO = {
    BinaryOp.GE: lambda a, b: a - b,
    BinaryOp.GT: lambda a, b: a - b - 1,
    BinaryOp.LE: lambda a, b: b - a,
    BinaryOp.LT: lambda a, b: b - a - 1,
}
"""Comparison -> the integer that is >= 0 exactly when it holds."""


def comparisons(cond: Expr) -> Iterator[Expr]:
    """The comparisons of integers that ``cond`` consists of."""
    if isinstance(cond, Binary):
        if cond.lhs.dtype is DType.INT64 and cond.op in _AT_LEAST_ZERO:
            yield cond
        elif cond.dtype is DType.BOOL:
            for child in cond.children():
                yield from comparisons(child)


def threshold(cond: Expr, var: Var, inner: Mapping[Var, int | None], simplifier: Simplifier) -> Threshold | None:
    """Where ``cond`` changes along ``var``; None when it is not ``a * var + b * inner + fixed >= 0`` with constant a and b.

    Args:
        inner: the largest value of other variables, which run from 0; None where it is not known.
    """
    assert isinstance(cond, Binary)
    distance = _AT_LEAST_ZERO[cond.op](cond.lhs, cond.rhs)
    if any(isinstance(e, BufferLoad) for e in walk(distance)):
        return None
    slope = 0
    low = high = 0
    for monomial, coefficient in simplifier.polynomial(distance).items():
        moving = {v for atom in monomial for v in variables(atom)} & {var, *inner}
        if not moving:
            continue
        if len(monomial) != 1 or not isinstance(monomial[0], Var):
            return None
        if monomial[0] == var:
            slope = coefficient
            continue
        last = inner[monomial[0]]
        if last is None:
            return None
        low, high = low + min(0, coefficient * last), high + max(0, coefficient * last)
    rest = substitute(distance, {v: lift(0) for v in (var, *inner)})
    if slope == 0:
        return None
    step = abs(slope)
    # slope * var + rest >= -low, then -high
    ends = [(rest + end) // step for end in (low, high)]
    true, false = (simplifier(-end if slope > 0 else end + 1) for end in ends)
    return Threshold(cond, distance, slope > 0, true, false)
