"""Lowering: tensors + schedule -> loop IR.

The output's nest is built from outside in. When a loop opens, the stages attached to it are computed for the region that the
loops inside will read (:mod:`ranges`), then the nest goes on. A reduction stage is an initialisation nest over its spatial
loops followed by an update nest over all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from compiler_service.loop_ir.ir import (
    Allocate,
    Block,
    Buffer,
    BufferLoad,
    For,
    ForKind,
    Function,
    If,
    Let,
    Scope,
    Statement,
    Store,
)
from compiler_service.schedule.interior import inside, interior
from compiler_service.schedule.packing import packed_shape
from compiler_service.schedule.pieces import Piece, overlapping, peeled, piece_range, pieces
from compiler_service.schedule.ranges import Range, Ranges, Regions, at_base, whole
from compiler_service.schedule.state import Loop, LoopKind, Stage, State, apply_schedule
from compiler_service.schedule.steps import ROOT, Schedule
from compiler_service.schedule.tiles import lanes as lanes_of
from compiler_service.tensor_expr.tensor import Load, ReduceOp, Tensor, axis_var, identity_of, loads
from shared_ir.dim import Dim, as_dim, dim_symbols, product
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.expr import (
    BinaryOp,
    Const,
    Expr,
    Var,
    binary,
    lift,
    logical_and,
    select,
    substitute,
    transform,
    variables,
)
from shared_ir.expr import (
    ceil_div as expr_ceil_div,
)
from shared_ir.simplify import Interval, Simplifier
from shared_ir.target import Target

_COMBINE = {
    ReduceOp.SUM: BinaryOp.ADD,
    ReduceOp.PROD: BinaryOp.MUL,
    ReduceOp.MIN: BinaryOp.MIN,
    ReduceOp.MAX: BinaryOp.MAX,
    ReduceOp.AND: BinaryOp.AND,
    ReduceOp.OR: BinaryOp.OR,
}
_FOR = {
    LoopKind.SERIAL: ForKind.SERIAL,
    LoopKind.UNROLLED: ForKind.UNROLLED,
    LoopKind.VECTORIZED: ForKind.VECTORIZED,
}


@dataclass(frozen=True)
class Local:
    """Memory of an attached stage: element ``index - origin`` of ``buffer``."""

    buffer: Buffer
    origin: tuple[Expr, ...]


Locals = Mapping[Tensor, Local]
Leaf = Callable[[Ranges, Locals], Statement]


def lower(
    name: str,
    output: Tensor,
    arguments: Sequence[Tensor],
    symbols: Sequence[str],
    schedule: Schedule,
    target: Target,
) -> Function:
    """The loop program that computes ``output`` from ``arguments`` (in this order, then the output) and ``symbols``.

    Raises:
        IngotError: INVALID_ARGUMENT when the schedule does not fit, COMPILER_FAULT when a local buffer has no constant size.
    """
    return _Lowering(apply_schedule(output, schedule), arguments, target).function(name, symbols)


class _Lowering:
    def __init__(self, state: State, arguments: Sequence[Tensor], target: Target) -> None:
        self._state = state
        self._target = target
        self._ranges: dict[str, Interval] = {}
        self._simplify = Simplifier(self._ranges)
        self._regions = Regions(state, self._simplify)
        self._count = 0
        self._arguments = {
            a: self._argument(a, i) for i, t in enumerate(arguments) for a in [state.transformed.get(t, t)]
        }
        tensor = state.output.tensor
        self._output = Buffer("out", tensor.dtype, tensor.shape)

    def _argument(self, tensor: Tensor, index: int) -> Buffer:
        pack = self._state.packs.get(tensor)
        if pack is None:
            return Buffer(f"{tensor.name}_{index}", tensor.dtype, tensor.shape)
        return Buffer(f"{tensor.name}_{index}", tensor.dtype, packed_shape(tensor, pack), prefetch=pack.prefetch)

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
        buffers = (*self._arguments.values(), self._output)
        return Function(name, buffers, tuple(Var(n) for n in symbols), task, product(counts), body)

    def _tiles(self, stage: Stage, loop: Loop) -> Dim:
        extent = next(a.extent for a in stage.compute.axes if a.name == loop.axis)
        return as_dim(expr_ceil_div(extent, loop.step))

    def _decode(
        self, task: Var, loops: Sequence[Loop], counts: Sequence[Dim]
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
        self._count += 1
        var = Var(f"{base}.{self._count}")
        self._ranges[var.name] = (0, extent - 1 if isinstance(extent, int) else self._upper(extent))
        return var

    def _upper(self, extent: Expr) -> int | None:
        high = self._simplify.interval(extent)[1]
        return None if high is None else high - 1

    # -- stages

    def _stage(
        self,
        stage: Stage,
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
        if any(o.kind is LoopKind.VECTORIZED and self._is_reduced(stage, o.axis) for o in stage.loops):
            return self._vector_reduction(stage, ranges, local, buffer, origin)
        return self._reduction(stage, ranges, local, buffer, origin, tasks or {})

    def _is_reduced(self, stage: Stage, axis: str) -> bool:
        return stage.reduction is not None and any(a.name == axis for a in stage.reduction.axes)

    def _store_leaf(self, stage: Stage, buffer: Buffer, origin: tuple[Expr, ...]) -> Leaf:
        def leaf(ranges: Ranges, local: Locals) -> Statement:
            return self._store(stage, buffer, origin, ranges, self._value(stage, ranges, local))

        return leaf

    def _store(self, stage: Stage, buffer: Buffer, origin: tuple[Expr, ...], ranges: Ranges, value: Expr) -> Store:
        mask = self._mask(stage, ranges) if buffer.scope is Scope.ARGUMENT else None
        return Store(buffer, self._element(stage, origin, ranges), value, mask)

    def _element(self, stage: Stage, origin: tuple[Expr, ...], ranges: Ranges) -> tuple[Expr, ...]:
        return tuple(self._simplify(ranges[a.name].base - o) for a, o in zip(stage.compute.axes, origin, strict=True))

    def _mask(self, stage: Stage, ranges: Ranges) -> Expr | None:
        masks = [v for a in stage.compute.axes if (v := ranges[a.name].valid) is not None]
        result: Expr | None = None
        for mask in masks:
            result = mask if result is None else logical_and(result, mask)
        return result

    def _reduction(
        self,
        stage: Stage,
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
        split = next(i for i, o in enumerate(stage.loops) if self._is_reduced(stage, o.axis))
        outer, inner = stage.loops[:split], stage.loops[split:]
        spatial = tuple(o for o in inner if not self._is_reduced(stage, o.axis))

        def start(here: Ranges, _: Locals) -> Statement:
            return self._store(stage, buffer, origin, here, lift(identity_of(op, dtype), dtype))

        def update(here: Ranges, inside: Locals) -> Statement:
            mask = self._mask(stage, here) if buffer.scope is Scope.ARGUMENT else None
            at = self._element(stage, origin, here)
            total = binary(_COMBINE[op], BufferLoad(buffer, at, mask), self._value(stage, here, inside))
            return Store(buffer, at, total, mask)

        def both(here: Ranges, inside: Locals) -> Statement:
            return _block(
                self._nest(stage, spatial, here, inside, start, {}, attach=False),
                self._nest(stage, inner, here, inside, update, {}),
            )

        return self._nest(stage, outer, ranges, local, both, tasks)

    def _vector_reduction(
        self, stage: Stage, ranges: Ranges, local: Locals, buffer: Buffer, origin: tuple[Expr, ...]
    ) -> Statement:
        """A reduction whose lanes accumulate apart: ``lane[t] op= body`` over the loops, then ``acc op= lane[t]``.

        Its spatial loops must be outside; the reduced axis is tiled by a constant.
        """
        assert stage.reduction is not None
        op, dtype = stage.reduction.op, stage.tensor.dtype
        first = next(i for i, o in enumerate(stage.loops) if self._is_reduced(stage, o.axis))
        outer, inner = stage.loops[:first], stage.loops[first:]
        axis = next(o.axis for o in inner if o.kind is LoopKind.VECTORIZED)
        own = [o for o in inner if o.axis == axis]
        constant = next(i for i, o in enumerate(own) if o.kind in (LoopKind.UNROLLED, LoopKind.VECTORIZED))
        if constant == 0 or any(not self._is_reduced(stage, o.axis) for o in inner):
            raise _fault(f"stage {stage.name}: a vectorised reduction needs an outer tile and spatial loops outside")
        tile, lanes = own[constant - 1].step, own[-2].step
        lane_buffer = Buffer(f"{stage.name}_lanes", dtype, (tile,), Scope.STACK)
        identity = lift(identity_of(op, dtype), dtype)

        def update(here: Ranges, inside: Locals) -> Statement:
            reduced = here[axis]
            assert reduced.origin is not None
            lane = (self._simplify(reduced.base - reduced.origin),)
            value = self._value(stage, here, inside)
            if reduced.valid is not None:
                value = select(reduced.valid, value, identity)
            return Store(lane_buffer, lane, binary(_COMBINE[op], BufferLoad(lane_buffer, lane), value))

        def each_lane(make: Callable[[Expr], Statement], count: int = tile) -> Statement:
            block = self._fresh("lane", count // lanes)
            lane = self._fresh("lane", lanes)
            body = For(lane, lift(lanes), ForKind.VECTORIZED, make(block * lanes + lane))
            return For(block, lift(count // lanes), ForKind.UNROLLED, body)

        def total(here: Ranges, inside: Locals) -> Statement:
            at = self._element(stage, origin, here)

            def combine(lane: Expr) -> Statement:
                value = binary(_COMBINE[op], BufferLoad(buffer, at), BufferLoad(lane_buffer, (lane,)))
                return Store(buffer, at, value)

            def onto(distance: int) -> Callable[[Expr], Statement]:
                def store(lane: Expr) -> Statement:
                    here, there = (BufferLoad(lane_buffer, (i,)) for i in (lane, lane + distance))
                    return Store(lane_buffer, (lane,), binary(_COMBINE[op], here, there))

                return store

            return Allocate(
                lane_buffer,
                _block(
                    each_lane(lambda lane: Store(lane_buffer, (lane,), identity)),
                    self._nest(stage, inner, here, inside, update, {}, lane_axis=(axis, tile)),
                    *(each_lane(onto(distance), size) for size, distance in _halvings(tile, lanes)),
                    Store(buffer, at, identity),
                    each_lane(combine, lanes),
                ),
            )

        return self._nest(stage, outer, ranges, local, total, {})

    def _cover(self, stage: Stage, loop: Loop, rest: tuple[Loop, ...], extent: Dim) -> Iterator[Piece]:
        if loop.overlap and isinstance(extent, int) and extent > loop.step:
            return overlapping(loop, extent)
        if not loop.peel:
            return pieces(loop, rest, extent, self._target.masked)
        low, high = interior(self._state, stage, loop.axis, self._simplify)
        return peeled(loop, extent, low, high)

    # -- values

    def _value(self, stage: Stage, ranges: Ranges, local: Locals) -> Expr:
        """The body of ``stage`` at ``ranges``, reading buffers in place of tensors."""

        def read(node: Expr) -> Expr | None:
            return self._read(node, ranges, local) if isinstance(node, Load) else None

        placed = transform(inside(stage, [name for name, r in ranges.items() if r.interior], self._simplify), read)
        return self._simplify(at_base(placed, ranges))

    def _read(self, load: Load, ranges: Ranges, local: Locals) -> Expr:
        simplify = self._of_wanted_lanes(ranges)
        indices = tuple(simplify(at_base(i, ranges)) for i in load.indices)
        place = local.get(load.tensor)
        if place is not None:
            offsets = tuple(self._simplify(i - o) for i, o in zip(indices, place.origin, strict=True))
            return BufferLoad(place.buffer, offsets)
        stage = self._state.stage_of(load.tensor)
        if stage is not None and stage.alias:
            return BufferLoad(self._output, indices, self._load_mask(load, ranges))
        if load.tensor not in self._arguments:
            raise _fault(f"{load.tensor.name} is read but neither an argument nor placed by the schedule")
        buffer = self._arguments[load.tensor]
        pack = self._state.packs.get(load.tensor)
        mask = self._load_mask(load, ranges)
        if pack is None:
            return BufferLoad(buffer, indices, mask)
        if any(modulus and modulus % lanes_of(self._target, load.dtype) == 0 for _, _, modulus in pack.order):
            mask = None  # tiles are padded to whole vectors
        return BufferLoad(buffer, tuple(self._packed_index(indices[a], d, m, simplify) for a, d, m in pack.order), mask)

    def _packed_index(self, index: Expr, divisor: int, modulus: int, simplify: Simplifier) -> Expr:
        index = index // divisor
        return simplify(index % modulus if modulus else index)

    def _of_wanted_lanes(self, ranges: Ranges) -> Simplifier:
        """Simplifies indices, whose values in lanes that are masked out do not matter."""
        bounds: dict[str, Interval] = {r.lanes[0]: (0, r.lanes[1] - 1) for r in ranges.values() if r.lanes is not None}
        return Simplifier({**self._ranges, **bounds}) if bounds else self._simplify

    def _load_mask(self, load: Load, ranges: Ranges) -> Expr | None:
        used = {name for i in load.indices for name in dim_symbols([i])}
        result: Expr | None = None
        for name, r in ranges.items():
            valid = r.valid if axis_var(name).name in used else None
            if valid is not None:
                result = valid if result is None else logical_and(result, valid)
        return result

    # -- loops

    def _nest(
        self,
        stage: Stage,
        loops: tuple[Loop, ...],
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
        here = ranges[loop.axis]
        if loop.guarded and here.limit is None:
            here = replace(here, limit=lift(here.extent))

        def inside(piece: Piece, index: Expr | None) -> Statement:
            inner = piece_range(piece, here, index)
            inner = replace(inner, base=self._simplify(inner.base))
            if lane_axis == (loop.axis, loop.step):
                inner = replace(inner, origin=inner.base)
            if loop.step == 1 and loop.kind is LoopKind.VECTORIZED and here.limit is not None and index is not None:
                wanted = (index.name, int(here.limit.value)) if isinstance(here.limit, Const) and isinstance(index, Var) else None
                inner = replace(inner, valid=index < here.limit, lanes=wanted)
            left, inner = self._named_limit(loop, inner)
            opened = {**ranges, loop.axis: inner}

            def deeper(_: Ranges, more: Locals) -> Statement:
                return self._nest(stage, rest, opened, more, leaf, tasks, attach, lane_axis)

            body = self._attached(stage, loop.name, opened, local, deeper) if attach else deeper(opened, local)
            return body if left is None else Let(left[0], left[1], body)

        cover = list(self._cover(stage, loop, rest, here.extent))
        if loop.name in tasks:
            return self._task_pieces(loop, cover, tasks[loop.name], inside)
        return _block(*(self._serial_piece(loop, p, here, inside) for p in cover))

    def _named_limit(self, loop: Loop, inner: Range) -> tuple[tuple[Var, Expr] | None, Range]:
        """The number of wanted elements of a guarded tile as a variable: what depends on it is asked tile by tile, and no pass
        cuts the loop for its sake."""
        if not loop.guarded or inner.limit is None:
            return None, inner
        self._count += 1
        var = Var(f"left.{self._count}")
        self._ranges[var.name] = (1, None)
        return (var, self._simplify(inner.limit)), replace(inner, limit=var)

    def _serial_piece(
        self, loop: Loop, piece: Piece, here: Range, inside: Callable[[Piece, Expr | None], Statement]
    ) -> Statement:
        element = loop.step == 1 and loop.kind is not LoopKind.VECTORIZED
        if piece.count == 1 and not (loop.kind is LoopKind.VECTORIZED and here.limit is not None):
            body = inside(piece, None)
            if element and here.limit is not None:  # the one element of a piece behind the limit
                body = _guard(self._simplify(lift(0) < here.limit), body)
        else:
            kind = _FOR[loop.kind]
            if not isinstance(piece.count, int) and kind is not ForKind.SERIAL:
                kind = ForKind.SERIAL  # a tail of unknown length
            var = self._fresh(loop.axis, piece.count)
            each = inside(piece, var)
            if element and here.limit is not None:
                each = If(var < here.limit, each)  # a masked tile, walked element by element
            body = For(var, lift(piece.count), kind, each)
        return body if piece.cond is None else _guard(self._simplify(piece.cond), body)

    def _task_pieces(
        self, loop: Loop, cover: Sequence[Piece], index: Expr, inside: Callable[[Piece, Expr | None], Statement]
    ) -> Statement:
        """The tile number comes from the task: full tiles first, the tail pieces together are the last task."""
        full, tails = (cover[0], cover[1:]) if cover[0].size == loop.step else (None, cover)
        if full is not None and not tails:
            return inside(full, index)
        bodies = [(p, inside(p, None)) for p in tails]
        tail = _block(*(body if p.cond is None else _guard(p.cond, body) for p, body in bodies))
        return tail if full is None else If(index < lift(full.count), inside(full, index), tail)

    def _attached(self, stage: Stage, loop: str, ranges: Ranges, local: Locals, body: Leaf) -> Statement:
        """``body`` after the stages that are attached to ``loop`` of ``stage`` (ROOT: outside of all its loops)."""
        inside = dict(local)
        allocations: list[Buffer] = []
        nests: list[Statement] = []
        for child in self._state.stages.values():
            if child.attach != (stage.name, loop):
                continue
            needed = self._regions.needed(child, stage, ranges)
            if child.alias:
                zero = tuple(lift(0) for _ in child.compute.axes)
                nests.append(self._stage(child, needed, inside, self._output, zero))
                continue
            buffer = Buffer(child.name, child.tensor.dtype, self._extents(child, needed), child.scope)
            origin = tuple(needed[a.name].base for a in child.compute.axes)
            allocations.append(buffer)
            nests.append(self._stage(child, needed, inside, buffer, origin))
            inside[child.tensor] = Local(buffer, origin)
        result = _block(*nests, body(ranges, inside)) if nests else body(ranges, inside)
        for buffer in reversed(allocations):
            result = Allocate(buffer, result)
        return result

    def _extents(self, stage: Stage, ranges: Ranges) -> tuple[int, ...]:
        return tuple(self._room(stage, a.name, ranges[a.name].extent) for a in stage.compute.axes)

    def _room(self, stage: Stage, axis: str, extent: Dim) -> int:
        """Elements to allocate along ``axis``: a masked last vector writes, and its readers read, all of its lanes."""
        size = self._constant(stage, extent)
        if not self._target.masked:
            return size
        position = [a.name for a in stage.compute.axes].index(axis)
        uses: list[tuple[Stage, str, Expr]] = [(stage, axis, axis_var(axis))]
        for reader in self._state.consumers(stage.tensor):
            indices = dict.fromkeys(ld.indices[position] for ld in loads(reader.body) if ld.tensor is stage.tensor)
            for a in reader.compute.all_axes:
                uses += [(reader, a.name, i) for i in indices if a.var in variables(i)]
        lanes = max(_vector_lanes(user, name) for user, name, _ in uses)
        return -(-max(self._end(*use, size) for use in uses) // lanes) * lanes

    def _end(self, user: Stage, axis: str, index: Expr, size: int) -> int:
        """Where the last vector of ``user`` along its axis ends, given that its first lane is one of ``size`` elements."""
        lanes = _vector_lanes(user, axis)
        var = axis_var(axis)
        if index == var and all(o.step % lanes == 0 for o in user.loops if o.axis == axis and o.step > 1):
            return -(-size // lanes) * lanes
        reach = self._simplify.interval(self._simplify(substitute(index, {var: var + (lanes - 1)}) - index))[1]
        return size + max(reach or 0, 0)

    def _constant(self, stage: Stage, extent: Dim) -> int:
        high = extent if isinstance(extent, int) else self._simplify.interval(extent)[1]
        if high is None:
            raise _fault(f"the part of stage {stage.name} to keep has no constant size: {extent}")
        return high


def _vector_lanes(stage: Stage, axis: str) -> int:
    """Lanes of the vectors along ``axis``, 1 when it is not vectorised."""
    own = [o for o in stage.loops if o.axis == axis]
    return own[-2].step if len(own) > 1 and own[-1].kind is LoopKind.VECTORIZED else 1


def _halvings(tile: int, lanes: int) -> Iterator[tuple[int, int]]:
    """(count, distance): the first ``count`` of ``tile`` accumulators take in those ``distance`` behind them, until one vector
    of ``lanes`` is left."""
    vectors = tile // lanes
    while vectors > 1:
        kept = -(-vectors // 2)
        yield (vectors - kept) * lanes, kept * lanes
        vectors = kept


def _fault(message: str) -> IngotError:
    return IngotError(ErrorCode.COMPILER_FAULT, f"schedule: {message}")


def _block(*statements: Statement) -> Statement:
    flat: list[Statement] = []
    for statement in statements:
        flat.extend(statement.statements if isinstance(statement, Block) else (statement,))
    return flat[0] if len(flat) == 1 else Block(tuple(flat))


def _guard(cond: Expr, body: Statement) -> Statement:
    if isinstance(cond, Const):
        return body if cond.value else Block(())
    return If(cond, body)
