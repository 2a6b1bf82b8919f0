"""Where a kernel looks whether its run is to end: what takes more steps than there is memory is stopped inside.

::

    for i in 0..d0:                    for i in 0..d0:
        for j in 0..d0:          ->        for j in 0..d0:
            acc = acc + x[i] * x[j]            acc = acc + x[i] * x[j]
                                           checkpoint

A loop looks once a round where it may go on for long and a round does enough work that looking is nothing beside it. Loops of
short rounds do not look, nor do loops within each other that together go once through the elements of a buffer: the innermost
ones stay as they are, and end with the memory that they go through, or with a constant. Where neither bounds them they look at
every thousandth round. The loop over tasks is one of them; the runtime looks between some dozens of tasks as well.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import or_

from compiler_service.compiler.loop_ir.ir import (
    Block,
    BufferLoad,
    Checkpoint,
    For,
    Function,
    If,
    Let,
    Statement,
    VectorVar,
    expressions_of,
    substatements,
)
from compiler_service.compiler.loop_ir.passes.rewrite import block, with_substatements
from shared_ir.dtype import DType
from shared_ir.expr import Binary, BinaryOp, Const, Expr, Var, equal, lift, walk
from shared_ir.expr.simplify import Interval, Simplifier

_OPERATIONS_PER_LOOK = 2048
"""Operations beside which a look, two instructions and a branch, takes no time."""

_LONG_OPERATIONS = 10_000_000
"""Operations after which somebody may wait for an end: some milliseconds."""

_TASKS_PER_LOOK = 64
"""Tasks between which the runtime does not look."""

_MOST_OPERATIONS_WITHOUT_LOOK = 100_000_000
"""Operations that may not go by without a look, however short the rounds that they are done in."""

_ROUNDS_PER_LOOK = 1024
"""Rounds between two looks of a loop whose rounds are short."""


def with_checkpoints(function: Function) -> Function:
    """The same function, stopped inside of what may take long; ``function`` is flat."""
    looks = _Looks(tuple(found for buffer in function.buffers for d in buffer.shape for found in _products(lift(d))))
    looks.learn(function.task, lift(function.tasks))
    work = looks.statement(function.body)
    is_long = bool(work.sizes) or work.operations * _TASKS_PER_LOOK >= _LONG_OPERATIONS
    body = _looking(work.statement) if is_long else work.statement
    return function if body is function.body else replace(function, body=body)


Sizes = Counter[str]
"""Variables whose product bounds how often something is done."""


@dataclass(frozen=True)
class _Work:
    """A statement with its looks, and how many operations it takes: so many for each round of loops of ``sizes`` within each other."""

    statement: Statement
    operations: float
    sizes: Sizes


@dataclass(frozen=True)
class _Looks:
    """Puts looks into statements.

    Attributes:
        memory: the sizes of each buffer.
        ranges: of the variables around a statement.
    """

    memory: tuple[Sizes, ...]
    ranges: dict[str, Interval] = field(default_factory=dict)

    def learn(self, var: Var, extent: Expr) -> float:
        """How many rounds the loop of ``var`` has at most, which is known of it from here on; infinity where no number says so."""
        _, most = Simplifier(self.ranges).interval(extent)
        self.ranges[var.name] = (0, None if most is None else most - 1)
        return math.inf if most is None else max(most, 0)

    def statement(self, statement: Statement) -> _Work:
        if isinstance(statement, Let):
            value = statement.value
            scalar = value.dtype is DType.INT64 and not isinstance(statement.var, VectorVar)
            self.ranges[statement.var.name] = Simplifier(self.ranges).interval(value) if scalar else (None, None)
        if isinstance(statement, For):
            return self.loop(statement)
        parts = [self.statement(part) for part in substatements(statement)]
        found = with_substatements(statement, tuple(part.statement for part in parts))
        inside = [part.operations for part in parts]
        operations = _size(statement) + (max(inside) if isinstance(statement, If) else sum(inside))
        return _Work(found, operations, reduce(or_, (part.sizes for part in parts), Counter()))

    def loop(self, loop: For) -> _Work:
        rounds = self.learn(loop.var, loop.extent)
        round_ = self.statement(loop.body)
        own = self.sizes(loop.extent) if math.isinf(rounds) else Counter[str]()
        sizes = round_.sizes + own
        operations = round_.operations * (1 if own else rounds)
        body = round_.statement
        ends = bool(sizes) and operations <= 2 * _OPERATIONS_PER_LOOK and any(sizes <= memory for memory in self.memory)
        if sizes or operations >= _LONG_OPERATIONS:
            if round_.operations >= _OPERATIONS_PER_LOOK or (round_.sizes and not ends):
                body = _looking(body)
            elif not ends and (sizes or operations >= _MOST_OPERATIONS_WITHOUT_LOOK):
                body = _looking(
                    body, equal(Binary(BinaryOp.FLOOR_MOD, loop.var, Const(_ROUNDS_PER_LOOK)), _ROUNDS_PER_LOOK - 1)
                )
        return _Work(with_substatements(loop, (body,)), operations, sizes)

    def sizes(self, extent: Expr) -> Sizes:
        """The variables of an extent that nothing bounds; what an element decides is one that no memory has."""
        parts = list(walk(extent))
        if any(isinstance(part, BufferLoad) for part in parts):
            return Counter([_ELEMENT])
        variables = {part.name for part in parts if isinstance(part, Var)}
        return Counter({name for name in variables if self.ranges.get(name, (0, None))[1] is None} or [_ELEMENT])


_ELEMENT = "[]"


def _products(extent: Expr) -> Iterator[Sizes]:
    """The variables that are multiplied in each term of ``extent``."""
    for monomial in Simplifier({}).polynomial(extent):
        yield Counter(atom.name for atom in monomial if isinstance(atom, Var))


def _looking(body: Statement, when: Expr | None = None) -> Statement:
    """``body`` with a look at its end, in rounds ``when`` it is asked for; one is enough."""
    if isinstance(body, Block) and body.statements and isinstance(body.statements[-1], Checkpoint):
        return body
    return block((body, Checkpoint() if when is None else If(when, Checkpoint())))


def _size(statement: Statement) -> int:
    return sum(map(_operations, expressions_of(statement))) + 1


def _operations(expr: Expr) -> int:
    return sum(1 for node in walk(expr) if not isinstance(node, Const | Var))
