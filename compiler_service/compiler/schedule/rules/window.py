"""Reductions that run beside a contiguous spatial axis: pooling, depthwise convolution, global pooling, column sums.

A depthwise convolution may have several outputs of a channel: the lanes of a vector then pick from a shorter one.

Vectors lie along the contiguous axis (channels, in channels-last layout). A tile of a few pixels of a row and a few vectors
accumulates in registers, so that a column of the window loaded once serves several pixels. The tile goes down the rows of the image
before it goes on along them: what the rows of a window share stays in the first-level cache.

Where windows share nothing (2x2 in steps of 2, a whole image), a tile is one pixel and as many channels as registers take: memory
is read in pieces that are long enough for the prefetchers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from compiler_service.compiler.schedule.language.schedule import Schedule, Step
from compiler_service.compiler.schedule.language.state import KernelStage, ScheduleState
from compiler_service.compiler.schedule.language.steps import (
    ComputeAt,
    Overlap,
    Pack,
    Parallel,
    Peel,
    Reorder,
    Split,
    Unroll,
    Vectorize,
)
from compiler_service.compiler.schedule.model.analysis import (
    KernelView,
    accumulated,
    bound_axes,
    contiguous_axis,
    depends,
    inlined,
    only_reduction,
    reductions,
    slope,
)
from compiler_service.compiler.schedule.model.tasks import (
    TASKS_PER_CORE,
    TaskLoops,
    alone_cycles,
    arithmetic_cycles,
    count,
    memory_cycles,
    task_loops,
)
from compiler_service.compiler.schedule.model.tiles import FMA_LATENCY_CYCLES, MOST_UNROLLED_FMAS, lanes
from compiler_service.compiler.schedule.rules.contraction.packing import packed_order
from compiler_service.compiler.tensor_expr.tensor import Axis, Placeholder, loads
from shared_ir.machine.target import Target

_MOST_PIXELS_OF_TILE = 14
"""Largest number of pixels of a row in a register tile."""
_MOST_VECTORS_OF_TILE, _MOST_PRODUCTS_ASKED = 4, 240
"""Largest number of vectors, and of products of an unrolled row of the window, of a tile that may be asked for."""
_VECTORS_OF_UNKNOWN_CHANNELS = 8
"""Most vectors of a register tile when the number of channels is only known at run time, and no axis of pixels is left to tile."""
_LARGEST_UNROLLED_WINDOW = 16
"""Largest extent of a window, along the row, whose steps are unrolled."""


def window_schedule(kernel: KernelView, target: Target) -> Schedule | None:
    if only_reduction(kernel.state) is None:
        return None
    steps = accumulated(kernel)
    steps += inlined(kernel.after(steps))
    state = kernel.after(steps)
    output, (reduction,) = state.output, reductions(state)
    axes = tuple(a.name for a in output.compute.axes)
    own = tuple(a.name for a in reduction.compute.axes)
    if not axes or not own or contiguous_axis(reduction) != own[-1] or bound_axes(state, output) != axes:
        return None
    return (*steps, *_Plan(kernel, state, reduction, target).steps())


@dataclass(frozen=True)
class _Tile:
    """``pixels`` x ``vectors`` accumulators."""

    pixels: int
    vectors: int


class _Plan:
    """Sizes of one kernel, and the steps that follow from them."""

    def __init__(self, kernel: KernelView, state: ScheduleState, reduction: KernelStage, target: Target) -> None:
        self._kernel, self._target, self._reduction = kernel, target, reduction
        self._knobs = kernel.knobs.within("window")
        self._output = state.output
        self._axes = state.output.compute.axes
        self._own = reduction.compute.axes
        assert reduction.reduction is not None
        self._reduced = reduction.reduction.axes
        self._width = lanes(target, reduction.tensor.dtype)
        self._channels = self._axes[-1]
        if isinstance(self._channels.extent, int) and self._channels.extent == 1:
            self._width = 1

    # -- what slides

    @cached_property
    def _row(self) -> Axis | None:
        """The axis of the output along which windows overlap, or could."""
        if len(self._axes) < 2:
            return None
        taps = self._slides(self._own[-2])
        if taps is None or (isinstance(taps.extent, int) and taps.extent <= slope(self._reduction, self._own[-2].name)):
            return None
        return self._axes[-2]

    @cached_property
    def _lines(self) -> Axis | None:
        """The axis of image rows: windows slide along it too."""
        if self._row is None or len(self._axes) < 3 or self._slides(self._own[-3]) is None:
            return None
        return self._axes[-3]

    def _slides(self, axis: Axis) -> Axis | None:
        """The reduced axis that shares an index with ``axis``."""
        for load in loads(self._reduction.body):
            for index in load.indices:
                if depends(index, axis.name):
                    found = [a for a in self._reduced if depends(index, a.name)]
                    if found:
                        return found[0]
        return None

    # -- sizes

    @cached_property
    def _tile(self) -> _Tile:
        registers = self._target.vector_registers
        most = registers // 2
        extent = self._channels.extent
        vectors = most if not isinstance(extent, int) else max(1, min(most, -(-extent // self._width)))
        if self._row is None:
            room = registers * 3 // 4
            if not isinstance(extent, int):
                own = min(_VECTORS_OF_UNKNOWN_CHANNELS, vectors)
                return _Tile(1, self._knobs.range("vectors", 1, room, own))
            wide = -(-extent // self._width)
            return _Tile(1, self._knobs.range("vectors", 1, min(wide, room), _evenly(wide, room)))
        best = (float("inf"), 0, _Tile(1, 1))
        for wide in range(1, min(2, vectors) + 1):
            for pixels in range(1, min(most // wide, _MOST_PIXELS_OF_TILE, count(self._row.extent)) + 1):
                if pixels * wide * self._taps <= MOST_UNROLLED_FMAS or pixels == 1:
                    best = min(best, (self._cost(pixels, wide), pixels * wide, _Tile(pixels, wide)), key=_ranked)
        chosen = (best[2].pixels, best[2].vectors)
        return _Tile(*self._knobs.choice("tile", self._tiles(vectors), chosen))

    def _tiles(self, most: int) -> list[tuple[int, int]]:
        """(pixels, vectors) of tiles that may be asked for: of sums in registers, and not too much code."""
        room = self._target.vector_registers * 3 // 4
        pixels = min(_MOST_PIXELS_OF_TILE, room, count(self._row.extent if self._row is not None else 1))
        pairs = ((p, v) for v in range(1, min(most, _MOST_VECTORS_OF_TILE) + 1) for p in range(1, pixels + 1))
        return [(p, v) for p, v in pairs if p * v <= room and p * v * self._taps <= _MOST_PRODUCTS_ASKED]

    @cached_property
    def _taps(self) -> int:
        """Steps of the reduction along the row that are unrolled."""
        if self._row is None:
            return 1
        axis = self._slides(self._own[-2])
        assert axis is not None
        if not isinstance(axis.extent, int) or not 1 < axis.extent <= _LARGEST_UNROLLED_WINDOW:
            return 1
        return axis.extent if self._knobs.flag("taps unrolled", default=True) else 1

    def _cost(self, pixels: int, vectors: int) -> float:
        """Cycles of one row of the window per pixel and channel, tails included."""
        assert self._row is not None
        width = self._row.extent
        if not isinstance(width, int):
            return self._cycles(pixels, vectors) / pixels * (1 + pixels / 64) * self._blocks(vectors)
        full, rest = divmod(width, pixels)
        total = full * self._cycles(pixels, vectors) + (self._cycles(rest, vectors) if rest else 0)
        return total / width * self._blocks(vectors)

    def _blocks(self, vectors: int) -> float:
        """Blocks of channels per channel."""
        extent, wide = self._channels.extent, vectors * self._width
        return -(-extent // wide) / extent if isinstance(extent, int) else 1 / wide

    def _cycles(self, pixels: int, vectors: int) -> float:
        """Two multiply-adds or loads a cycle; the steps of one accumulator wait for each other."""
        arithmetic = pixels * self._taps * vectors / 2
        columns = (pixels - 1) * self._stride + self._taps
        load = (columns + self._taps) * vectors / 2
        return max(arithmetic, load, float(FMA_LATENCY_CYCLES * self._taps)) + 2

    @cached_property
    def _stride(self) -> int:
        return min(slope(self._reduction, self._own[-2].name), self._taps)

    # -- loops

    def steps(self) -> Schedule:
        out, row, lines = self._output.name, self._row, self._lines
        tile, channel = self._tile, self._channels.name
        steps: list[Step] = []
        columns = self._columns(self._output.name, channel, steps)
        inner: list[str] = []
        blocks = list(columns[:1]) if len(columns) > 1 else []
        if isinstance(self._channels.extent, int) and len(columns) > 1:
            steps += [Overlap(out, columns[0])] if self._knobs.flag("channels overlap", default=True) else []
        if row is not None and tile.pixels > 1:
            steps += [Split(out, row.name, tile.pixels), Unroll(out, row.name)]
            if not isinstance(row.extent, int):
                peels = self._knobs.flag("ends of rows apart", default=True)
                steps += [Peel(out, f"{row.name}.{tile.pixels}")] if peels else []
            blocks.append(f"{row.name}.{tile.pixels}")
            inner.append(row.name)
        elif row is not None:
            blocks.append(row.name)
        tasks = self._tasks()
        outside = [a.name for a in self._axes[:-1] if a not in (row, lines)]
        serial = [n for n in tasks.serial if n in outside]
        if lines is not None and lines.name not in tasks.parallel:
            inside = len(blocks) - self._knobs.range("loops inside of lines", 0, len(blocks), 0)
            blocks.insert(inside, lines.name)
        tile_loops = (*inner, *(columns[1:] if len(columns) > 1 else columns))
        place = [*tasks.parallel, *serial, *blocks]
        steps = [*tasks.steps, *steps, Reorder(out, (*place, *tile_loops))]
        if tasks.parallel:
            steps.append(Parallel(out, tasks.parallel))
        where = place[-1] if place else tile_loops[0]
        return (*steps, ComputeAt(self._reduction.name, out, where), *self._accumulate(), *self._packed())

    def _columns(self, stage: str, channel: str, steps: list[Step]) -> tuple[str, ...]:
        """Loops of the vectors of a tile, outermost first: blocks, vectors, lanes."""
        if self._width == 1:
            return (channel,)
        wide = self._tile.vectors * self._width
        names: list[str] = []
        if stage == self._output.name and self._tile.vectors > 1:
            steps.append(Split(stage, channel, wide))
            names.append(f"{channel}.{wide}")
        if stage == self._output.name or self._tile.vectors > 1:
            steps.append(Split(stage, channel, self._width))
            names.append(f"{channel}.{self._width}")
        if self._tile.vectors > 1:
            steps.append(Unroll(stage, f"{channel}.{self._width}"))
        steps.append(Vectorize(stage, channel))
        return (*names, channel)

    def _tasks(self) -> TaskLoops:
        """Tasks over the axes outside of an image, then its rows; over blocks of channels where there are no rows."""
        out = self._output.name
        outer = [a for a in self._axes[:-1] if a is not self._row]
        window = 1
        for axis in self._reduced:
            window *= count(axis.extent)
        arithmetic = arithmetic_cycles(self._reduction.body, self._width) * window
        arithmetic += arithmetic_cycles(self._output.body, self._width)
        read = window if self._row is None else self._stride**2
        size, elements = self._reduction.tensor.dtype.itemsize, math.prod(count(a.extent) for a in self._axes)
        cycles = max(arithmetic, memory_cycles(size * (1 + read)))
        cycles += alone_cycles(size * read, size, elements, self._target)
        cycles *= count(self._channels.extent) * (1 if self._row is None else count(self._row.extent))
        return task_loops(out, outer, cycles, self._target, self._knobs, self._tasks_per_core)

    @cached_property
    def _tasks_per_core(self) -> int:
        """One where lines of a window that tasks read twice, and weights, would be much of what a smaller task reads."""
        axis = None if self._lines is None else self._slides(self._own[-3])
        if self._lines is None or axis is None or not isinstance(self._lines.extent, int):
            return TASKS_PER_CORE
        lines = self._lines.extent // (TASKS_PER_CORE * self._target.cores)
        return 1 if lines < 2 * count(axis.extent) else TASKS_PER_CORE

    def _accumulate(self) -> Schedule:
        stage = self._reduction
        steps: list[Step] = []
        columns = self._columns(stage.name, self._own[-1].name, steps)
        unrolled: list[str] = []
        if self._row is not None and self._tile.pixels > 1:
            unrolled.append(self._own[-2].name)
        reduced = [a.name for a in self._reduced]
        taps = None if self._row is None else self._slides(self._own[-2])
        if taps is not None and self._taps > 1:
            reduced.remove(taps.name)
            unrolled.append(taps.name)
        steps += [Unroll(stage.name, n) for n in unrolled]
        outer = [a.name for a in self._own[:-1] if a.name not in unrolled]
        steps.append(Reorder(stage.name, (*outer, *reduced, *unrolled, *columns)))
        return tuple(steps)

    def _packed(self) -> Schedule:
        """Constant weights with the vector axis innermost, those of a tile one after the other where tiles do not overlap."""
        extent, wide = self._channels.extent, self._tile.vectors * self._width
        tile = wide if isinstance(extent, int) and extent % wide == 0 and extent > wide > 1 else 1
        return tuple(
            Pack(load.tensor.name, order)
            for load in loads(self._reduction.body)
            if load.tensor in self._kernel.constants
            and isinstance(load.tensor.op, Placeholder)
            and (order := packed_order(load, self._own[-1].name, tile)) is not None
        )


def _evenly(vectors: int, most: int) -> int:
    """Vectors of a tile, so that tiles overlap little."""
    if vectors <= most:
        return vectors
    return min(range(most, most // 2, -1), key=lambda size: -(-vectors // size) * size)


def _ranked(item: tuple[float, int, _Tile]) -> tuple[float, int]:
    return float(f"{item[0]:.3g}"), item[1]
