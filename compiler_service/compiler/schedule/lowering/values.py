"""The values of a stage while its nest is being built: tensors become buffers, axes become loop variables."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from compiler_service.compiler.loop_ir.ir import Buffer, BufferLoad, Prefetch
from compiler_service.compiler.schedule.language.interior import inside
from compiler_service.compiler.schedule.language.packing import packed_shape
from compiler_service.compiler.schedule.language.state import Ahead, Further, KernelStage, LoopKind, ScheduleState
from compiler_service.compiler.schedule.lowering.faults import fault
from compiler_service.compiler.schedule.lowering.ranges import Ranges, at_base
from compiler_service.compiler.schedule.model.tiles import CACHE_LINE_BYTES
from compiler_service.compiler.schedule.model.tiles import lanes as lanes_of
from compiler_service.compiler.tensor_expr.strides import row_major
from compiler_service.compiler.tensor_expr.tensor import Load, Tensor, axis_var
from shared_ir.expr import Binary, Expr, cast, lift, logical_and, transform, variables, walk
from shared_ir.expr.dim import dim_symbols
from shared_ir.expr.simplify import Interval, Simplifier
from shared_ir.machine.target import Target


@dataclass(frozen=True)
class Local:
    """Memory of an attached stage: element ``index - origin`` of ``buffer``, its axes in the order ``order``."""

    buffer: Buffer
    origin: tuple[Expr, ...]
    order: tuple[int, ...]


Locals = Mapping[Tensor, Local]


@dataclass(frozen=True)
class _Tile:
    """What a stage sweeps over of an argument: ``size`` elements in ``steps`` steps, of which it is at number ``step``;
    ``following`` are the indices, all but the last, of what comes after it."""

    following: tuple[Expr, ...]
    size: int
    step: Expr
    steps: int


def memory_order(stage: KernelStage) -> tuple[int, ...]:
    """The axes of ``stage`` in its own memory: that of its vectors innermost."""
    axes = [a.name for a in stage.compute.axes]
    across = [o.axis for o in stage.loops if o.kind is LoopKind.VECTORIZED and o.axis in axes]
    return tuple(sorted(range(len(axes)), key=lambda i: axes[i] in across))


class Values:
    """Reads arguments, the output, and the memory of attached stages.

    Attributes:
        arguments: the buffer of every argument, or of the tensor that takes its place.
        output: the buffer of the output.
    """

    def __init__(self, state: ScheduleState, arguments: Sequence[Tensor], target: Target, simplify: Simplifier) -> None:
        self._state, self._target, self._simplify = state, target, simplify
        self.arguments = {
            a: self._argument(a, i) for i, t in enumerate(arguments) for a in [state.transformed.get(t, t)]
        }
        tensor = state.output.tensor
        self.output = Buffer("out", tensor.dtype, tensor.shape, strides=state.strides)

    def _argument(self, tensor: Tensor, index: int) -> Buffer:
        pack = self._state.packs.get(tensor)
        if pack is None:
            return Buffer(f"{tensor.name}_{index}", tensor.dtype, tensor.shape, strides=tensor.strides)
        return Buffer(f"{tensor.name}_{index}", tensor.dtype, packed_shape(tensor, pack), prefetch=pack.prefetch)

    def element(self, stage: KernelStage, buffer: Buffer, origin: tuple[Expr, ...], ranges: Ranges) -> tuple[Expr, ...]:
        """Where ``stage`` is in ``buffer``: its own memory or the output's."""
        axes = stage.compute.axes
        order = range(len(axes)) if buffer is self.output else memory_order(stage)
        return tuple(self._simplify(ranges[axes[i].name].base - origin[i]) for i in order)

    def mask(self, stage: KernelStage, ranges: Ranges) -> Expr | None:
        masks = [v for a in stage.compute.axes if (v := ranges[a.name].valid) is not None]
        result: Expr | None = None
        for mask in masks:
            result = mask if result is None else logical_and(result, mask)
        return result

    def value(self, stage: KernelStage, ranges: Ranges, local: Locals) -> Expr:
        """The body of ``stage`` at ``ranges``, reading buffers in place of tensors."""

        def read(node: Expr) -> Expr | None:
            return self._read(node, ranges, local) if isinstance(node, Load) else None

        placed = transform(inside(stage, [name for name, r in ranges.items() if r.interior], self._simplify), read)
        return self._simplify(at_base(placed, ranges))

    def _read(self, load: Load, ranges: Ranges, local: Locals) -> Expr:
        simplify = self._of_wanted_lanes(ranges)
        indirect = any(map(_reads_memory, load.indices))  # the masks of what is read there are no index arithmetic
        indices = tuple((self._simplify if indirect else simplify)(at_base(i, ranges)) for i in load.indices)
        place = local.get(load.tensor)
        if place is not None:
            offsets = [self._simplify(i - o) for i, o in zip(indices, place.origin, strict=True)]
            # a vector's lanes behind the end have room here, but no position: nobody has written one
            mask = self._load_mask(load, indices, ranges) if indirect else None
            return cast(BufferLoad(place.buffer, tuple(offsets[i] for i in place.order), mask), load.dtype)
        stage = self._state.stage_of(load.tensor)
        if stage is not None and stage.alias:
            return BufferLoad(self.output, indices, self._load_mask(load, indices, ranges))
        if load.tensor not in self.arguments:
            raise fault(f"{load.tensor.name} is read but neither an argument nor placed by the schedule")
        buffer = self.arguments[load.tensor]
        pack = self._state.packs.get(load.tensor)
        mask = self._load_mask(load, indices, ranges)
        if pack is None:
            return BufferLoad(buffer, indices, mask)
        if any(modulus and modulus % lanes_of(self._target, load.dtype) == 0 for _, _, modulus in pack.order):
            mask = None  # tiles are padded to whole vectors
        return BufferLoad(buffer, tuple(self._packed_index(indices[a], d, m, simplify) for a, d, m in pack.order), mask)

    def further(self, reader: KernelStage, ahead: Further, ranges: Ranges, outside: Ranges) -> Iterator[Prefetch]:
        """Asks for what ``reader``, standing at ``ranges``, will read some steps of an axis later, or for one part of it for each
        sweep that those who stand ``outside`` make."""
        there = replace(ranges[ahead.axis], base=ranges[ahead.axis].base + ahead.distance)
        load, buffer = _load_of(reader, ahead.tensor), self.arguments[ahead.tensor]
        places = [at_base(i, {**ranges, ahead.axis: there}) for i in load.indices]
        if not ahead.sweeps:
            yield Prefetch(buffer, tuple(map(self._simplify, places)))
            return
        pack = self._state.packs[ahead.tensor]
        indices = [self._packed_index(places[a], d, m, self._simplify) for a, d, m in pack.order]
        moving = axis_var(ahead.axis)
        first = next(i for i, (a, _, _) in enumerate(pack.order) if moving in variables(load.indices[a]))
        size = math.prod(size for size in buffer.shape[first + 1 :] if isinstance(size, int))
        sweep, sweeps = _sweep(ahead.sweeps, outside)
        part = -(-size // sweeps)
        between = [lift(0)] * (len(indices) - first - 2)
        line = CACHE_LINE_BYTES // ahead.tensor.dtype.itemsize
        for more in range(0, part, line):
            yield Prefetch(buffer, (*indices[: first + 1], *between, self._simplify(sweep * part + more)), level=2)

    def next_tile(self, stage: KernelStage, ahead: Ahead, ranges: Ranges) -> Iterator[Prefetch]:
        """Asks for a part of what follows the present tile: its turn of the reduction, its sweep over the present tile.

        With a tile of ``t`` elements that is swept ``n`` times in ``s`` steps, step ``k`` of sweep ``q`` asks for element
        ``(q * s + k) * ceil(t / (n * s))`` of what follows it. Weights wait in the second level: the first is full of the present
        tile, or passes it through.
        """
        load, packed = _load_of(stage, ahead.tensor), ahead.tensor in self._state.packs
        found = (self._packed_tile if packed else self._rows)(stage, load, ranges)
        if found is None:
            return
        sweep, sweeps = _sweep(ahead.sweeps, ranges)
        part = -(-found.size // (sweeps * found.steps))
        place = self._simplify((sweep * found.steps + found.step) * part)
        level = 2 if packed or found.size * load.dtype.itemsize > self._target.l1 // 2 else 1
        for more in range(0, part, CACHE_LINE_BYTES // load.dtype.itemsize):
            yield Prefetch(self.arguments[ahead.tensor], (*found.following, self._simplify(place + more)), level=level)

    def _packed_tile(self, stage: KernelStage, load: Load, ranges: Ranges) -> _Tile:
        """All that the reduction reads of a packed constant."""
        assert stage.reduction is not None
        order = self._state.packs[load.tensor].order
        indices = [self._packed_index(at_base(load.indices[a], ranges), d, m, self._simplify) for a, d, m in order]
        moving = {axis.var for axis in stage.reduction.axes}
        first = next(i for i, (a, _, _) in enumerate(order) if variables(load.indices[a]) & moving)
        sizes = [size for size in self.arguments[load.tensor].shape if isinstance(size, int)]  # constants have no other
        step: Expr = lift(0)
        for index, size in list(zip(indices, sizes, strict=True))[first:-1]:
            step = step * size + index
        following = (*indices[: first - 1], self._simplify(indices[first - 1] + 1))
        between = [lift(0)] * (len(indices) - first - 1)
        return _Tile((*following, *between), math.prod(sizes[first:]), step, math.prod(sizes[first:-1]))

    def _rows(self, stage: KernelStage, load: Load, ranges: Ranges) -> _Tile | None:
        """The rows that the register tile covers, with the gaps between them; None where only the run knows how many these are."""
        assert stage.reduction is not None
        *before, row, _ = (at_base(i, ranges) for i in load.indices)
        (covered,) = (r.extent for name, r in ranges.items() if load.indices[-2] == axis_var(name))
        (axis,) = stage.reduction.axes
        stride = (load.tensor.strides or row_major(load.tensor.shape))[-2]
        if not (isinstance(covered, int) and isinstance(stride, int) and isinstance(axis.extent, int)):
            return None
        following = tuple(self._simplify(i) for i in (*before, row + covered))
        return _Tile(following, covered * stride, ranges[axis.name].base, axis.extent)

    def _packed_index(self, index: Expr, divisor: int, modulus: int, simplify: Simplifier) -> Expr:
        index = index // divisor
        return simplify(index % modulus if modulus else index)

    def _of_wanted_lanes(self, ranges: Ranges) -> Simplifier:
        """Simplifies indices, whose values in lanes that are masked out do not matter."""
        bounds: dict[str, Interval] = {r.lanes[0]: (0, r.lanes[1] - 1) for r in ranges.values() if r.lanes is not None}
        return Simplifier({**self._simplify.ranges, **bounds}) if bounds else self._simplify

    def _load_mask(self, load: Load, indices: Sequence[Expr], ranges: Ranges) -> Expr | None:
        """The mask of a load along limited axes; none where the index turned out to be the same in every lane."""
        used = {name for i in load.indices for name in dim_symbols([i])}
        indirect = any(map(_reads_memory, indices))  # its axes are those of loops by now
        result: Expr | None = None
        for name, r in ranges.items():
            valid = r.valid if indirect or axis_var(name).name in used else None
            if valid is not None and moves_with(indices, valid):
                result = valid if result is None else logical_and(result, valid)
        return result


def _load_of(stage: KernelStage, tensor: Tensor) -> Load:
    return next(e for e in walk(stage.body) if isinstance(e, Load) and e.tensor is tensor)


def _sweep(sweeps: Sequence[tuple[str, int, int]], ranges: Ranges) -> tuple[Expr, int]:
    """(number of the sweep that a stage at ``ranges`` makes, how many it makes)"""
    sweep: Expr = lift(0)
    total = 1
    for axis, extent, covered in sweeps:
        count = -(-extent // covered)
        sweep, total = sweep * count + ranges[axis].base % extent // covered, total * count
    return sweep, total


def moves_with(indices: Sequence[Expr], wanted: Expr) -> bool:
    """Whether the lanes of a vector, of which those below a limit are ``wanted``, are at different ``indices``.

    The limit may depend on a size that indices depend on as well: what counts is the lane.
    """
    assert isinstance(wanted, Binary)
    lanes = variables(wanted.lhs)
    return any(lanes & variables(i) for i in indices)


def _reads_memory(index: Expr) -> bool:
    return any(isinstance(part, BufferLoad) for part in walk(index))
