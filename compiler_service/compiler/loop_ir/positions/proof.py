"""Every access at a position that comes from data is inside of its buffer: a proof from what clamps, chooses or tests the position.

A position comes from data where an index reads an element, or a variable that such an element decided. What an element is, nobody
knows: any number of its type. So a bound follows only from the operations around it: ``max(min(i, n - 1), 0)`` is within [0, n) whatever
``i`` is, and so is ``i`` where ``i >= 0 and i < n`` was tested. Sums and products have bounds where both sides have two each, so that
nothing wraps. What a function writes itself has a bound where every one of its stores keeps it, as a counter does (induction; that no
element is read before it is written is for guarded runs to find).

An extent of 0 has no position inside. Such a proof therefore asks that the extent be at least 1 wherever there are tasks, or at least
another extent, where a position is brought into that one; who runs the function sees to it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from compiler_service.compiler.loop_ir.ir import Block, Buffer, BufferLoad, Function, Statement, Store, expressions_of
from compiler_service.compiler.loop_ir.positions.bounds import (
    UNKNOWN,
    Bounds,
    choices,
    combined,
    fits,
    hull,
    keeps,
    may_wrap,
    of_type,
    quotients,
    shortest,
)
from compiler_service.compiler.loop_ir.positions.data import PositionsFromData
from compiler_service.compiler.loop_ir.positions.linear import KnownFacts, is_sum, rows_of
from compiler_service.compiler.loop_ir.positions.scope import ConditionScope, Places, known_within
from compiler_service.compiler.loop_ir.positions.unproven import UnprovenPositionError
from compiler_service.compiler.loop_ir.text import expression_text, statement_head
from shared_ir.dtype import DType
from shared_ir.errors import ErrorCode
from shared_ir.expr import (
    Binary,
    BinaryOp,
    Cast,
    Const,
    Expr,
    Select,
    Var,
    binary,
    lift,
    maximum,
    substitute,
    variables,
    walk,
)
from shared_ir.expr.dim import Dim, as_dim, dim_text
from shared_ir.expr.polynomials import with_remainders
from shared_ir.expr.simplify import Simplifier

Numbers = Callable[[Buffer], "tuple[int, int] | None"]
"""The least and the largest element of an argument that is known when the function is compiled."""

_MOST_CHOICES = 4
"""So many choices within each other are told apart; of those inside, only what holds whichever is taken."""


def required_extents(function: Function, numbers: Numbers = lambda _: None) -> frozenset[tuple[Dim, Dim]]:
    """Extents, each with what it must be at least where ``function`` has tasks, for its accesses at positions from data to be inside.

    Args:
        function: before the loop passes, with an index for each axis.
        numbers: asked for arguments that give positions.

    Raises:
        IngotError: COMPILER_FAULT, an access at a position from data is not proven to be inside; ``node`` is the function, ``field`` the
            first line of the statement.
    """
    data = PositionsFromData()
    data.learn(function.body)
    if not data.is_position:
        return frozenset()
    proof = _Proof(function, data, numbers, data.simplifier())
    proof.learn()
    for statement, scope in proof.places:
        proof.statement(statement, scope)
    return frozenset(proof.required)


@dataclass
class _Proof:
    function: Function
    data: PositionsFromData
    numbers: Numbers
    simplifier: Simplifier
    """It takes variables for sizes, but those that are bound to something else."""
    where: Statement = field(default_factory=lambda: Block(()))
    required: set[tuple[Dim, Dim]] = field(default_factory=set)
    kept: dict[Buffer, Bounds] = field(default_factory=dict)
    copied: dict[Buffer, Buffer] = field(default_factory=dict)
    """Of a buffer that takes elements of one other alone, that one."""
    _bounds: dict[tuple[Expr, ConditionScope | None], Bounds] = field(default_factory=dict)
    _seen: set[tuple[Expr, ConditionScope | None]] = field(default_factory=set)
    _within: dict[tuple[ConditionScope | None, Expr, bool], ConditionScope | None] = field(default_factory=dict)
    _choices: dict[ConditionScope | None, int] = field(default_factory=dict)

    @cached_property
    def places(self) -> tuple[tuple[Statement, ConditionScope | None], ...]:
        task = self.function.task
        start = ConditionScope(task < lift(self.function.tasks), ConditionScope(task >= 0, None))
        return tuple(Places().of(self.function.body, start))

    # -- what is accessed, under which conditions

    def statement(self, statement: Statement, scope: ConditionScope | None) -> None:
        self.where = statement
        for expr in expressions_of(statement):
            self.expression(expr, scope)
        if isinstance(statement, Store):
            held = scope if statement.mask is None else known_within(scope, statement.mask)
            self.access(statement.buffer, statement.indices, held)

    def expression(self, expr: Expr, scope: ConditionScope | None) -> None:
        if not self.data.reads(expr) or self.is_seen(expr, scope):
            return
        self._seen.add((expr, scope))
        if isinstance(expr, Select):
            self.expression(expr.cond, scope)
            self.expression(expr.then, self.within(scope, expr.cond))
            self.expression(expr.otherwise, self.within(scope, expr.cond, holds=False))
            return
        if isinstance(expr, BufferLoad):
            self.access(expr.buffer, expr.indices, scope if expr.mask is None else self.within(scope, expr.mask))
        for child in expr.children():
            self.expression(child, scope)

    def is_seen(self, expr: Expr, scope: ConditionScope | None) -> bool:
        """Whether the accesses of ``expr`` were looked at here, or where less is known: a position may be made of choices between
        what others are made of, which are as many as there are ways through all of them."""
        outer = () if scope is None else (outer for _, outer in scope.facts())
        return (expr, scope) in self._seen or any((expr, less) in self._seen for less in outer)

    def within(self, scope: ConditionScope | None, cond: Expr, *, holds: bool = True) -> ConditionScope | None:
        """``scope`` and what a choice by ``cond`` says, unless it lies within many others."""
        key = (scope, cond, holds)
        if key not in self._within:
            choices = self._choices.get(scope, 0)
            found = known_within(scope, cond, holds=holds) if choices < _MOST_CHOICES else scope
            if found is not scope:
                self._choices[found] = choices + 1
            self._within[key] = found
        return self._within[key]

    def access(self, buffer: Buffer, indices: tuple[Expr, ...], scope: ConditionScope | None) -> None:
        for axis, (index, extent) in enumerate(zip(indices, buffer.shape, strict=True)):
            if self.data.decides(index) and not self.is_inside(index, lift(extent), scope):
                raise UnprovenPositionError(
                    ErrorCode.COMPILER_FAULT,
                    f"axis {axis} of {buffer.name} is accessed at a position from data that is not proven to be inside",
                    node=self.function.name,
                    field=statement_head(self.where),
                    expected=f"0 <= {expression_text(index)} < {dim_text(extent)}",
                    received="no such proof",
                )

    def is_inside(self, index: Expr, extent: Expr, scope: ConditionScope | None) -> bool:
        if isinstance(index, Select):  # each by its own bounds: those of both are many, and not all are looked at
            chosen, left = self.within(scope, index.cond), self.within(scope, index.cond, holds=False)
            return self.is_inside(index.then, extent, chosen) and self.is_inside(index.otherwise, extent, left)
        bounds = self.bounds(index, scope)
        if self.is_between(bounds, extent - 1):
            return True
        others = self.other_extents(extent, bounds)
        last: Expr = maximum(extent - 1, 0)
        if isinstance(extent, Var):  # where it is at least 1, it is one that is at least 0, plus 1
            last, other = extent, {extent: extent + 1}
            bounds = Bounds(*(tuple(substitute(e, other) for e in side) for side in bounds))
        if self.is_between(bounds, last):
            if not self.is_positive(extent, scope):
                self.required.add((as_dim(extent), 1))
            return True
        if self.is_inside_by_sums(index, extent, scope):
            return True
        self.required |= {(as_dim(extent), as_dim(other)) for other in others[:1]}
        return bool(others)

    def is_inside_by_sums(self, index: Expr, extent: Expr, scope: ConditionScope | None) -> bool:
        """Whether ``index`` is inside by all that is known here at once, as the tail of a block is that the run's size leaves."""
        if not self.is_exact(index, scope):
            return False
        rows = [row for fact, _ in (() if scope is None else scope.facts()) for row in self.rows(fact, scope)]
        for part in filter(self.is_opaque, walk(index)):
            bounds = self.bounds(part, scope)
            rows += [*(part - low for low in bounds.least), *(high - part for high in bounds.most)]
        known = KnownFacts(rows, self.simplifier)
        return known.proves(index) and known.proves(extent - 1 - index)

    def rows(self, fact: Expr, scope: ConditionScope | None) -> tuple[Expr, ...]:
        """What is at least 0 where ``fact`` holds."""
        assert isinstance(fact, Binary)
        is_known = fact.lhs.dtype is DType.INT64 and all(self.is_exact(side, scope) for side in fact.children())
        return rows_of(fact) if is_known else ()

    def is_opaque(self, expr: Expr) -> bool:
        """Whether an element decides ``expr`` in another way than as a part of a sum."""
        return self.data.decides(expr) and expr.dtype is DType.INT64 and not is_sum(expr)

    def is_exact(self, expr: Expr, scope: ConditionScope | None) -> bool:
        """Whether no sum in ``expr`` wraps."""
        if not (isinstance(expr, Binary) and self.data.decides(expr)):
            return True
        if not all(self.is_exact(side, scope) for side in expr.children()):
            return False
        return not is_sum(expr) or not may_wrap(expr.op, self.bounds(expr.lhs, scope), self.bounds(expr.rhs, scope))

    def other_extents(self, extent: Expr, bounds: Bounds) -> list[Expr]:
        """What ``extent`` must be at least for what has ``bounds`` to be inside, where that is said of other extents: definitions take
        for granted that some are equal."""
        if not any(self.is_natural(low) for low in bounds.least):
            return []
        found = [self.simplifier(_next(high)) for high in bounds.most if self.is_global(high)]
        own = variables(extent)
        return [e for e in found if own.isdisjoint(variables(e)) and not isinstance(e, Const)]

    def is_between(self, bounds: Bounds, last: Expr) -> bool:
        """Whether what has ``bounds`` is at least 0 and at most ``last``."""
        natural = any(self.is_natural(low) for low in bounds.least)
        return natural and any(self.is_natural(last - high) for high in bounds.most)

    def is_positive(self, extent: Expr, scope: ConditionScope | None) -> bool:
        """Whether ``extent`` was tested to be at least 1, or something within a range of it, or of a product with it, exists here."""
        if any(self.is_natural(low - 1) for low in self.told(extent, scope).least):
            return True
        for fact, _ in () if scope is None else scope.facts():
            for side in fact.children():
                bounds = self.bounds(side, scope)
                exists = any(self.is_natural(low) for low in bounds.least)
                if exists and any(self.needs(high, extent) for high in bounds.most):
                    return True
        return False

    def needs(self, number: Expr, extent: Expr) -> bool:
        """Whether ``extent`` is at least 1 where ``number`` is at least 0."""
        if self.is_natural(extent - 1 - number):
            return True
        terms = self.simplifier.polynomial(number + 1)
        return len(terms) == 1 and all(extent in atoms and factor > 0 for atoms, factor in terms.items())

    def is_natural(self, expr: Expr) -> bool:
        expr = self.simplifier(expr)
        low, _ = self.simplifier.interval(expr)
        if low is None:
            low, _ = self.simplifier.interval(self.simplifier(with_remainders(self.simplifier.polynomial(expr))))
        return low is not None and low >= 0

    # -- what the function's own stores keep

    def learn(self) -> None:
        """The bounds of buffers that the function writes, which all of its stores keep."""
        stores: dict[Buffer, list[tuple[Expr, ConditionScope | None]]] = {}
        for statement, scope in self.places:
            if isinstance(statement, Store) and statement.buffer.dtype.is_integer:
                stores.setdefault(statement.buffer, []).append((statement.value, scope))
        self.copied = {
            b: source for b, own in stores.items() if (source := _copied(b, [v for v, _ in own])) is not None
        }
        stores = {b: own for b, own in stores.items() if b not in self.copied}
        natural = set(stores)
        while True:  # the largest set of buffers none of which takes a negative number as long as none holds one
            self.assume({b: Bounds((lift(0),)) for b in natural})
            lost = {b for b in natural if not self.is_kept_natural(b, stores[b])}
            if not lost:
                break
            natural -= lost
        for buffer, own in stores.items():
            begun = Bounds((lift(0),)) if buffer in natural else UNKNOWN
            self.assume({**self.kept, buffer: begun})
            known = [self.bounds(e, s) for v, s in own for e in (v, *choices(v))]
            least = begun.least or self.held(buffer, own, [low for b in known for low in b.least], upper=False)
            self.assume({**self.kept, buffer: Bounds(least)})
            most = self.held(buffer, own, [high for b in known for high in b.most], upper=True)
            self.assume({**self.kept, buffer: Bounds(least, most)})

    def held(
        self, buffer: Buffer, stores: Sequence[tuple[Expr, ConditionScope | None]], ends: Sequence[Expr], *, upper: bool
    ) -> tuple[Expr, ...]:
        """Those of ``ends`` that no store of ``buffer`` passes as long as no element has."""
        begun, holding = self.kept, []
        for end in sorted({end for end in ends if self.is_global(end)}, key=expression_text):
            least = begun[buffer].least if upper else (end,)
            self.assume({**begun, buffer: Bounds(least, (end,) if upper else ())})
            stored = (self.bounds(value, scope) for value, scope in stores)
            if upper:
                holds = all(any(self.is_natural(end - high) for high in b.most) for b in stored)
            else:
                holds = all(any(self.is_natural(low - end) for low in b.least) for b in stored)
            holding += [end] if holds else []
        return tuple(holding)

    def assume(self, kept: dict[Buffer, Bounds]) -> None:
        self.kept = kept
        self._bounds.clear()

    def is_kept_natural(self, buffer: Buffer, stores: Sequence[tuple[Expr, ConditionScope | None]]) -> bool:
        """Whether no store makes an element of ``buffer`` negative. Adding 1 to one that began as a size does not wrap: no run takes so
        many steps."""
        others = [(value, scope) for value, scope in stores if not _counts(value, buffer)]
        bounds = [self.bounds(value, scope) for value, scope in others]
        if not all(any(self.is_natural(low) for low in b.least) for b in bounds):
            return False
        return len(others) == len(stores) or not any(may_wrap(BinaryOp.ADD, b, b) for b in bounds)

    def is_global(self, expr: Expr) -> bool:
        """Whether ``expr`` is the same for all tasks: what one stores, another may read."""
        return variables(expr) <= set(self.function.symbols)

    # -- bounds

    def bounds(self, expr: Expr, scope: ConditionScope | None) -> Bounds:
        """What is known of an expression of integers, as int64."""
        found = self._bounds.get((expr, scope))
        if found is None:
            itself = () if self.data.decides(expr) or expr.dtype is not DType.INT64 else (expr,)
            told, own = self.told(expr, scope), self.own(expr, scope)
            least, most = (*itself, *told.least, *own.least), (*itself, *told.most, *own.most)
            found = Bounds(*(shortest(map(self.simplifier, side)) for side in (least, most)))
            self._bounds[expr, scope] = found
        return found

    def told(self, expr: Expr, scope: ConditionScope | None) -> Bounds:
        """What the conditions say of ``expr`` itself."""
        least: list[Expr] = []
        most: list[Expr] = []
        told = () if scope is None or isinstance(expr, Const) else scope.comparisons(expr)
        for op, other, outer in told:
            known = self.bounds(other, outer)
            if op in (BinaryOp.LT, BinaryOp.LE, BinaryOp.EQ):
                most += [m - 1 if op is BinaryOp.LT else m for m in known.most]
            if op in (BinaryOp.GT, BinaryOp.GE, BinaryOp.EQ):
                least += [m + 1 if op is BinaryOp.GT else m for m in known.least]
        return Bounds(tuple(least), tuple(most))

    def own(self, expr: Expr, scope: ConditionScope | None) -> Bounds:
        """What follows from the operation of ``expr``."""
        match expr:
            case BufferLoad(buffer=buffer):
                return self.element(buffer)
            case Cast(x=x):
                known = self.bounds(x, scope)
                return known if keeps(x.dtype, expr.dtype) or fits(known, expr.dtype) else of_type(expr.dtype)
            case Select(cond=cond, then=then, otherwise=otherwise):
                return hull(
                    self.bounds(then, self.within(scope, cond)),
                    self.bounds(otherwise, self.within(scope, cond, holds=False)),
                )
            case Binary(op=op, lhs=lhs, rhs=rhs) if expr.dtype is DType.INT64:
                a, b = self.bounds(lhs, scope), self.bounds(rhs, scope)
                if op is BinaryOp.FLOOR_MOD and not self.data.decides(rhs):
                    return Bounds((lift(0),), (maximum(rhs - 1, 0),)) if self.is_natural(rhs) else UNKNOWN
                if self.data.decides(expr) and may_wrap(op, a, b):
                    return UNKNOWN
                if op in (BinaryOp.MUL, BinaryOp.SHL):
                    a, b = self.naturals(a), self.naturals(b)
                known = combined(op, a, b, rhs)
                if op is BinaryOp.FLOOR_DIV and not self.data.decides(rhs) and self.is_natural(rhs):
                    return known._replace(most=(*known.most, *quotients(a, rhs, self.simplifier)))
                return known
        return UNKNOWN

    def naturals(self, bounds: Bounds) -> Bounds:
        return bounds._replace(least=tuple(low for low in bounds.least if self.is_natural(low)))

    def element(self, buffer: Buffer) -> Bounds:
        buffer = self.copied.get(buffer, buffer)
        if buffer in self.kept:
            kept, own = self.kept[buffer], of_type(buffer.dtype)
            return Bounds((*kept.least, *own.least), (*kept.most, *own.most))
        known = self.numbers(buffer) if buffer.dtype.is_integer else None
        return of_type(buffer.dtype) if known is None else Bounds((lift(known[0]),), (lift(known[1]),))


def _copied(buffer: Buffer, values: Sequence[Expr]) -> Buffer | None:
    """The one other buffer whose elements all ``values`` are, if there is one."""
    sources = [v.buffer if isinstance(v, BufferLoad) and v.dtype is buffer.dtype else buffer for v in values]
    return sources[0] if len(set(sources)) == 1 and sources[0] is not buffer else None


def _counts(value: Expr, buffer: Buffer) -> bool:
    """Whether ``value`` is an element of ``buffer`` plus 1."""
    if not (isinstance(value, Binary) and value.op is BinaryOp.ADD and value.rhs == lift(1)):
        return False
    return isinstance(value.lhs, BufferLoad) and value.lhs.buffer is buffer


def _next(expr: Expr) -> Expr:
    """``expr + 1``"""
    if isinstance(expr, Binary) and expr.op in (BinaryOp.MIN, BinaryOp.MAX):
        return binary(expr.op, _next(expr.lhs), _next(expr.rhs))
    return expr + 1
