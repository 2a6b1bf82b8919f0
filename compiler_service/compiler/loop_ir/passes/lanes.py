"""Arithmetic on vectors of int64 that keeps them in the form ``Ramp`` where it can.

Operands are scalars or vectors; a scalar stands for a vector of equal lanes and is broadcast only where it must be.
"""

from __future__ import annotations

import math
from functools import reduce

from compiler_service.compiler.loop_ir.ir import Broadcast, Ramp, lanes_of
from shared_ir.expr import COMPARISONS, BinaryOp, Const, Expr, binary
from shared_ir.expr.simplify import unbounded

Affine = tuple[Expr, Expr]
"""Base and stride; a scalar has stride 0."""

_EQUALITIES = frozenset({BinaryOp.EQ, BinaryOp.NE})
_BREAK_AFTER_ZERO = frozenset({BinaryOp.LE, BinaryOp.GT})
"""Comparisons that change between a difference of 0 and 1, instead of -1 and 0."""


def ramp(base: Expr, stride: Expr, lanes: int) -> Expr:
    """``base + stride * [0, lanes)``, the scalar ``base`` where the stride is 0."""
    return base if stride == Const(0) else Ramp(base, stride, lanes)


def index_arithmetic(op: BinaryOp, lhs: Expr, rhs: Expr, lanes: int) -> Expr | None:
    """``op(lhs, rhs)`` as a ramp, or as a scalar where all lanes agree; ``None`` where it is neither.

    Both operands are int64, at least one is a vector of ``lanes``.
    """
    left, right = _affine(lhs), _affine(rhs)
    if left is None or right is None:
        return None
    (a, s), (b, t) = left, right
    if op in COMPARISONS:
        return _comparison(op, left, right, lanes)
    match op:
        case BinaryOp.ADD | BinaryOp.SUB:  # (a + s*i) + (b + t*i) -> (a + b) + (s + t)*i
            return ramp(binary(op, a, b), binary(op, s, t), lanes)
        case BinaryOp.MUL if t == Const(0):  # (a + s*i) * b -> a*b + s*b*i
            return ramp(binary(op, a, b), binary(op, s, b), lanes)
        case BinaryOp.MUL if s == Const(0):
            return ramp(binary(op, a, b), binary(op, a, t), lanes)
        case BinaryOp.FLOOR_DIV | BinaryOp.FLOOR_MOD if isinstance(s, Const) and isinstance(b, Const) and t == Const(0):
            return _division(op, a, int(s.value), int(b.value), lanes)
    return None


def _affine(expr: Expr) -> Affine | None:
    if isinstance(expr, Ramp):
        return expr.base, expr.stride
    if isinstance(expr, Broadcast):
        return expr.x, Const(0)
    return (expr, Const(0)) if lanes_of(expr) == 1 else None


def _division(op: BinaryOp, base: Expr, stride: int, divisor: int, lanes: int) -> Expr | None:
    """``(base + stride*i)`` divided by a positive constant."""
    if divisor <= 0:
        return None
    quotient, remainder = (binary(each, base, divisor) for each in (BinaryOp.FLOOR_DIV, BinaryOp.FLOOR_MOD))
    if stride % divisor == 0:  # (a + c*s*i) // c -> a//c + s*i, and % c -> a % c
        return ramp(quotient, Const(stride // divisor), lanes) if op is BinaryOp.FLOOR_DIV else remainder
    if not _in_one_period(base, stride, divisor, lanes):
        return None
    return quotient if op is BinaryOp.FLOOR_DIV else ramp(remainder, Const(stride), lanes)


def _comparison(op: BinaryOp, left: Affine, right: Affine, lanes: int) -> Expr | None:
    """``i*32 + [0, 16) < 64 -> i*32 < 64``: a bound that falls between two vectors, never inside one."""
    (a, s), (b, t) = left, right
    difference, stride = binary(BinaryOp.SUB, a, b), binary(BinaryOp.SUB, s, t)
    if op in _BREAK_AFTER_ZERO:
        difference = binary(BinaryOp.SUB, difference, 1)  # a <= b -> a - b - 1 < 0
    if (
        op in _EQUALITIES
        or not isinstance(stride, Const)
        or not _in_one_period(difference, int(stride.value), 0, lanes)
    ):
        return None
    return binary(op, a, b)


def _in_one_period(base: Expr, stride: int, divisor: int, lanes: int) -> bool:
    """All lanes of ``base + stride*i`` lie between two neighbouring multiples of a factor of ``divisor``.

    ``base`` is a multiple of ``period`` plus ``phase``, where ``period`` divides ``divisor``; 0 is a multiple of every
    period, so that with ``divisor`` 0 no lane lies on the other side of 0.
    """
    polynomial = unbounded().polynomial(base)
    period = reduce(math.gcd, (c for monomial, c in polynomial.items() if monomial), divisor)
    if period == 0:  # a constant: both ends on one side of 0
        first = polynomial.get((), 0)
        return (first < 0) == (first + stride * (lanes - 1) < 0)
    phase = polynomial.get((), 0) % period
    last = phase + stride * (lanes - 1)
    return 0 <= last < period
