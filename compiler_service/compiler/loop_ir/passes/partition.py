"""Loops are cut where a condition on their variable changes, so that most iterations ask nothing.

::

    for i in 0..n:                                  y[0] = 0
        y[i] = select(i >= 1, x[i - 1], 0)   ->     for i in 0..n - 1:
                                                        y[i + 1] = x[i]

A condition ``a * i + b >= 0`` may mention, beside what is fixed outside of the loop, variables of known range bound inside
of it (a tile of pixels, the lanes of a vector); then there are iterations in which it always holds, in which it never holds,
and a few in between in which it is still asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from compiler_service.compiler.loop_ir.ir import (
    Block,
    For,
    ForKind,
    Function,
    If,
    Let,
    Statement,
    Store,
    substatements,
    walk_statements,
)
from compiler_service.compiler.loop_ir.passes.rewrite import block, map_expressions, substituted, with_substatements
from compiler_service.compiler.loop_ir.thresholds import Threshold, comparisons, threshold
from shared_ir.dtype import DType
from shared_ir.expr import (
    Const,
    Expr,
    Select,
    Var,
    lift,
    maximum,
    minimum,
    transform,
    variables,
    walk,
)
from shared_ir.expr.simplify import Interval, Simplifier

_MOST_STORES = 1000
"""Cuts leave no more stores than this in a function, counted after unrolling. The limit is one for all loops: the pieces of an outer
loop would each be cut again."""
_MOST_PIECES = 10
_MOST_TRIED = 300
"""Largest number of pieces that are tried as every bound in turn cuts those before, empty ones included: three to the power of the
bounds, where the simplifier cannot tell that a piece of symbolic bounds is empty."""
_UNROLLED_EDGE = 2
"""An edge of so few iterations is written out, so that its conditions can be decided."""


def partition(function: Function) -> Function:
    """The same function with serial loops cut into pieces."""
    body = _Cuts(_MOST_STORES - _stores(function.body)).statement(function.body, _Outside())
    return function if body is function.body else replace(function, body=body)


@dataclass(frozen=True)
class _Outside:
    """What is known of the loops around a statement: the range of each variable, those of vectorised loops (``lanes``), and how often
    unrolling repeats the statement."""

    ranges: dict[str, Interval] = field(default_factory=dict)
    lanes: frozenset[Var] = frozenset()
    copies: int = 1

    def within(self, statement: Statement) -> _Outside:
        """The same for the parts of ``statement``."""
        match statement:
            case For(var=var, kind=kind, extent=extent):
                lanes = self.lanes | {var} if kind is ForKind.VECTORIZED else self.lanes
                times = int(extent.value) if kind is ForKind.UNROLLED and isinstance(extent, Const) else 1
                return _Outside({**self.ranges, var.name: _range(statement)}, lanes, self.copies * times)
            case Let(var=var, value=value):
                lanes = self.lanes | {var} if variables(value) & self.lanes else self.lanes
                return replace(self, ranges={**self.ranges, var.name: (None, None)}, lanes=lanes)
        return self


class _Cuts:
    """Cuts of one function; ``left`` stores may still be added to it."""

    def __init__(self, left: int) -> None:
        self._left = left

    def statement(self, statement: Statement, outside: _Outside) -> Statement:
        if isinstance(statement, For) and statement.kind is ForKind.SERIAL:
            pieces = _cut(statement, outside)
            if pieces is not None and self._affords(statement, pieces, outside.copies):
                return block([self._inside(piece, outside) for piece in pieces])
        return self._inside(statement, outside)

    def _affords(self, loop: For, pieces: list[Statement], copies: int) -> bool:
        added = (sum(map(_stores, pieces)) - _stores(loop)) * copies
        if len(pieces) > 1 and added > self._left:
            return False
        self._left -= added
        return True

    def _inside(self, statement: Statement, outside: _Outside) -> Statement:
        outside = outside.within(statement)
        return with_substatements(statement, tuple(self.statement(part, outside) for part in substatements(statement)))


def _range(loop: For) -> Interval:
    return 0, int(loop.extent.value) - 1 if isinstance(loop.extent, Const) else None


@dataclass(frozen=True)
class _Piece:
    """Iterations [start, stop) of a loop with what is known of conditions there: the verdicts, and integers that are at least 0
    because of them (``facts``)."""

    start: Expr
    stop: Expr
    verdicts: tuple[tuple[Expr, bool], ...] = ()
    facts: tuple[Expr, ...] = ()

    def between(self, start: Expr, stop: Expr) -> _Piece:
        return replace(self, start=start, stop=stop)

    def told(self, bound: Threshold, holds: bool) -> _Piece:
        """The same iterations, where ``bound`` is known to hold or not to."""
        fact = bound.distance if holds else -1 - bound.distance
        return replace(self, verdicts=(*self.verdicts, (bound.cond, holds)), facts=(*self.facts, fact))

    def verdict(self, bound: Threshold, simplify: Simplifier) -> bool | None:
        """What follows for ``bound`` from the facts, whatever the iterations: an index below 0 is below every extent. None where
        nothing does. ``b >= 0`` follows from ``a >= 0`` where ``b - a >= 0``."""
        for fact in self.facts:
            if _at_least_zero(bound.distance - fact, simplify):
                return True
            if _at_least_zero(-1 - bound.distance - fact, simplify):
                return False
        return None


def _cut(loop: For, outside: _Outside) -> list[Statement] | None:
    """Statements that together do what ``loop`` does; None to leave it in one piece.

    Cuts must be the same for all lanes of vectorised loops outside.
    """
    simplifier = Simplifier({**outside.ranges, loop.var.name: _range(loop)})
    asked = [c for c in _conditions(loop) if not variables(c) & outside.lanes]
    inner = _last_iterations(loop.body)
    bounds = [b for c in asked if (b := threshold(c, loop.var, inner, simplifier)) is not None]
    if not bounds:
        return None
    pieces = _pieces(_Piece(lift(0), loop.extent), bounds, simplifier)
    if pieces is None or (len(pieces) == 1 and not pieces[0].verdicts):
        return None
    bodies = [(p, _decided(loop.body, dict(p.verdicts))) for p in pieces]
    return [_loop(loop, p, body, simplifier) for p, body in bodies if not _does_nothing(body)]


# -- conditions


def _conditions(loop: For) -> list[Expr]:
    """Comparisons under which statements run or values are chosen in ``loop``, and in no serial loop inside that they depend
    on."""
    found: dict[Expr, None] = {}

    def visit(statement: Statement, serial: frozenset[Var]) -> None:
        match statement:
            case For(var=var, kind=ForKind.SERIAL):
                serial |= {var}
            case Let(var=var):
                serial |= {var}
            case If(cond=cond):
                found.update(dict.fromkeys(c for c in comparisons(cond) if not variables(c) & serial))
            case Store(value=value):
                asked = (e.cond for e in walk(value) if isinstance(e, Select))
                found.update(dict.fromkeys(c for e in asked for c in comparisons(e) if not variables(c) & serial))
        for part in substatements(statement):
            visit(part, serial)

    visit(loop.body, frozenset())
    return [c for c in found if loop.var in variables(c)]


def _last_iterations(body: Statement) -> dict[Var, int | None]:
    """The loop variables bound in ``body`` with the largest value of each; None where it is not known."""
    found: dict[Var, int | None] = {}
    for loop in walk_statements(body):
        if isinstance(loop, For):
            _, last = _range(loop)
            known = found.get(loop.var, last)
            found[loop.var] = None if known is None or last is None else max(known, last)
    return found


# -- pieces


def _pieces(whole: _Piece, bounds: Sequence[Threshold], simplify: Simplifier) -> list[_Piece] | None:
    """``whole`` cut by every bound in turn; None where that makes too many pieces. A cut may lie behind the end of a loop of
    unknown length: the last piece then has a negative extent, which is as good as none."""
    found: list[_Piece] = []
    pending, tried = [(whole, 0)], 0
    while pending:
        piece, depth = pending.pop()
        tried += 1
        if tried > _MOST_TRIED:
            return None
        if _is_empty(piece, simplify):
            continue
        if depth < len(bounds):
            parts = _parts(piece, bounds[depth], simplify)
            pending += [(part, depth + 1) for part in reversed(parts)]
            continue
        found.append(piece)
        if len(found) > _MOST_PIECES:
            return None
    return found


def _parts(piece: _Piece, bound: Threshold, simplify: Simplifier) -> list[_Piece]:
    """``piece`` where ``bound`` does not hold, where it is still to be asked, and where it holds, or the other way around."""
    known = piece.verdict(bound, simplify)
    if known is not None:
        return [piece.told(bound, known)]
    early, late = (bound.false, bound.true) if bound.rising else (bound.true, bound.false)
    first = simplify(maximum(early, piece.start))
    second = simplify(maximum(late, first))
    before = piece.between(piece.start, simplify(minimum(first, piece.stop))).told(bound, not bound.rising)
    between = piece.between(first, simplify(minimum(second, piece.stop)))
    after = piece.between(first if early == late else second, piece.stop).told(bound, bound.rising)
    return [before, after] if early == late else [before, between, after]


def _is_empty(piece: _Piece, simplify: Simplifier) -> bool:
    _, most = simplify.interval(simplify(piece.stop - piece.start))
    return most is not None and most <= 0


def _at_least_zero(expr: Expr, simplify: Simplifier) -> bool:
    least, _ = simplify.interval(simplify(expr))
    return least is not None and least >= 0


def _decided(body: Statement, verdicts: dict[Expr, bool]) -> Statement:
    """``body`` where the conditions are known."""
    memo: dict[Expr, Expr] = {}

    def rule(expr: Expr) -> Expr | None:
        return Const(verdicts[expr], DType.BOOL) if expr in verdicts else None

    return _taken(map_expressions(body, lambda e: transform(e, rule, memo)))


def _taken(statement: Statement) -> Statement:
    """Branches whose condition is constant are resolved."""
    if isinstance(statement, If) and isinstance(statement.cond, Const):
        arm = statement.then if statement.cond.value else statement.otherwise
        return Block(()) if arm is None else _taken(arm)
    return with_substatements(statement, tuple(_taken(part) for part in substatements(statement)))


def _does_nothing(statement: Statement) -> bool:
    return not any(isinstance(s, Store) for s in walk_statements(statement))


def _stores(statement: Statement) -> int:
    """Stores after unrolling."""
    match statement:
        case Store():
            return 1
        case For(kind=ForKind.UNROLLED, extent=Const(value=extent), body=body):
            return int(extent) * _stores(body)
    return sum(_stores(part) for part in substatements(statement))


def _loop(loop: For, piece: _Piece, body: Statement, simplify: Simplifier) -> Statement:
    extent = simplify(piece.stop - piece.start)
    least, most = simplify.interval(extent)
    if most == 1:
        body = substituted(body, {loop.var: piece.start})
        return body if least == 1 else If(extent > 0, body)
    if piece.start != Const(0):
        body = substituted(body, {loop.var: loop.var + piece.start})
    is_edge = least == most and most is not None and most <= _UNROLLED_EDGE and _asks(body, loop.var)
    return For(loop.var, extent, ForKind.UNROLLED if is_edge else loop.kind, body)


def _asks(body: Statement, var: Var) -> bool:
    """Whether a condition on ``var`` is left in ``body``."""
    asked = _conditions(For(var, lift(1), ForKind.SERIAL, body))
    return bool(asked)
