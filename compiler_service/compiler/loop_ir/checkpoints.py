"""Where a kernel looks whether its run is to end: what takes more steps than there is memory is stopped inside.

::

    for i in 0..d0:                    for i in 0..d0:
        for j in 0..d0:          ->        for j in 0..d0:
            acc = acc + x[i] * x[j]            acc = acc + x[i] * x[j]
                                           checkpoint

A loop looks once a round where it may go on for long and a round does enough work that looking is nothing beside it. Loops of
short rounds do not look, so the innermost ones stay as they are: they end with the memory that they go through, or with a
constant. Where neither bounds them they look at every thousandth round. The loop over tasks is one of them; the runtime looks
between some dozens of tasks as well.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

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
from shared_ir.expr import Binary, BinaryOp, Const, Expr, Var, equal, lift, variables, walk
from shared_ir.expr.simplify import Interval, Simplifier

_MUCH = 256
"""Operations beside which a look, two instructions and a branch, takes no time."""

_LONG = 10_000_000
"""Operations after which somebody may wait for an end: some milliseconds."""

_TASKS = 64
"""Tasks between which the runtime does not look."""

_ENDLESS = 100_000_000
"""Operations that may not go by without a look, however short the rounds that they are done in."""

_ROUNDS = 1024
"""Rounds between two looks of a loop whose rounds are short."""


def with_checkpoints(function: Function) -> Function:
    """The same function, stopped inside of what may take long; ``function`` is flat."""
    backed = frozenset(v for buffer in function.buffers for d in buffer.shape for v in variables(lift(d)))
    looks = _Looks(backed)
    looks.learn(function.task, lift(function.tasks))
    work = looks.statement(function.body)
    body = _looking(work.statement) if work.operations * _TASKS >= _LONG else work.statement
    return function if body is function.body else replace(function, body=body)


@dataclass(frozen=True)
class _Work:
    """A statement with its looks, and how many operations it takes; infinity where that is not known."""

    statement: Statement
    operations: float


@dataclass(frozen=True)
class _Looks:
    """Puts looks into statements.

    Attributes:
        backed: symbols that are sizes of buffers.
        ranges: of the variables around a statement.
    """

    backed: frozenset[Var]
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
        return _Work(found, _size(statement) + (max(inside) if isinstance(statement, If) else sum(inside)))

    def loop(self, loop: For) -> _Work:
        rounds = self.learn(loop.var, loop.extent)
        round_ = self.statement(loop.body)
        operations = rounds * round_.operations if rounds else 0
        body = round_.statement
        if operations >= _LONG and round_.operations >= _MUCH:
            body = _looking(body)
        elif operations >= _ENDLESS and not self.ends_with_memory(loop.extent):
            body = _looking(body, equal(Binary(BinaryOp.FLOOR_MOD, loop.var, Const(_ROUNDS)), _ROUNDS - 1))
        return _Work(with_substatements(loop, (body,)), operations)

    def ends_with_memory(self, extent: Expr) -> bool:
        """Whether a loop of this extent goes along an axis of a buffer, or along a part of one."""
        parts = list(walk(extent))
        symbols = {part for part in parts if isinstance(part, Var)}
        return bool(symbols & self.backed) and not any(isinstance(part, BufferLoad) for part in parts)


def _looking(body: Statement, when: Expr | None = None) -> Statement:
    """``body`` with a look at its end, in rounds ``when`` it is asked for; one is enough."""
    if isinstance(body, Block) and body.statements and isinstance(body.statements[-1], Checkpoint):
        return body
    return block((body, Checkpoint() if when is None else If(when, Checkpoint())))


def _size(statement: Statement) -> int:
    return sum(map(_operations, expressions_of(statement))) + 1


def _operations(expr: Expr) -> int:
    return sum(1 for node in walk(expr) if not isinstance(node, Const | Var))
