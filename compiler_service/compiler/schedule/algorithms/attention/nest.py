"""The loop nest of attention: for a block of rows of one head, blocks of keys one after the other, in the caches of one core."""

from __future__ import annotations

from collections.abc import Sequence

from compiler_service.compiler.loop_ir.ir import Block, BufferLoad, Function, Let, Statement, Store
from compiler_service.compiler.schedule.algorithms.attention.context import (
    F32,
    BlockContext,
    BlockSizes,
    KeyBlock,
    Rows,
)
from compiler_service.compiler.schedule.algorithms.attention.match import Attention
from compiler_service.compiler.schedule.algorithms.attention.products import arrange_keys, mix_values, multiply_keys
from compiler_service.compiler.schedule.algorithms.attention.softmax import begin, weigh
from compiler_service.compiler.schedule.language.state import ScheduleState
from compiler_service.compiler.schedule.lowering.statements import block, guard
from compiler_service.compiler.tensor_expr.scalar import reciprocal
from compiler_service.compiler.tensor_expr.tensor import Tensor
from shared_ir.expr import Expr, Var, ceil_div, equal, lift, minimum, select
from shared_ir.expr.dim import Dim, as_dim, product
from shared_ir.machine.target import Target


def attention_function(
    name: str,
    attention: Attention,
    step: BlockSizes,
    state: ScheduleState,
    arguments: Sequence[Tensor],
    symbols: Sequence[str],
    target: Target,
) -> Function:
    """The kernel that computes the output of ``state``, whose ``attention`` is tiled as ``step`` says."""
    context = BlockContext(attention, step, state, arguments, target)
    return _Nest(context, state).function(name, symbols)


class _Nest:
    def __init__(self, context: BlockContext, state: ScheduleState) -> None:
        self._context, self._state = context, state
        self._loops, self._simplify = context.loops, context.loops.simplify

    def function(self, name: str, symbols: Sequence[str]) -> Function:
        context, size = self._context, self._context.step.units
        blocks = as_dim(ceil_div(context.rows, context.step.rows))
        extents = [*(a.extent for a in context.attention.outer), blocks]
        units = product(extents)
        task = self._loops.fresh("task", 0, None)
        here, lets = self._part(units, size, lift(task) * size)
        body = self._loops.each("unit", here, lambda unit: self._unit(self._simplify(task * size + unit), extents))
        body = context.memory.allocated(_named(lets, body))
        buffers = (*context.arguments.values(), context.output)
        tasks = as_dim(ceil_div(units, size))
        return Function(name, buffers, tuple(Var(n) for n in symbols), task, tasks, body)

    def _part(self, extent: Dim, size: int, first: Expr) -> tuple[Dim, list[tuple[Var, Expr]]]:
        """How many of ``size`` elements from ``first`` there are, and the variable that says so where it is not constant."""
        if isinstance(extent, int) and (extent % size == 0 or extent <= size):
            return min(extent, size), []
        if size == 1:
            return 1, []
        var = self._loops.fresh("count", 1, size)
        return var, [(var, self._simplify(minimum(size, lift(extent) - first)))]

    def _unit(self, unit: Expr, extents: Sequence[Dim]) -> Statement:
        """One block of rows of one head; ``unit`` counts them, the last of ``extents`` fastest."""
        context = self._context
        lets: list[tuple[Var, Expr]] = []
        places: list[Expr] = []
        for i, extent in enumerate(extents):
            if extent == 1:
                places.append(lift(0))
                continue
            inner = product(extents[i + 1 :])
            value = unit // lift(inner) if inner != 1 else unit
            var = self._loops.fresh("place", 0, extent - 1 if isinstance(extent, int) else None)
            lets.append((var, self._simplify(value % lift(extent) if i > 0 else value)))
            places.append(var)
        *outer, chunk = places
        heads = {a.var: p for a, p in zip(context.attention.outer, outer, strict=True)}
        first = self._simplify(chunk * context.step.rows)
        count, more = self._part(context.rows, context.step.rows, first)
        return _named([*lets, *more], self._rows(Rows(heads, first, count)))

    def _rows(self, here: Rows) -> Statement:
        keys, size = self._context.attention.keys.extent, self._context.step.keys
        if self._context.single:
            return block(self._block(here, KeyBlock(lift(0), keys)), self._finish(here))
        full = as_dim(lift(keys) // size)
        return block(
            begin(self._context, here.count),
            self._clear(here),
            self._loops.each("block", full, lambda b: self._block(here, KeyBlock(self._simplify(b * size), size))),
            self._last_block(here, as_dim(lift(full) * size)),
            self._finish(here),
        )

    def _last_block(self, here: Rows, done: Dim) -> Statement:
        """The keys that fill no whole block."""
        keys, size = self._context.attention.keys.extent, self._context.step.keys
        if isinstance(keys, int):
            return self._block(here, KeyBlock(lift(done), keys % size)) if keys % size else Block(())
        left = self._loops.fresh("left", 0, size - 1)
        body = guard(left > 0, self._block(here, KeyBlock(lift(done), left)))
        return Let(left, self._simplify(lift(keys) % size), body)

    def _block(self, here: Rows, keys: KeyBlock) -> Statement:
        return block(
            arrange_keys(self._context, here, keys),
            multiply_keys(self._context, here, keys),
            weigh(self._context, here, keys),
            mix_values(self._context, here, keys),
        )

    def _clear(self, here: Rows) -> Statement:
        sums, width = self._context.memory.sums, self._context.column_width
        count = sums.shape[1]

        def row(r: Expr) -> Statement:
            return self._loops.along(count, lambda _, n, __: Store(sums, (r, n), lift(0.0, F32)), width=width)

        return self._loops.each("row", here.count, row)

    def _finish(self, here: Rows) -> Statement:
        """The output, with what it computes from the sums."""
        context, memory, mixed = self._context, self._context.memory, self._context.attention.mixed
        output = self._state.output
        own = {inner.name: outer for inner, outer in zip(mixed.compute.axes, output.compute.axes, strict=True)}
        columns = context.attention.columns

        def row(r: Expr) -> Statement:
            total = BufferLoad(memory.total, (r,))

            def element(_: Expr, n: Expr, wanted: Expr | None) -> Statement:
                inner = {**here.heads, **context.row(here, r, exact=True), columns.var: n}
                places = {own[a.name].var: inner[a.var] for a in mixed.compute.axes}
                known = {mixed.tensor: self._divided(BufferLoad(memory.sums, (r, n)), total)}
                value = context.read(output.body, places, wanted, known)
                at = tuple(self._simplify(places[a.var]) for a in output.compute.axes)
                return Store(context.output, at, value, wanted)

            return self._loops.along(context.columns, element, width=context.column_width)

        return self._loops.each("row", here.count, row)

    def _divided(self, added: Expr, total: Expr) -> Expr:
        """A weighted sum by the sum of its weights, or what is safe: 0 for NaN, and for weights of which none counts."""
        if not self._context.attention.safe:
            return added * reciprocal(total)
        known = added * select(equal(total, 0.0), 0.0, reciprocal(total))
        return select(equal(total, total), known, 0.0)


def _named(lets: Sequence[tuple[Var, Expr]], body: Statement) -> Statement:
    for var, value in reversed(lets):
        body = Let(var, value, body)
    return body
