"""What can be told of an expression without running it: sign, range, NaN, loads, linearity in the lane."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce
from typing import NamedTuple

from compiler_service.compiler.loop_ir.ir import Broadcast, BufferLoad, Ramp
from shared_ir.dtype import DType
from shared_ir.expr import Binary, BinaryOp, Cast, Const, Expr, Select, Unary, UnaryOp, Var, binary

_MONOTONE = frozenset({BinaryOp.ADD, BinaryOp.MUL, BinaryOp.MIN, BinaryOp.FLOOR_DIV, BinaryOp.TRUNC_DIV})
_MOVABLE = (Binary, Unary, Select, Ramp, Broadcast, Cast)
_SLOW = frozenset(
    {BinaryOp.FLOOR_DIV, BinaryOp.FLOOR_MOD, BinaryOp.TRUNC_DIV, BinaryOp.TRUNC_MOD, BinaryOp.POW, BinaryOp.DIV}
)
_ROUNDINGS = frozenset({UnaryOp.ROUND, UnaryOp.FLOOR, UnaryOp.CEIL, UnaryOp.TRUNC})


class Linear(NamedTuple):
    """``base + lane * stride``"""

    base: Expr
    stride: Expr


def as_linear(index: Expr) -> Linear | None:
    """A vector index as a ramp, where it is one."""
    match index:
        case Ramp(base=base, stride=stride):
            return Linear(base, stride)
        case Broadcast(x=x):
            return Linear(x, Const(0))
        case Binary(op=op, lhs=lhs, rhs=rhs) if op in (BinaryOp.ADD, BinaryOp.SUB, BinaryOp.MUL):
            left, right = as_linear(lhs), as_linear(rhs)
            if left is None or right is None:
                return None
            if op is BinaryOp.ADD:
                return Linear(left.base + right.base, left.stride + right.stride)
            if op is BinaryOp.SUB:
                return Linear(left.base - right.base, left.stride - right.stride)
            if right.stride == Const(0):
                return Linear(left.base * right.base, left.stride * right.base)
            if left.stride == Const(0):
                return Linear(left.base * right.base, right.stride * left.base)
    return None


class LaneBound(NamedTuple):
    """The lanes below ``limit``, or those from it on."""

    limit: Expr
    below: bool
    lanes: int


LANE_BOUNDS = frozenset({BinaryOp.LT, BinaryOp.LE, BinaryOp.GT, BinaryOp.GE})


def lane_bound(op: BinaryOp, lhs: Expr, rhs: Expr) -> LaneBound | None:
    """A comparison of ``base + lane`` with a number that all lanes share: the bounds checks of vectorised loops.

    The indices compared are those of memory, whose differences do not overflow.
    """
    match lhs, rhs:
        case Ramp(base=base, stride=Const(value=1), lanes=lanes), Broadcast(x=limit):
            count = limit - base
            match op:
                case BinaryOp.LT | BinaryOp.GE:  # base + lane < limit
                    return LaneBound(count, op is BinaryOp.LT, lanes)
                case BinaryOp.LE | BinaryOp.GT:  # base + lane <= limit
                    return LaneBound(count + 1, op is BinaryOp.LE, lanes)
        case Broadcast(), Ramp(stride=Const(value=1)):
            return lane_bound(_MIRRORED[op], rhs, lhs)
    return None


_MIRRORED = {
    BinaryOp.LT: BinaryOp.GT,
    BinaryOp.LE: BinaryOp.GE,
    BinaryOp.GT: BinaryOp.LT,
    BinaryOp.GE: BinaryOp.LE,
}


def split_sum(index: Expr) -> tuple[tuple[Expr, ...], int]:
    """A sum of int64 as its terms and its constant."""
    terms: list[Expr] = []
    constant = 0
    rest = [(index, 1)]
    while rest:
        expr, sign = rest.pop()
        match expr:
            case Const(value=value):
                constant += sign * int(value)
            case Binary(op=BinaryOp.ADD, lhs=lhs, rhs=rhs):
                rest += ((rhs, sign), (lhs, sign))
            case Binary(op=BinaryOp.SUB, lhs=lhs, rhs=rhs):
                rest += ((rhs, -sign), (lhs, sign))
            case _:
                terms.append(expr if sign > 0 else binary(BinaryOp.SUB, 0, expr))
    return tuple(terms), constant


def sum_of(terms: Sequence[Expr]) -> Expr:
    """The inverse of :func:`split_sum`."""
    return reduce(lambda a, b: binary(BinaryOp.ADD, a, b), terms)


def uniform(expr: Expr) -> Expr:
    """The scalar that every lane of a broadcast holds; other expressions as they are."""
    return expr.x if isinstance(expr, Broadcast) else expr


def constant_of(expr: Expr) -> float | None:
    """The number that ``expr`` is in every lane, if it is a constant."""
    scalar = uniform(expr)
    return scalar.value if isinstance(scalar, Const) else None


def logistic_argument(expr: Expr) -> Expr | None:
    """The x of ``exp(x) + 1``."""
    match expr:
        case Binary(op=BinaryOp.ADD, lhs=Unary(op=UnaryOp.EXP, x=x), rhs=one) if constant_of(one) == 1:
            return x
    return None


def is_not_nan(expr: Expr) -> bool:
    match uniform(expr):
        case Const(value=value):
            return not math.isnan(value)
        case Cast(x=x):
            return not x.dtype.is_float
        case Binary(op=BinaryOp.MIN | BinaryOp.MAX, lhs=lhs, rhs=rhs):
            return is_not_nan(lhs) and is_not_nan(rhs)
        case Binary(op=BinaryOp.MAX_NUMBER, lhs=lhs):
            return is_not_nan(lhs)
    return False


def fits_integer(expr: Expr, dtype: DType) -> bool:
    """Whether a float expression is clamped to the range of an integer type (NaN apart)."""
    least, largest = dtype.limits
    low, high = _clamped(expr)
    # bounds are compared as floats of 24 bits: the ends of wider types are not among them
    return dtype.bits <= 16 and low >= least and high <= largest


def _clamped(expr: Expr) -> tuple[float, float]:
    match expr:
        case Unary(op=op, x=x) if op in _ROUNDINGS:
            return _clamped(x)  # integer bounds stay bounds
        case Binary(op=BinaryOp.MIN | BinaryOp.MAX | BinaryOp.MAX_NUMBER as op, lhs=lhs, rhs=rhs):
            inner, bound = (lhs, constant_of(rhs)) if constant_of(rhs) is not None else (rhs, constant_of(lhs))
            if bound is None:
                return -math.inf, math.inf
            low, high = _clamped(inner)
            if op is BinaryOp.MIN:
                return min(low, bound), min(high, bound)
            return max(low, bound), max(high, bound)
    return -math.inf, math.inf


class Facts:
    """Answers about expressions of one function; remembers them, and the variables known to be >= 0."""

    def __init__(self) -> None:
        self._loads: dict[Expr, bool] = {}
        self._moves: dict[Expr, bool] = {}
        self._sums: dict[Expr, tuple[tuple[Expr, ...], int]] = {}
        self._nonnegative: dict[str, bool] = {}

    def learn(self, name: str, nonnegative: bool) -> None:
        self._nonnegative[name] = nonnegative

    def has_loads(self, expr: Expr) -> bool:
        if isinstance(expr, (Const, Var)):
            return False
        found = self._loads.get(expr)
        if found is None:
            found = isinstance(expr, BufferLoad) or any(self.has_loads(c) for c in expr.children())
            self._loads[expr] = found
        return found

    def moves(self, expr: Expr) -> bool:
        """Integer arithmetic that costs little and may be computed earlier than the program says, needed or not."""
        if isinstance(expr, (Const, Var)):
            return True
        found = self._moves.get(expr)
        if found is None:
            found = expr.dtype in (DType.INT64, DType.INT32, DType.BOOL) and isinstance(expr, _MOVABLE)
            if isinstance(expr, Binary) and expr.op in _SLOW:
                found = found and isinstance(uniform(expr.rhs), Const)
            found = self._moves[expr] = found and all(self.moves(child) for child in expr.children())
        return found

    def sum(self, index: Expr) -> tuple[tuple[Expr, ...], int]:
        """:func:`split_sum`"""
        found = self._sums.get(index)
        if found is None:
            found = self._sums[index] = split_sum(index)
        return found

    def is_nonnegative(self, expr: Expr) -> bool:
        """Whether an integer expression is certainly >= 0 (index arithmetic does not overflow)."""
        match expr:
            case Const(value=value):
                return value >= 0
            case Var(name=name):
                return self._nonnegative.get(name, False)
            case Broadcast(x=x):
                return self.is_nonnegative(x)
            case Ramp(base=base, stride=stride):
                return self.is_nonnegative(base) and self.is_nonnegative(stride)
            case Binary(op=op, lhs=lhs, rhs=rhs) if op in _MONOTONE:
                return self.is_nonnegative(lhs) and self.is_nonnegative(rhs)
            case Binary(op=BinaryOp.MAX, lhs=lhs, rhs=rhs):
                return self.is_nonnegative(lhs) or self.is_nonnegative(rhs)
            case Binary(op=BinaryOp.FLOOR_MOD, rhs=rhs):
                return self.is_nonnegative(rhs)
            case Select(then=then, otherwise=otherwise):
                return self.is_nonnegative(then) and self.is_nonnegative(otherwise)
        return False
