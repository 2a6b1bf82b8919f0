"""Softmax of scores that come a block at a time: a running maximum, powers, and their running sum.

Keys that do not exist have no part in maxima and sums. A block in which a row has no key (all its scores are minus infinity) adds
nothing; a row without any key becomes NaN, as in a softmax of it.
"""

from __future__ import annotations

from collections.abc import Callable

from compiler_service.compiler.loop_ir.ir import Buffer, BufferLoad, Statement, Store
from compiler_service.compiler.schedule.algorithms.attention.context import (
    F32,
    BlockContext,
    KeyBlock,
    Rows,
    accumulate,
)
from compiler_service.compiler.schedule.lowering.statements import block
from compiler_service.compiler.tensor_expr.scalar import exp
from compiler_service.compiler.tensor_expr.tensor import Load
from shared_ir.expr import Expr, ceil_div, equal, lift, logical_and, maximum, select
from shared_ir.expr.dim import Dim, as_dim

_LEAST = float("-inf")


def begin(context: BlockContext, rows: Dim) -> Statement:
    """No key has been seen."""
    memory = context.memory

    def clear(i: Expr) -> Statement:
        return block(
            Store(memory.largest, (i,), lift(_LEAST, F32)),
            Store(memory.total, (i,), lift(0.0, F32)),
        )

    return _each_row(context, rows, clear)


def weigh(context: BlockContext, here: Rows, keys: KeyBlock) -> Statement:
    """Scores of a block become powers; ``factor`` says by what sums of the blocks before shrink."""
    return block(
        _find_largest(context, here, keys),
        _each_row(context, here.count, lambda i: _move_on(context, i)),
        _exponentiate(context, here, keys),
        _each_row(context, here.count, lambda i: _add_up(context, i)),
    )


def _each_row(context: BlockContext, rows: Dim, body: Callable[[Expr], Statement]) -> Statement:
    """Every row, in vectors; the last one may go on behind the end."""
    loops = context.loops
    count = as_dim(ceil_div(rows, loops.width))
    return loops.each("rows", count, lambda v: loops.vector(lambda lane: body(v * loops.width + lane)))


def _find_largest(context: BlockContext, here: Rows, keys: KeyBlock) -> Statement:
    """Scores take their final form; ``part[m] = max over j of scores[m][j]``."""
    memory, attention, loops = context.memory, context.attention, context.loops

    def row(r: Expr) -> Statement:
        def element(found: Buffer, lane: Expr, j: Expr, wanted: Expr | None) -> Statement:
            at = BufferLoad(memory.scores, (r, j))
            places = {**here.heads, **context.row(here, r), attention.keys.var: keys.first + j}
            score = context.read(attention.score, places, wanted, {attention.raw: at})
            old = BufferLoad(found, (lane,))
            larger = at > old if wanted is None else logical_and(at > old, wanted)
            final = () if isinstance(attention.score, Load) else (Store(memory.scores, (r, j), score),)
            return block(*final, Store(found, (lane,), select(larger, at, old)))

        return loops.reduced(keys.count, _LEAST, element, maximum, (memory.part, r))

    return loops.each("row", here.count, row)


def _move_on(context: BlockContext, i: Expr) -> Statement:
    memory = context.memory
    part, shift, largest = (BufferLoad(b, (i,)) for b in (memory.part, memory.shift, memory.largest))
    known = Store(memory.shift, (i,), select(equal(part, _LEAST), 0.0, part))
    if context.single:
        return known
    return block(
        Store(memory.part, (i,), select(part > largest, part, largest)),
        known,
        Store(memory.factor, (i,), exp(largest - shift)),
        Store(memory.largest, (i,), part),
    )


def _exponentiate(context: BlockContext, here: Rows, keys: KeyBlock) -> Statement:
    """``scores[m][j] = exp(scores[m][j] - shift[m])`` and ``part[m]``, their sum."""
    memory, loops = context.memory, context.loops

    def row(r: Expr) -> Statement:
        def element(found: Buffer, lane: Expr, j: Expr, wanted: Expr | None) -> Statement:
            at = BufferLoad(memory.scores, (r, j))
            power = exp(at - BufferLoad(memory.shift, (r,)))
            counted = at if wanted is None else select(wanted, at, 0.0)
            return block(Store(memory.scores, (r, j), power), accumulate(found, (lane,), counted))

        return loops.reduced(keys.count, 0.0, element, lambda a, b: a + b, (memory.part, r))

    return loops.each("row", here.count, row)


def _add_up(context: BlockContext, i: Expr) -> Statement:
    memory = context.memory
    total, part = BufferLoad(memory.total, (i,)), BufferLoad(memory.part, (i,))
    new = part if context.single else total * BufferLoad(memory.factor, (i,)) + part
    return Store(memory.total, (i,), new)
