"""The conditions that hold at a place of a loop program."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from compiler_service.compiler.loop_ir.ir import (
    Allocate,
    Block,
    Buffer,
    BufferLoad,
    For,
    If,
    Let,
    Statement,
    Store,
    substatements,
)
from shared_ir.dtype import DType
from shared_ir.expr import (
    Binary,
    BinaryOp,
    Expr,
    Unary,
    UnaryOp,
    equal,
    walk,
)


@dataclass(frozen=True, eq=False, slots=True)
class ConditionScope:
    """A condition that holds here, and those that held before."""

    fact: Expr
    outer: ConditionScope | None

    def facts(self) -> Iterator[tuple[Expr, ConditionScope | None]]:
        scope: ConditionScope | None = self
        while scope is not None:
            yield scope.fact, scope.outer
            scope = scope.outer

    def comparisons(self, expr: Expr) -> Iterator[tuple[BinaryOp, Expr, ConditionScope | None]]:
        """Each ``(op, other)`` for which ``expr op other`` holds, and what held before that."""
        for fact, outer in self.facts():
            assert isinstance(fact, Binary)
            if fact.lhs == expr:
                yield fact.op, fact.rhs, outer
            elif fact.rhs == expr:
                yield _MIRRORED[fact.op], fact.lhs, outer


def known_within(scope: ConditionScope | None, cond: Expr, *, holds: bool = True) -> ConditionScope | None:
    """``scope`` and what is known where ``cond`` holds, or where it does not."""
    match cond:
        case Unary(op=UnaryOp.NOT, x=x):
            return known_within(scope, x, holds=not holds)
        case Binary(op=op, lhs=lhs, rhs=rhs) if op is (BinaryOp.AND if holds else BinaryOp.OR):
            return known_within(known_within(scope, lhs, holds=holds), rhs, holds=holds)
        case Binary(op=op, lhs=lhs, rhs=rhs) if lhs.dtype is DType.INT64 and op in _NEGATED:
            return ConditionScope(cond if holds else Binary(_NEGATED[op], lhs, rhs), scope)
    return scope


_NEGATED = {
    BinaryOp.LT: BinaryOp.GE,
    BinaryOp.GE: BinaryOp.LT,
    BinaryOp.LE: BinaryOp.GT,
    BinaryOp.GT: BinaryOp.LE,
    BinaryOp.EQ: BinaryOp.NE,
    BinaryOp.NE: BinaryOp.EQ,
}
_MIRRORED = {
    BinaryOp.LT: BinaryOp.GT,
    BinaryOp.GT: BinaryOp.LT,
    BinaryOp.LE: BinaryOp.GE,
    BinaryOp.GE: BinaryOp.LE,
    BinaryOp.EQ: BinaryOp.EQ,
    BinaryOp.NE: BinaryOp.NE,
}


@dataclass
class Places:
    """Every statement of a program but blocks, with the conditions that hold there: those on elements that were written since they
    were tested are forgotten."""

    _written: dict[Statement, frozenset[Buffer]] = field(default_factory=dict)

    def of(
        self, statement: Statement, scope: ConditionScope | None
    ) -> Iterator[tuple[Statement, ConditionScope | None]]:
        if not isinstance(statement, Block):
            yield statement, scope
        match statement:
            case Block(statements=statements):
                for inner in statements:
                    yield from self.of(inner, scope)
                    scope = _without(scope, self.written(inner))
            case For(var=var, extent=extent, body=body):
                before = _without(scope, self.written(body))
                within = ConditionScope(var < extent, ConditionScope(var >= 0, before))
                yield from self.of(body, _without(within, self.written(body)))
            case Let(var=var, value=value, body=body):
                yield from self.of(body, known_within(scope, equal(var, value)))
            case Allocate(body=body):
                yield from self.of(body, scope)
            case If(cond=cond, then=then, otherwise=otherwise):
                yield from self.of(then, known_within(scope, cond))
                if otherwise is not None:
                    yield from self.of(otherwise, known_within(scope, cond, holds=False))

    def written(self, statement: Statement) -> frozenset[Buffer]:
        """The buffers that ``statement`` stores to."""
        found = self._written.get(statement)
        if found is None:
            found = frozenset({statement.buffer}) if isinstance(statement, Store) else frozenset()
            found = self._written[statement] = found.union(*(self.written(inner) for inner in substatements(statement)))
        return found


def _without(scope: ConditionScope | None, written: frozenset[Buffer]) -> ConditionScope | None:
    """``scope`` but for what it says of elements of ``written``."""
    if scope is None or not written:
        return scope
    outer = _without(scope.outer, written)
    if any(isinstance(e, BufferLoad) and e.buffer in written for e in walk(scope.fact)):
        return outer
    return scope if outer is scope.outer else ConditionScope(scope.fact, outer)
