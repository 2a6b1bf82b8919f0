"""Bounds of integers, as expressions without data, and what operations make of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import product
from typing import NamedTuple

from shared_ir.dtype import DType
from shared_ir.expr import (
    Binary,
    BinaryOp,
    Const,
    Expr,
    Select,
    lift,
    maximum,
    minimum,
)
from shared_ir.expr.polynomials import expression_of, split_multiples
from shared_ir.expr.simplify import Simplifier

MOST_BOUNDS = 8
"""Bounds of one side of an expression that are looked at, the shortest first."""

_MOST_SHIFTED = 40
"""Places that sizes are moved by without wrapping."""


class Bounds(NamedTuple):
    """Expressions without data: each of ``least`` is at most, each of ``most`` at least the element; none where none is known."""

    least: tuple[Expr, ...] = ()
    most: tuple[Expr, ...] = ()


UNKNOWN = Bounds()


def shortest(bounds: Iterable[Expr]) -> tuple[Expr, ...]:
    """As many as are looked at, the shortest."""
    return tuple(sorted(dict.fromkeys(bounds), key=lambda e: e.depth)[:MOST_BOUNDS])


def hull(a: Bounds, b: Bounds) -> Bounds:
    return Bounds(
        tuple(minimum(x, y) for x, y in product(a.least, b.least)),
        tuple(maximum(x, y) for x, y in product(a.most, b.most)),
    )


def combined(op: BinaryOp, a: Bounds, b: Bounds, rhs: Expr) -> Bounds:
    """The bounds of ``lhs op rhs`` from those of both sides."""
    match op:
        case BinaryOp.MIN:
            return Bounds(hull(a, b).least, (*a.most, *b.most))
        case BinaryOp.MAX:
            return Bounds((*a.least, *b.least), hull(a, b).most)
    if not (a.least and a.most and b.least and b.most):
        return UNKNOWN  # it may wrap
    match op:
        case BinaryOp.ADD:
            least, most = product(a.least, b.least), product(a.most, b.most)
            return Bounds(tuple(x + y for x, y in least), tuple(x + y for x, y in most))
        case BinaryOp.SUB:
            least, most = product(a.least, b.most), product(a.most, b.least)
            return Bounds(tuple(x - y for x, y in least), tuple(x - y for x, y in most))
        case BinaryOp.MUL:
            least, most = product(a.least, b.least), product(a.most, b.most)
            return Bounds(tuple(x * y for x, y in least), tuple(x * y for x, y in most))
        case BinaryOp.SHL if any(isinstance(y, Const) and int(y.value) <= _MOST_SHIFTED for y in b.most):
            return Bounds(a.least)
        case BinaryOp.FLOOR_DIV if _is_positive(rhs):
            return Bounds(tuple(x // rhs for x in a.least), tuple(x // rhs for x in a.most))
    return UNKNOWN


def may_wrap(op: BinaryOp, a: Bounds, b: Bounds) -> bool:
    """Whether int64 may not hold what ``op`` makes of such elements. Extents, and what is made of them, are sizes of memory."""
    match op:
        case BinaryOp.ADD | BinaryOp.SUB:
            return not (_is_within(a, 1 << 62) and _is_within(b, 1 << 62))
        case BinaryOp.MUL:
            constant = _is_within(a, 1 << 31, sizes=False) and _is_within(b, 1 << 31, sizes=False)
            scaled = _is_within(a, 1 << 12) and _is_within(b, 1 << 12, sizes=False)
            return not (constant or scaled)
        case BinaryOp.SHL:
            return not _is_within(a, 1 << 20, sizes=False)
    return False


def of_type(dtype: DType) -> Bounds:
    """What the type of an element alone says."""
    if dtype is DType.BOOL:
        return Bounds((lift(0),), (lift(1),))
    if not dtype.is_integer or dtype.bits >= DType.INT64.bits:
        return UNKNOWN
    least, most = dtype.limits
    return Bounds((lift(least),), (lift(most),))


def fits(bounds: Bounds, dtype: DType) -> bool:
    """Whether ``dtype`` holds all that is within ``bounds``, as numbers among them say."""
    if not dtype.is_integer:
        return False
    lowest, highest = dtype.limits
    least = (int(low.value) for low in bounds.least if isinstance(low, Const))
    most = (int(high.value) for high in bounds.most if isinstance(high, Const))
    return any(low >= lowest for low in least) and any(high <= highest for high in most)


def keeps(given: DType, taken: DType) -> bool:
    """Whether every number of the integers ``given`` is one of ``taken``: others wrap when they are converted."""
    if given is DType.BOOL:
        return True
    if not (given.is_integer and taken.is_integer):
        return False
    (least, most), (lowest, highest) = given.limits, taken.limits
    return lowest <= least and most <= highest


def _is_within(bounds: Bounds, limit: int, *, sizes: bool = True) -> bool:
    """Whether some bound of either side is a number of at most ``limit``, or an expression of extents."""

    def is_small(expr: Expr) -> bool:
        return abs(int(expr.value)) <= limit if isinstance(expr, Const) else sizes

    return any(map(is_small, bounds.least)) and any(map(is_small, bounds.most))


def _is_positive(expr: Expr) -> bool:
    return isinstance(expr, Const) and int(expr.value) > 0


def quotients(numerator: Bounds, divisor: Expr, simplifier: Simplifier) -> tuple[Expr, ...]:
    """What a quotient is at most where its numerator is below a multiple of ``divisor``, which is at least 1 where there is a quotient:
    ``x < q * d`` and ``d >= 1`` say ``x // d < q``. The index of a task is taken apart so."""
    own = simplifier.polynomial(divisor)
    found = (split_multiples(simplifier.polynomial(high + 1), own) for high in numerator.most)
    return tuple(expression_of(whole) - 1 for whole, rest in found if rest is None)


def choices(expr: Expr) -> Iterator[Expr]:
    """What ``expr`` may be one of."""
    if isinstance(expr, Binary) and expr.op in (BinaryOp.MIN, BinaryOp.MAX):
        for child in expr.children():
            yield from choices(child)
    elif isinstance(expr, Select):
        yield from choices(expr.then)
        yield from choices(expr.otherwise)
    else:
        yield expr
