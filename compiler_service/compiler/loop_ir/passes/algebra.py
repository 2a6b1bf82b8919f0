"""Simplification of loop expressions: the integer normal form of :mod:`shared_ir.expr.simplify`, and vectors on top of it.

A vector of index arithmetic is simplified as the scalar expression of one lane, whose number is a variable of known range;
the result is a ramp again where it is linear in that variable.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from compiler_service.compiler.loop_ir.ir import Broadcast, BufferLoad, Ramp, VectorReduce, VectorVar, lanes_of
from compiler_service.compiler.loop_ir.passes.lanes import index_arithmetic, ramp
from compiler_service.compiler.tensor_expr.tensor import ReduceOp
from shared_ir.dtype import DType
from shared_ir.expr import (
    COMPARISONS,
    Binary,
    BinaryOp,
    Const,
    Expr,
    Select,
    Unary,
    UnaryOp,
    Var,
    binary,
    lift,
    variables,
)
from shared_ir.expr.simplify import Interval, Simplifier

_BY_LANE = COMPARISONS | {BinaryOp.FLOOR_DIV, BinaryOp.FLOOR_MOD, BinaryOp.MIN, BinaryOp.MAX}
_IDEMPOTENT = frozenset({ReduceOp.MIN, ReduceOp.MAX, ReduceOp.MAX_NUMBER, ReduceOp.AND, ReduceOp.OR})


@dataclass
class Algebra:
    """Simplifies expressions under the ranges of the variables bound so far."""

    ranges: dict[str, Interval] = field(default_factory=dict)
    _scalars: Simplifier = field(init=False)
    _memo: dict[Expr, Expr] = field(default_factory=dict)
    _has_vectors: dict[Expr, bool] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._scalars = Simplifier(self.ranges)

    def bind(self, name: str, interval: Interval) -> None:
        """``name`` is now a variable within ``interval``; a name may be bound again once its scope has ended."""
        if name in self.ranges and self.ranges[name] != interval:
            self.ranges = dict(self.ranges)
            self._scalars = Simplifier(self.ranges)
            self._memo = {}
        self.ranges[name] = interval

    def interval(self, expr: Expr) -> Interval:
        """Inclusive bounds of a scalar int64 expression."""
        return (None, None) if self.has_vectors(expr) else self._scalars.interval(expr)

    def __call__(self, expr: Expr) -> Expr:
        found = self._memo.get(expr)
        if found is None:
            if not self.has_vectors(expr):
                found = self._scalars(expr)
            else:
                children = expr.children()
                new = tuple([self(child) for child in children])
                same = all(a is b for a, b in zip(new, children, strict=True))
                found = self._vector(expr if same else expr.with_children(new))
            self._memo[expr] = found
        return found

    def has_vectors(self, expr: Expr) -> bool:
        """Some part of ``expr`` is a vector."""
        found = self._has_vectors.get(expr)
        if found is None:
            found = isinstance(expr, Ramp | Broadcast | VectorReduce | VectorVar)
            found = found or any(self.has_vectors(child) for child in expr.children())
            self._has_vectors[expr] = found
        return found

    # -- vectors, their children simplified

    def _vector(self, expr: Expr) -> Expr:
        match expr:
            case Ramp(base=base, stride=Const(value=0), lanes=lanes):
                return Broadcast(base, lanes)
            case BufferLoad():
                return self._load(expr)
            case Binary(op=op, lhs=lhs, rhs=rhs) if lhs.dtype is DType.INT64:
                found = self._integer(op, lhs, rhs)
                return expr if found is None else found
            case Binary(op=BinaryOp.AND | BinaryOp.OR):
                return _logical(expr)
            case Unary(op=UnaryOp.NOT, x=Broadcast(x=Const(value=value), lanes=lanes)):
                return Broadcast(Const(not value, DType.BOOL), lanes)
            case Select(cond=Broadcast(x=Const(value=value)), then=then, otherwise=otherwise):
                return then if value else otherwise
            case VectorReduce(op=op, x=Broadcast(x=x)) if op in _IDEMPOTENT:
                return x
        return expr

    def _load(self, load: BufferLoad) -> Expr:
        match load.mask:
            case Broadcast(x=Const(value=value), lanes=lanes):
                whole = BufferLoad(load.buffer, load.indices)
                return whole if value else Broadcast(lift(0, load.dtype), lanes)
        return load

    def _integer(self, op: BinaryOp, lhs: Expr, rhs: Expr) -> Expr | None:
        lanes = max(lanes_of(lhs), lanes_of(rhs))
        if lanes == 1:
            return None
        found = index_arithmetic(op, lhs, rhs, lanes)
        if found is None:
            return self._by_lane(op, lhs, rhs, lanes) if op in _BY_LANE else None
        if isinstance(found, Ramp):
            return Ramp(self(found.base), self(found.stride), lanes)
        return Broadcast(self(found), lanes)

    def _by_lane(self, op: BinaryOp, lhs: Expr, rhs: Expr, lanes: int) -> Expr | None:
        lane = Var(f"<lane of {lanes}>")
        left, right = _at_lane(lhs, lane), _at_lane(rhs, lane)
        if left is None or right is None or self.has_vectors(left) or self.has_vectors(right):
            return None
        self.bind(lane.name, (0, lanes - 1))
        result = self._scalars(binary(op, left, right))
        if lane not in variables(result):
            return Broadcast(result, lanes)
        if op in COMPARISONS:
            return None
        return self._linear(result, lane, lanes)

    def _linear(self, expr: Expr, lane: Var, lanes: int) -> Expr | None:
        """``base + stride * lane`` as a ramp."""
        base: Expr = Const(0)
        stride: Expr = Const(0)
        for monomial, coefficient in self._scalars.polynomial(expr).items():
            term: Expr = Const(coefficient)
            for atom in monomial:
                if atom != lane:
                    if lane in variables(atom):
                        return None
                    term = binary(BinaryOp.MUL, term, atom)
            match monomial.count(lane):
                case 0:
                    base = binary(BinaryOp.ADD, base, term)
                case 1:
                    stride = binary(BinaryOp.ADD, stride, term)
                case _:
                    return None
        return ramp(self._scalars(base), self._scalars(stride), lanes)


def _at_lane(expr: Expr, lane: Var) -> Expr | None:
    """The element of a ramp, a broadcast or a scalar in ``lane``."""
    match expr:
        case Ramp(base=base, stride=stride):
            return binary(BinaryOp.ADD, base, binary(BinaryOp.MUL, stride, lane))
        case Broadcast(x=x):
            return x
    return expr if lanes_of(expr) == 1 else None


def _logical(expr: Binary) -> Expr:
    """``true and x -> x``, ``false and x -> false``, and the duals, on bool vectors."""
    for known, other in ((expr.lhs, expr.rhs), (expr.rhs, expr.lhs)):
        match known:
            case Broadcast(x=Const(value=value, type=DType.BOOL)):
                return other if bool(value) == (expr.op is BinaryOp.AND) else known
    return expr
