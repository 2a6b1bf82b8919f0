"""Lowering: tensors + schedule -> loop IR.

The output's nest is built from outside in. When a loop opens, the stages attached to it are computed for the region that the
loops inside will read (:mod:`ranges`), then the nest goes on. A reduction stage is an initialisation nest over its spatial
loops followed by an update nest over all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from compiler_service.compiler.loop_ir.ir import (
    Allocate,
    Buffer,
    BufferLoad,
    BufferScope,
    For,
    ForKind,
    Function,
    If,
    Let,
    Statement,
    Store,
)
from compiler_service.compiler.schedule.language.interior import interior
from compiler_service.compiler.schedule.language.state import (
    KernelStage,
    LoopKind,
    ScheduleState,
    StageLoop,
)
from compiler_service.compiler.schedule.language.steps import ROOT
from compiler_service.compiler.schedule.lowering.around import Around
from compiler_service.compiler.schedule.lowering.fused import fused_loop, within_limits
from compiler_service.compiler.schedule.lowering.pieces import (
    Piece,
    halvings,
    lanes_of_sum,
    overlapping,
    peeled,
    piece_range,
    pieces,
    smaller_vectors,
)
from compiler_service.compiler.schedule.lowering.ranges import Range, Ranges, Regions, whole
from compiler_service.compiler.schedule.lowering.room import BufferSizing
from compiler_service.compiler.schedule.lowering.stagger import Turn, lags, staggered, sweeps
from compiler_service.compiler.schedule.lowering.statements import block, guard
from compiler_service.compiler.schedule.lowering.values import Local, Locals, Values, memory_order
from compiler_service.compiler.tensor_expr.tensor import ReduceOp, Tensor, identity_of
from shared_ir.expr import BinaryOp, Const, Expr, Var, binary, cast, lift, select
from shared_ir.expr import ceil_div as expr_ceil_div
from shared_ir.expr.dim import Dim, as_dim, product
from shared_ir.expr.simplify import Interval, Simplifier
from shared_ir.machine.target import Target

_COMBINE = {
    ReduceOp.SUM: BinaryOp.ADD,
    ReduceOp.PROD: BinaryOp.MUL,
    ReduceOp.MIN: BinaryOp.MIN,
    ReduceOp.MAX: BinaryOp.MAX,
    ReduceOp.MAX_NUMBER: BinaryOp.MAX_NUMBER,
    ReduceOp.AND: BinaryOp.AND,
    ReduceOp.OR: BinaryOp.OR,
}
_FOR = {
    LoopKind.SERIAL: ForKind.SERIAL,
    LoopKind.UNROLLED: ForKind.UNROLLED,
    LoopKind.VECTORIZED: ForKind.VECTORIZED,
}


Leaf = Callable[[Ranges, Locals], Statement]
Part = Callable[[Ranges], Statement]
Body = Callable[[Piece, Expr | None], Statement]


class Lowering:
    """The nest of one kernel; see :func:`lower`."""

    def __init__(self, state: ScheduleState, arguments: Sequence[Tensor], target: Target) -> None:
        self._state = state
        self._target = target
        self._ranges: dict[str, Interval] = {}
        self._simplify = Simplifier(self._ranges)
        self._regions = Regions(state, self._simplify)
        self._count = 0
        self._values = Values(state, arguments, target, self._simplify)
        self._room = BufferSizing(state, target, self._simplify)
        self._output = self._values.output
        self._around = Around(state, self._simplify, self._regions, self._values, self._named)

    # -- the function

    def function(self, name: str, symbols: Sequence[str]) -> Function:
        stage = self._state.output
        task = Var("task.0")
        parallel = tuple(o for o in stage.loops if o.kind is LoopKind.PARALLEL)
        counts = [self._tiles(stage, o) for o in parallel]
        self._ranges[task.name] = (0, None)
        indices, lets = self._decode(task, parallel, counts)

        def output(ranges: Ranges, local: Locals) -> Statement:
            origin = tuple(lift(0) for _ in stage.compute.axes)
            return self._stage(stage, ranges, local, self._output, origin, indices)

        body = self._attached(stage, ROOT, whole(stage), {}, output)
        for var, value in reversed(lets):
            body = Let(var, value, body)
        buffers = (*self._values.arguments.values(), self._output)
        return Function(name, buffers, tuple(Var(n) for n in symbols), task, product(counts), body)

    def _tiles(self, stage: KernelStage, loop: StageLoop) -> Dim:
        extents = {a.name: a.extent for a in stage.compute.axes}
        return product(as_dim(expr_ceil_div(extents[part.axis], part.step)) for part in loop.advanced)

    def _decode(
        self, task: Var, loops: Sequence[StageLoop], counts: Sequence[Dim]
    ) -> tuple[dict[str, Expr], list[tuple[Var, Expr]]]:
        """Tile numbers of the parallel loops from the task number, the last loop fastest."""
        indices: dict[str, Expr] = {}
        lets: list[tuple[Var, Expr]] = []
        for i, loop in enumerate(loops):
            inner = product(counts[i + 1 :])
            value: Expr = task // lift(inner) if inner != 1 else task
            if i > 0:
                value = value % lift(counts[i])
            if counts[i] == 1:
                indices[loop.name] = lift(0)
                continue
            var = self._fresh(loop.axis, counts[i])
            lets.append((var, value))
            indices[loop.name] = var
        return indices, lets

    def _fresh(self, base: str, extent: Dim) -> Var:
        return self._named(base, (0, extent - 1 if isinstance(extent, int) else self._upper(extent)))

    def _named(self, base: str, values: Interval) -> Var:
        """A new variable with these values."""
        self._count += 1
        var = Var(f"{base}.{self._count}")
        self._ranges[var.name] = values
        return var

    def _upper(self, extent: Expr) -> int | None:
        high = self._simplify.interval(extent)[1]
        return None if high is None else high - 1

    # -- stages

    def _stage(
        self,
        stage: KernelStage,
        ranges: Ranges,
        local: Locals,
        buffer: Buffer,
        origin: tuple[Expr, ...],
        tasks: Mapping[str, Expr] | None = None,
    ) -> Statement:
        """The nest that computes ``stage`` over ``ranges`` into ``buffer`` (whose element 0 is ``origin``)."""
        if stage.reduction is None:
            leaf = self._store_leaf(stage, buffer, origin)
            return self._nest(stage, stage.loops, ranges, local, leaf, tasks or {})
        if any(o.kind is LoopKind.VECTORIZED and stage.reduces(o) for o in stage.loops):
            return self._vector_reduction(stage, ranges, local, buffer, origin, tasks or {})
        return self._reduction(stage, ranges, local, buffer, origin, tasks or {})

    def _around_the_sum(self, stage: KernelStage) -> tuple[tuple[StageLoop, ...], tuple[StageLoop, ...]]:
        """The loops outside of the first one over a reduced axis, and the others."""
        first = next(i for i, o in enumerate(stage.loops) if stage.reduces(o))
        return stage.loops[:first], stage.loops[first:]

    def _store_leaf(self, stage: KernelStage, buffer: Buffer, origin: tuple[Expr, ...]) -> Leaf:
        def leaf(ranges: Ranges, local: Locals) -> Statement:
            return self._store(stage, buffer, origin, ranges, self._values.value(stage, ranges, local))

        return leaf

    def _store(
        self, stage: KernelStage, buffer: Buffer, origin: tuple[Expr, ...], ranges: Ranges, value: Expr
    ) -> Store:
        mask = self._values.mask(stage, ranges) if buffer.scope is BufferScope.ARGUMENT else None
        return Store(buffer, self._values.element(stage, buffer, origin, ranges), cast(value, buffer.dtype), mask)

    def _reduction(
        self,
        stage: KernelStage,
        ranges: Ranges,
        local: Locals,
        buffer: Buffer,
        origin: tuple[Expr, ...],
        tasks: Mapping[str, Expr],
    ) -> Statement:
        """``acc[i] = identity`` over the spatial loops, then ``acc[i] = acc[i] op body`` over all of them.

        Spatial loops outside the first reduction loop enclose both.
        """
        assert stage.reduction is not None
        op, dtype = stage.reduction.op, stage.tensor.dtype
        outer, inner = self._around_the_sum(stage)
        spatial = tuple(o for o in inner if not stage.reduces(o))

        def start(here: Ranges, _: Locals) -> Statement:
            return self._store(stage, buffer, origin, here, lift(identity_of(op, dtype), dtype))

        def update(here: Ranges, inside: Locals) -> Statement:
            mask = self._values.mask(stage, here) if buffer.scope is BufferScope.ARGUMENT else None
            at = self._values.element(stage, buffer, origin, here)
            total = binary(_COMBINE[op], BufferLoad(buffer, at, mask), self._values.value(stage, here, inside))
            return Store(buffer, at, total, mask)

        def both(here: Ranges, inside: Locals) -> Statement:
            return block(
                self._nest(stage, spatial, here, inside, start, {}, attach=False),
                self._nest(stage, inner, here, inside, update, {}),
            )

        return self._nest(stage, outer, ranges, local, both, tasks)

    def _vector_reduction(
        self,
        stage: KernelStage,
        ranges: Ranges,
        local: Locals,
        buffer: Buffer,
        origin: tuple[Expr, ...],
        tasks: Mapping[str, Expr],
    ) -> Statement:
        """A reduction whose lanes accumulate apart: ``lane[t] op= body`` over the loops, then ``acc op= lane[t]``.

        Its spatial loops must be outside; the reduced axis is tiled by a constant.
        """
        assert stage.reduction is not None
        op, dtype = stage.reduction.op, stage.tensor.dtype
        outer, inner = self._around_the_sum(stage)
        axis, tile, lanes = lanes_of_sum(stage, inner)
        lane_buffer = Buffer(f"{stage.name}_lanes", dtype, (tile,), BufferScope.STACK)
        identity = lift(identity_of(op, dtype), dtype)

        def update(here: Ranges, inside: Locals) -> Statement:
            reduced = here[axis]
            assert reduced.origin is not None
            lane = (self._simplify(reduced.base - reduced.origin),)
            value = self._values.value(stage, here, inside)
            if reduced.valid is not None:
                value = select(reduced.valid, value, identity)
            return Store(lane_buffer, lane, binary(_COMBINE[op], BufferLoad(lane_buffer, lane), value))

        def each_lane(make: Callable[[Expr], Statement], count: int = tile) -> Statement:
            vector = self._fresh("lane", count // lanes)
            lane = self._fresh("lane", lanes)
            body = For(lane, lift(lanes), ForKind.VECTORIZED, make(vector * lanes + lane))
            return For(vector, lift(count // lanes), ForKind.UNROLLED, body)

        def total(here: Ranges, inside: Locals) -> Statement:
            at = self._values.element(stage, buffer, origin, here)

            def combine(lane: Expr) -> Statement:
                return Store(buffer, at, binary(_COMBINE[op], BufferLoad(buffer, at), BufferLoad(lane_buffer, (lane,))))

            def onto(distance: int) -> Callable[[Expr], Statement]:
                def store(lane: Expr) -> Statement:
                    here, there = (BufferLoad(lane_buffer, (i,)) for i in (lane, lane + distance))
                    return Store(lane_buffer, (lane,), binary(_COMBINE[op], here, there))

                return store

            return Allocate(
                lane_buffer,
                block(
                    each_lane(lambda lane: Store(lane_buffer, (lane,), identity)),
                    self._nest(stage, inner, here, inside, update, {}, lane_axis=(axis, tile)),
                    *(each_lane(onto(distance), size) for size, distance in halvings(tile, lanes)),
                    Store(buffer, at, identity),
                    each_lane(combine, lanes),
                ),
            )

        return self._nest(stage, outer, ranges, local, total, tasks)

    def _cover(self, stage: KernelStage, loop: StageLoop, extent: Dim) -> Iterator[Piece]:
        at = next(i for i, other in enumerate(stage.loops) if loop in other.advanced)
        rest = stage.loops[at + 1 :]
        if loop.overlap and isinstance(extent, int) and extent > loop.step:
            return overlapping(loop, extent)
        if not loop.peel:
            return pieces(loop, rest, extent, self._target.masked, smaller_vectors(self._state, stage, loop, rest))
        low, high = interior(self._state, stage, loop.axis, self._simplify)
        return peeled(loop, extent, low, high)

    # -- loops

    def _nest(
        self,
        stage: KernelStage,
        loops: tuple[StageLoop, ...],
        ranges: Ranges,
        local: Locals,
        leaf: Leaf,
        tasks: Mapping[str, Expr],
        attach: bool = True,
        lane_axis: tuple[str, int] | None = None,
    ) -> Statement:
        """The loops, outermost first, with attached stages computed where their loop opens, around ``leaf``."""
        if not loops:
            return leaf(ranges, local)
        loop, rest = loops[0], loops[1:]

        def deeper(part: Ranges, more: Locals) -> Statement:
            return self._nest(stage, rest, part, more, leaf, tasks, attach, lane_axis)

        def opened(part: Ranges) -> Statement:
            return self._attached(stage, loop.name, part, local, deeper) if attach else deeper(part, local)

        if loop.parts:
            standing = {part.axis: self._read(stage, part.axis, ranges) for part in loop.parts}
            covers = [list(self._cover(stage, part, standing[part.axis].extent)) for part in loop.parts]

            def placed(places: Mapping[str, tuple[Piece, Expr]]) -> Statement:
                at = {a: self._standing(loop, standing[a], *p, None) for a, p in places.items()}
                return within_limits(loop, at, self._simplify, opened({**ranges, **at}))

            return fused_loop(loop, covers, self._fresh, placed, tasks.get(loop.name))
        here = self._read(stage, loop.axis, ranges)
        if loop.guarded and here.limit is None:
            here = replace(here, limit=lift(here.extent))

        def inside(piece: Piece, index: Expr | None) -> Statement:
            left, inner = self._named_limit(loop, self._standing(loop, here, piece, index, lane_axis))
            at = {**ranges, loop.axis: inner}
            body = self._around.turn(stage, loop, at, opened(at))
            return body if left is None else Let(left[0], left[1], body)

        cover = list(self._cover(stage, loop, here.extent))
        if loop.name in tasks:
            return self._task_pieces(loop, cover, tasks[loop.name], inside)
        return block(*(self._serial_piece(loop, p, here, inside) for p in cover))

    def _standing(
        self, loop: StageLoop, here: Range, piece: Piece, index: Expr | None, lane_axis: tuple[str, int] | None
    ) -> Range:
        """Where the axis of ``loop`` stands in turn ``index`` of ``piece``."""
        inner = piece_range(piece, here, index)
        inner = replace(inner, base=self._simplify(inner.base))
        if lane_axis == (loop.axis, loop.step):
            inner = replace(inner, origin=inner.base)
        if loop.step == 1 and loop.kind is LoopKind.VECTORIZED and here.limit is not None and index is not None:
            most = int(here.limit.value) if isinstance(here.limit, Const) else None
            wanted = (index.name, most) if isinstance(index, Var) and most is not None else None
            inner = replace(inner, valid=index < here.limit, lanes=wanted)
        return inner

    def _read(self, stage: KernelStage, axis: str, ranges: Ranges) -> Range:
        """Where ``axis`` stands, without its last element where that is known not to be read."""
        here = ranges[axis]
        extents = {a.name: a.extent for a in stage.compute.all_axes}
        for other in (second for first, second in stage.unread if first == axis):
            at, last = ranges[other], as_dim(lift(extents[other]) - 1)
            if (at.extent, at.base, here.extent) == (1, lift(last), extents[axis]) and isinstance(here.extent, int):
                here = replace(here, extent=here.extent - 1)
        return here

    def _named_limit(self, loop: StageLoop, inner: Range) -> tuple[tuple[Var, Expr] | None, Range]:
        """The number of wanted elements of a guarded tile as a variable: what depends on it is asked tile by tile, and no pass
        cuts the loop for its sake."""
        if not loop.guarded or inner.limit is None:
            return None, inner
        var = self._named("left", (1, None))
        return (var, self._simplify(inner.limit)), replace(inner, limit=var)

    def _serial_piece(self, loop: StageLoop, piece: Piece, here: Range, inside: Body) -> Statement:
        element = loop.step == 1 and loop.kind is not LoopKind.VECTORIZED
        if piece.count == 1 and not (loop.kind is LoopKind.VECTORIZED and here.limit is not None):
            body = inside(piece, None)
            if element and here.limit is not None:  # the one element of a piece behind the limit
                body = guard(self._simplify(lift(0) < here.limit), body)
        else:
            kind = _FOR[loop.kind]
            if not isinstance(piece.count, int) and kind is not ForKind.SERIAL:
                kind = ForKind.SERIAL  # a tail of unknown length
            var = self._fresh(loop.axis, piece.count)
            each = inside(piece, var)
            if element and here.limit is not None:
                each = If(var < here.limit, each)  # a masked tile, walked element by element
            body = For(var, lift(piece.count), kind, each)
        return body if piece.cond is None else guard(self._simplify(piece.cond), body)

    def _task_pieces(self, loop: StageLoop, cover: Sequence[Piece], index: Expr, inside: Body) -> Statement:
        """The tile number comes from the task: full tiles first, the tail pieces together are the last task."""
        full, tails = (cover[0], cover[1:]) if cover[0].size == loop.step else (None, cover)
        if full is not None and not tails:
            return inside(full, index)
        bodies = [(p, inside(p, None)) for p in tails]
        tail = block(*(body if p.cond is None else guard(p.cond, body) for p, body in bodies))
        return tail if full is None else If(index < lift(full.count), inside(full, index), tail)

    def _attached(self, stage: KernelStage, loop: str, ranges: Ranges, local: Locals, body: Leaf) -> Statement:
        """``body`` after the stages that are attached to ``loop`` of ``stage`` (ROOT: outside of all its loops)."""
        children = [s for s in self._state.stages.values() if s.attach == (stage.name, loop)]
        places = {c.name: self._placed(c, self._regions.needed(c, stage, ranges)) for c in children}
        inside = {**local, **{c.tensor: places[c.name] for c in children if not c.alias}}

        def compute(child: KernelStage, part: Ranges) -> Statement:
            place, needed = places[child.name], self._regions.needed(child, stage, part)
            return self._stage(child, needed, inside, place.buffer, place.origin)

        if loop != ROOT and stage.loop(loop).staggered:
            parts: list[tuple[KernelStage, Part]] = [(c, partial(compute, c)) for c in children]
            parts.append((stage, lambda part: body(part, inside)))
            result = self._staggered(stage.loop(loop), parts, ranges)
        else:
            result = block(*(compute(c, ranges) for c in children), body(ranges, inside))
        for child in reversed(children):
            result = result if child.alias else Allocate(places[child.name].buffer, result)
        return result

    def _placed(self, child: KernelStage, needed: Ranges) -> Local:
        """Where the part of ``child`` that is ``needed`` will be."""
        order = memory_order(child)
        if child.alias:
            return Local(self._output, tuple(lift(0) for _ in order), tuple(range(len(order))))
        extents = self._room.extents(child, needed)
        buffer = Buffer(child.name, self._room.dtype(child), tuple(extents[i] for i in order), child.scope)
        return Local(buffer, tuple(needed[a.name].base for a in child.compute.axes), order)

    def _staggered(self, loop: StageLoop, parts: Sequence[tuple[KernelStage, Part]], ranges: Ranges) -> Statement:
        """What computes the stages, the outer one last, some rows in each turn."""
        here, stages = ranges[loop.axis], [stage for stage, _ in parts]
        behind = lags(self._state, stages)

        def row(compute: Part, number: Expr) -> Statement:
            return compute({**ranges, loop.axis: replace(here, base=self._simplify(here.base + number), extent=1)})

        def turn(lag: int) -> Turn:
            numbers = [self._fresh(loop.axis, here.extent) for _ in range(loop.staggered)]
            own = [(sweeps(s, stages), partial(row, compute)) for s, compute in parts if behind[s.name] == lag]
            return Turn(
                lag, numbers, [each for sweep, each in own if sweep], [each for sweep, each in own if not sweep]
            )

        last = max(behind.values())
        each = self._fresh(loop.axis, as_dim(expr_ceil_div(here.extent, loop.staggered) + last))
        return staggered(each, [turn(lag) for lag in range(last + 1)], here.extent)
