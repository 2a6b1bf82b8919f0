"""Rows that go through several stages in a pipeline: while one stage sweeps over a row, the next sweeps over the row before.

::

    for i in n: sum[i] = ..x[i]..                    for t in n + 2:
    for i in n: square[i] = ..x[i], sum[i]..    ->       if t < n:           sum[t] = ..x[t]..
    for i in n: y[i] = ..x[i], square[i]..               if 1 <= t < n + 1:  square[t - 1] = ..
                                                         if 2 <= t:          y[t - 2] = ..

No stage then waits for the last operations of the one before it, and a row is still in the first-level cache when it is read again.
This is software pipelining (Lam, "Software pipelining", PLDI 1988) of a loop over rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from compiler_service.loop_ir.ir import For, ForKind, Let, Statement
from compiler_service.schedule.state import Stage, State
from compiler_service.schedule.statements import block, guard
from compiler_service.tensor_expr.tensor import loads
from shared_ir.dim import Dim
from shared_ir.expr import Expr, Var, lift, logical_and

Row = Callable[[Expr], Statement]
"""What computes one row, given its number."""


@dataclass(frozen=True)
class Turn:
    """``rows`` are computed in this order, each for the row ``lag`` before the turn; ``number`` is a name for that."""

    lag: int
    number: Var
    rows: Sequence[Row]


def lags(state: State, stages: Sequence[Stage]) -> Mapping[str, int]:
    """How many rows each of ``stages``, producers first, is behind the first: one more than what it reads where it sweeps over a
    row (it reduces, or it is the last), as many where it is one element of the row."""
    found: dict[str, int] = {}
    for reader in stages:
        read = {s.name for ld in loads(reader.body) if (s := state.stage_of(ld.tensor)) is not None}
        sweeps = reader.reduction is not None or reader is stages[-1]
        found[reader.name] = max((found[name] + sweeps for name in read if name in found), default=0)
    return found


def staggered(turn: Var, turns: Sequence[Turn], extent: Dim) -> Statement:
    """The loop over the rows; every turn's number is a variable of its own, so that no pass cuts the loop for the sake of its ends."""
    last = max(t.lag for t in turns)
    body = []
    for each in turns:
        wanted = logical_and(each.number >= 0, each.number < lift(extent))
        rows = block(*(row(each.number) for row in each.rows))
        body.append(Let(each.number, turn - each.lag, guard(wanted, rows)))
    return For(turn, lift(extent) + last, ForKind.SERIAL, block(*body))
