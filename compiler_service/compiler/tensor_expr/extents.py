"""Extents that broadcasting joins, where only the run knows which of them are 1.

ONNX broadcasts an extent of 1. Of two symbolic extents ``a`` and ``b`` either may turn out to be 1, so that their common extent is one
of its own: ``a`` where ``b`` is 1, ``b`` where ``a`` is 1, and else both, which must be equal. It is written ``select(a == 1, b, a)``,
with the extents in a fixed order, so that joins of the same extents are the same dim in whichever order they came about.

A tensor whose extent may be 1 where that of the result is not is *stretched*: it is read at ``select(own == 1, 0, i)``. That its extent
is 1 or the full one is a condition of the run.

Inside :func:`agreeing` extents are taken to be equal wherever they meet: code for the runs in which they are needs no such reads.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from compiler_service.compiler.tensor_expr.tensor import Load, Placeholder, Tensor, loads, topological
from shared_ir.expr import Binary, BinaryOp, Const, Expr, Select, Var, equal, lift, logical_and, minimum, select
from shared_ir.expr.dim import Dim, as_dim, dim_symbols
from shared_ir.expr.simplify import Simplifier


@dataclass
class Agreement:
    """Extents over ``symbols`` are equal where they meet.

    Attributes:
        pairs: those that met and did not look equal: what a run must satisfy for the agreement to hold.
    """

    symbols: frozenset[str]
    pairs: dict[tuple[Dim, Dim], None] = field(default_factory=dict)

    def covers(self, a: Dim, b: Dim) -> bool:
        if not dim_symbols((a, b)) <= self.symbols:
            return False
        self.pairs[a, b] = None
        return True


_AGREEMENT: ContextVar[Agreement | None] = ContextVar("agreement", default=None)


@contextmanager
def agreeing(agreement: Agreement | None) -> Iterator[None]:
    """Definitions that are run inside take extents to be equal that ``agreement`` covers; ``None``: none."""
    token = _AGREEMENT.set(agreement)
    try:
        yield
    finally:
        _AGREEMENT.reset(token)


def is_repeated(dim: Dim) -> bool:
    """Whether an axis of this extent holds one element that broadcasting repeats: 1, or ``min(1, x)``, a slice ``[-1:]``."""
    return dim == 1 or (isinstance(dim, Binary) and dim.op is BinaryOp.MIN and lift(1) in (dim.lhs, dim.rhs))


def may_be_one(dim: Dim) -> bool:
    """Whether some run may find the extent to be 1: not that of ``2 * n`` or ``n + 2``."""
    if isinstance(dim, int):
        return dim == 1
    simplifier = Simplifier({})
    low, high = simplifier.interval(dim)
    if (low is not None and low > 1) or (high is not None and high < 1):
        return False
    terms = simplifier.polynomial(dim)
    step = math.gcd(*(c for m, c in terms.items() if m))
    return step == 0 or (1 - terms.get((), 0)) % step == 0


def joint_extent(a: Dim, b: Dim) -> Dim:
    """The common extent of two aligned axes.

    One that cannot be 1 is the common one, and two of those must be equal: the run checks it.

    Raises:
        ValueError: two numbers that do not fit.
    """
    if a == b or b == 1:
        return a
    if a == 1 or is_repeated(a):
        return b
    if is_repeated(b):
        return a
    if isinstance(a, int) and isinstance(b, int):
        raise ValueError(f"{a} and {b} do not broadcast")
    stretches = [may_be_one(d) for d in (a, b)]
    agreement = _AGREEMENT.get()
    if stretches == [False, False] or (agreement is not None and agreement.covers(a, b)):
        return b if isinstance(b, int) else a
    if stretches == [True, True]:
        return _joined((*joined_extents(a), *joined_extents(b)))
    return b if stretches[0] else a


def _joined(extents: Iterable[Dim]) -> Dim:
    *others, last = sorted({lift(d) for d in extents}, key=lambda e: e.text)
    total = last
    for extent in reversed(others):
        total = select(equal(extent, 1), total, extent)
    return as_dim(total)


def joined_extents(dim: Dim) -> tuple[Dim, ...]:
    """The extents that ``dim`` is the common one of, one after the other."""
    found: list[Dim] = []
    while isinstance(dim, Select) and dim.cond == equal(dim.otherwise, 1):
        found.append(dim.otherwise)
        dim = dim.then
    return (*found, dim)


def is_stretched(own: Dim, full: Dim) -> bool:
    """Whether an axis of extent ``own`` may be 1 in a run where that of the result, ``full``, is not."""
    if own == full or isinstance(own, int) or is_repeated(own) or not may_be_one(own):
        return False
    agreement = _AGREEMENT.get()
    return agreement is None or not agreement.covers(own, full)


def fitting(own: Dim, full: Dim) -> tuple[Dim, Dim]:
    """The dims that must be equal for an axis of extent ``own`` to broadcast to ``full``."""
    return (fitting_extent(own, full), full) if is_repeated(own) or is_stretched(own, full) else (own, full)


def stretched_extent(actual: Dim, full: Dim) -> Dim | None:
    """The extent that :func:`fitting` says of, in ``actual == full``, that it is 1 or ``full``."""
    match actual:
        case Select(then=then, otherwise=own) if then == lift(full) and actual == fitting_extent(own, full):
            return own
    return None


def fitting_extent(own: Dim, full: Dim) -> Dim:
    """``full`` where ``own`` is 1, else ``own``."""
    return as_dim(select(equal(own, 1), lift(full), lift(own)))


def stretched_index(index: Expr, own: Dim) -> Expr:
    """Where an axis of extent ``own``, which is 1 or that of ``index``, is read."""
    return select(equal(own, 1), lift(0), index)


def inhabited(own: Dim, full: Dim) -> tuple[Dim, Dim]:
    """The dims that must be equal for every element along a ``full`` extent to be read from one along ``own``: not of nothing."""
    return as_dim(select(equal(lift(full), 0), lift(1), minimum(own, 1))), 1


def inhabited_extent(actual: Dim, expected: Dim) -> Dim | None:
    """The extent of which :func:`inhabited` says that it is not 0."""
    chosen = actual.otherwise if isinstance(actual, Select) and actual.then == lift(1) else actual
    match chosen:
        case (
            Binary(op=BinaryOp.MIN, lhs=Const(value=1), rhs=own) | Binary(op=BinaryOp.MIN, lhs=own, rhs=Const(value=1))
        ):
            return own if expected == 1 else None
    return None


def stretched_operands(outputs: Iterable[Tensor]) -> Mapping[Tensor, tuple[Dim, ...]]:
    """The placeholders that definitions read stretched, and the shapes that they are read as."""
    found: dict[Tensor, list[Dim]] = {}
    for t in dict.fromkeys(t for output in outputs for t in topological(output)):
        for load, axis, full in _stretched_loads(t):
            if isinstance(load.tensor.op, Placeholder):
                found.setdefault(load.tensor, list(load.tensor.shape))[axis] = full
    return {t: tuple(shape) for t, shape in found.items()}


def stretched_reads(t: Tensor) -> Iterator[tuple[Dim, Dim]]:
    """The extents of what ``t`` reads stretched, and those that they are read as."""
    for load, axis, full in _stretched_loads(t):
        yield load.tensor.shape[axis], full


def _stretched_loads(t: Tensor) -> Iterator[tuple[Load, int, Dim]]:
    if isinstance(t.op, Placeholder):
        return
    extents: dict[Expr, Dim] = {a.var: a.extent for a in t.op.all_axes}
    for load in loads(t.op.body):
        for axis, (index, own) in enumerate(zip(load.indices, load.tensor.shape, strict=True)):
            walked = _stretched_variable(index, own)
            if walked is not None and walked in extents:
                yield load, axis, extents[walked]


def _stretched_variable(index: Expr, own: Dim) -> Var | None:
    match index:
        case Select(otherwise=Var() as variable) if index == stretched_index(variable, own):
            return variable
    return None


def all_equal(pairs: Iterable[tuple[Dim, Dim]]) -> Dim:
    """1 where every pair of dims is equal, else 0."""
    conditions = [equal(lift(a), lift(b)) for a, b in pairs]
    while len(conditions) > 1:  # as a tree: a chain would be as deep as there are pairs
        halves = zip(conditions[::2], conditions[1::2], strict=False)
        rest = conditions[-1:] if len(conditions) % 2 else []
        conditions = [*(logical_and(a, b) for a, b in halves), *rest]
    return as_dim(select(conditions[0], lift(1), lift(0))) if conditions else 1
