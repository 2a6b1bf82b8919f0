"""Rows that go through several stages in a pipeline: while one stage sweeps over a row, the next sweeps over the row before.

::

    for i in n: sum[i] = ..x[i]..                    for t in n + 2:
    for i in n: square[i] = ..x[i], sum[i]..    ->       for j in columns:
    for i in n: y[i] = ..x[i], square[i]..                   sum[t] = ..x[t, j]..
                                                             square[t - 1] = ..x[t - 1, j]..
                                                             y[t - 2, j] = ..x[t - 2, j]..

where a row that is none is left out. No stage then waits for the last operations of the one before it, a row is still in the
first-level cache when it is read again, and the cache below is asked for the next row while this one is computed and written.
This is software pipelining (Lam, "Software pipelining", PLDI 1988) of a loop over rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter

from compiler_service.compiler.loop_ir.ir import Allocate, Block, Buffer, For, ForKind, If, Let, Statement
from compiler_service.compiler.schedule.language.state import KernelStage, ScheduleState
from compiler_service.compiler.schedule.lowering.statements import block, guard
from compiler_service.compiler.tensor_expr.tensor import loads
from shared_ir.expr import Const, Expr, Scalar, Var, ceil_div, lift, logical_and
from shared_ir.expr.dim import Dim

Row = Callable[[Expr], Statement]
"""What computes one row, given its number."""


@dataclass(frozen=True)
class Turn:
    """Stages computed for the rows ``lag`` behind the first: the ``sweeps`` over a row, none of which needs another of them, then
    the ``others`` in their order; ``numbers`` are names for the rows of one turn."""

    lag: int
    numbers: Sequence[Var]
    sweeps: Sequence[Row]
    others: Sequence[Row]

    def row(self, number: Expr) -> Statement:
        return block(in_one_loop([sweep(number) for sweep in self.sweeps]), *(other(number) for other in self.others))


def sweeps(stage: KernelStage, stages: Sequence[KernelStage]) -> bool:
    """Whether ``stage`` goes over a row: it reduces, or it is the last of ``stages``; else it is one element for each row."""
    return stage.reduction is not None or stage is stages[-1]


def lags(state: ScheduleState, stages: Sequence[KernelStage]) -> Mapping[str, int]:
    """How many turns each of ``stages``, producers first, is behind the first: one more than what it reads where it sweeps over a
    row, as many where it is one element of the row."""
    found: dict[str, int] = {}
    for reader in stages:
        read = {s.name for ld in loads(reader.body) if (s := state.stage_of(ld.tensor)) is not None}
        more = int(sweeps(reader, stages))
        found[reader.name] = max((found[name] + more for name in read if name in found), default=0)
    return found


def staggered(turn: Var, turns: Sequence[Turn], extent: Dim) -> Statement:
    """The loop over the rows, as many in a turn as have numbers; every number is a variable of its own, so that no pass cuts the
    loop for the sake of its ends."""
    last, count = max(t.lag for t in turns), len(turns[0].numbers)
    body: Statement = If(
        _all_rows((turns[-1].numbers[0], turns[0].numbers[-1]), extent),
        in_one_loop([t.row(n) for t in turns for n in t.numbers]),
        block(*(_those_there(t, extent) for t in turns)),
    )
    for each in turns:
        for i, number in enumerate(each.numbers):
            body = Let(number, (turn - each.lag) * count + i, body)
    return For(turn, ceil_div(extent, count) + last, ForKind.SERIAL, body)


def _all_rows(numbers: Sequence[Var], extent: Dim) -> Expr:
    return logical_and(numbers[0] >= 0, numbers[-1] < lift(extent))


def _those_there(turn: Turn, extent: Dim) -> Statement:
    """The rows of a turn at the ends of the loop."""
    one_by_one = block(*(guard(_all_rows((n,), extent), turn.row(n)) for n in turn.numbers))
    if len(turn.numbers) == 1:
        return one_by_one
    return If(_all_rows(turn.numbers, extent), in_one_loop([turn.row(n) for n in turn.numbers]), one_by_one)


@dataclass(frozen=True)
class _Swept:
    """A statement with a loop in it: ``buffers`` live while what is ``before``, the loop and what is ``after`` run."""

    sweep: For
    buffers: tuple[Buffer, ...] = ()
    before: tuple[Statement, ...] = ()
    after: tuple[Statement, ...] = ()

    @property
    def turns(self) -> Scalar | None:
        return self.sweep.extent.value if isinstance(self.sweep.extent, Const) else None


def in_one_loop(statements: Sequence[Statement]) -> Statement:
    """Independent ``statements``: those without a loop, then the others with their first loops in one where all are as long."""
    swept = [(s, _swept(s)) for s in statements]
    alone, found = [s for s, inside in swept if inside is None], [inside for _, inside in swept if inside is not None]
    if len(found) < 2 or len({s.turns for s in found}) > 1 or found[0].turns is None:
        return block(*statements)
    first = found[0].sweep
    bodies = (s.sweep.body if s.sweep is first else Let(s.sweep.var, first.var, s.sweep.body) for s in found)
    before, after = ([each for s in found for each in part(s)] for part in (attrgetter("before"), attrgetter("after")))
    result = block(*alone, *before, replace(first, body=block(*bodies)), *after)
    for buffer in (b for s in found for b in s.buffers):
        result = Allocate(buffer, result)
    return result


def _swept(statement: Statement) -> _Swept | None:
    match statement:
        case For(kind=ForKind.SERIAL):
            return _Swept(statement)
        case Allocate(buffer=buffer, body=body):
            inside = _swept(body)
            return None if inside is None else replace(inside, buffers=(buffer, *inside.buffers))
        case Block(statements=parts):
            for i, part in enumerate(parts):
                if (inside := _swept(part)) is not None:
                    return replace(inside, before=(*parts[:i], *inside.before), after=(*inside.after, *parts[i + 1 :]))
    return None
