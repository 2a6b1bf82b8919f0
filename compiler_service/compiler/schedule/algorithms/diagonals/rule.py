"""Convolutions whose groups are narrower than a vector, by the diagonals of the groups (:mod:`tensor_expr.diagonals`).

A vector holds the same channels of the data and of the weights: several groups side by side, no lane idle and nothing to
permute inside of the window. One accumulator for each diagonal and pixel stays in registers; the epilogue adds them up.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from compiler_service.compiler.schedule.algorithms.diagonals.stages import GroupedConvolution
from compiler_service.compiler.schedule.algorithms.diagonals.step import Diagonals, grouped_convolution_of
from compiler_service.compiler.schedule.language.knobs import Knobs
from compiler_service.compiler.schedule.language.schedule import Schedule, Step
from compiler_service.compiler.schedule.language.state import KernelStage
from compiler_service.compiler.schedule.language.steps import (
    ROOT,
    ComputeAt,
    Parallel,
    Reorder,
    Split,
    Unroll,
    Vectorize,
)
from compiler_service.compiler.schedule.model.analysis import (
    KernelView,
    depends,
    ends_in_place,
    inlined,
    is_free,
    only_reduction,
    slope,
)
from compiler_service.compiler.schedule.model.tasks import asked_tasks, count
from compiler_service.compiler.schedule.model.tiles import FMA_LATENCY_CYCLES, MOST_UNROLLED_FMAS, lanes, vector_loops
from compiler_service.compiler.schedule.rules.contraction.packing import BYTES_AHEAD, packing, prefetch_distance
from compiler_service.compiler.tensor_expr.tensor import Axis, Load, Placeholder
from shared_ir.expr import Const, Select
from shared_ir.machine.target import Target

_LARGEST_UNROLLED_WINDOW = 7
"""Largest extent of a window, along the row, whose steps are unrolled."""
_L2_PARTS_PER_TASK = 16
"""The data of a task takes at most the second-level cache divided by this."""
_TILES_OF_UNKNOWN_ROW = 8
"""Tiles of a task along a row whose length only the run knows."""


def grouped_schedule(kernel: KernelView, target: Target) -> Schedule | None:
    stage = only_reduction(kernel.state)
    if stage is None or (conv := grouped_convolution_of(stage)) is None or not _applies(kernel, conv, target):
        return None
    name = stage.name
    source = kernel.state.stage_of(conv.data.tensor)
    local = None if source is None or is_free(source) or _is_edge(source, conv) else source.name
    before: Schedule = (Diagonals(name, conv.weight.tensor.name),)
    after = kernel.after(before)
    keep = frozenset(n for n in (local, f"{name}.diagonals") if n is not None)
    before = (*before, *inlined(after, keep))
    state = kernel.after(before)
    diagonals = state.stage(f"{name}.diagonals")
    place = None if local is None else state.stage(local)
    return (*before, *_Plan(conv, state.output, diagonals, place, target, kernel.knobs).steps())


def _applies(kernel: KernelView, conv: GroupedConvolution, target: Target) -> bool:
    """Whether vectors hold several groups of constant weights, and the output reads the convolution at its own index."""
    weight, width = conv.weight.tensor, lanes(target, conv.tensor.dtype)
    if weight not in kernel.constants or not isinstance(weight.op, Placeholder) or conv.tensor.rank < 2:
        return False
    if conv.group >= width or width % conv.group or conv.group > target.vector_registers // 2:
        return False
    return ends_in_place(kernel, conv.tensor)


def _is_edge(source: KernelStage, conv: GroupedConvolution) -> bool:
    """Whether ``source`` is what it reads with a constant around it, where sizes are known: loops are cut so that nothing is asked
    away from the edges, and a copy would take a third of the time of a stride of 2."""
    slides = (
        extent
        for index, extent in zip(conv.data.indices, source.tensor.shape, strict=True)
        if any(depends(index, tap.name) for tap in conv.taps)
    )
    match source.body:
        case Select(then=Load(), otherwise=Const()):
            return all(isinstance(extent, int) for extent in slides)
    return False


@dataclass(frozen=True)
class _Axes:
    """Axes of the output: ``window`` and ``row`` are those of the image that the taps slide along."""

    outer: tuple[Axis, ...]
    window: Axis | None
    row: Axis
    channels: Axis


@dataclass(frozen=True)
class _Task:
    """What a task covers: ``lines`` of the window, ``channels`` and ``pixels`` of a row; 0 is all of them."""

    channels: int
    lines: int
    pixels: int


class _Plan:
    """The steps for one convolution."""

    def __init__(
        self,
        conv: GroupedConvolution,
        output: KernelStage,
        diagonals: KernelStage,
        local: KernelStage | None,
        target: Target,
        knobs: Knobs,
    ) -> None:
        self._knobs = knobs.within("grouped")
        self._conv, self._output, self._diagonals, self._local, self._target = conv, output, diagonals, local, target
        self._width = lanes(target, conv.tensor.dtype)
        *outer, row, channels = output.compute.axes
        window = outer.pop() if outer and self._tap(len(outer) - 1) is not None else None
        self._axes = _Axes(tuple(outer), window, row, channels)
        self._tap_of_row = self._tap(len(output.compute.axes) - 2)
        self._pixels = self._knobs.choice("pixels", self._pixels_asked(), self._best_pixels())

    def _tap(self, position: int) -> Axis | None:
        """The tap that shares an index with the axis of the output at ``position``."""
        own = self._diagonals.compute.axes[position].name
        return next(
            (t for i in self._conv.data.indices if depends(i, own) for t in self._conv.taps if depends(i, t.name)), None
        )

    # -- sizes

    def _best_pixels(self) -> int:
        """Pixels of a tile: the cheapest with its tails; the larger of equals."""
        extent = self._axes.row.extent
        total = extent if isinstance(extent, int) else 64
        best = (math.inf, 0)
        for pixels in (p for p in range(1, total + 1) if self._fits(p)):
            if isinstance(extent, int) or not pixels & (pixels - 1):
                cycles = total // pixels * self._cycles(pixels)
                cycles += self._cycles(total % pixels) if total % pixels else 0
                best = min(best, (cycles, -pixels))
        return -best[1]

    def _pixels_asked(self) -> list[int]:
        extent = self._axes.row.extent
        most = extent if isinstance(extent, int) else self._target.vector_registers
        return [p for p in range(1, min(most, self._target.vector_registers) + 1) if self._fits(p)]

    def _fits(self, pixels: int) -> bool:
        """Whether accumulators, one operand of all of them, and another of one fit the registers, and the code is not too long."""
        group = self._conv.group
        kept = pixels * group + min(pixels, group) + 2
        unrolled = pixels * group * self._unrolled_taps
        return pixels == 1 or (kept <= self._target.vector_registers and unrolled <= MOST_UNROLLED_FMAS)

    def _cycles(self, pixels: int) -> float:
        """Cycles of the taps along a row for a tile: two multiply-adds or loads each."""
        taps, group = self._unrolled_taps, self._conv.group
        columns = (pixels - 1) * min(self._stride, taps) + taps
        latency = FMA_LATENCY_CYCLES * taps
        return max(pixels * group * taps / 2, (group * taps + columns) / 2, latency) + 1

    @property
    def _stride(self) -> int:
        return slope(self._diagonals, self._diagonals.compute.axes[-3].name)

    @property
    def _unrolled_taps(self) -> int:
        tap = self._tap_of_row
        extent = 1 if tap is None else tap.extent
        return extent if isinstance(extent, int) and extent <= _LARGEST_UNROLLED_WINDOW else 1

    def _cycles_of_line(self) -> float:
        """Cycles of one line of the image for one vector of channels."""
        taps = math.prod(count(t.extent) for t in self._conv.taps)
        return count(self._axes.row.extent) * (self._conv.group * (taps / 2 + 1) + 4)

    def _task(self) -> _Task:
        extent, row = self._axes.channels.extent, self._axes.row.extent
        assert isinstance(extent, int)
        tiles = -(-extent // self._width)
        lines = 1 if self._axes.window is None else count(self._axes.window.extent)
        outer = math.prod(count(a.extent) for a in self._axes.outer)
        total = self._cycles_of_line() * tiles * lines * outer
        wanted = max(1, -(-asked_tasks(self._knobs, total, self._target) // outer))
        parts = min(tiles, wanted)
        chunk = self._tiles_of_task(-(-tiles // parts))
        left = -(-wanted // parts)
        if not isinstance(row, int):  # scratch is of constant size
            pixels = self._pixels * _TILES_OF_UNKNOWN_ROW
        else:
            pixels = row if self._axes.window is not None else -(-row // left // self._pixels) * self._pixels
        lines = max(1, min(self._most_lines(chunk or tiles), -(-lines // left)))
        if self._axes.window is not None:
            lines = self._knobs.split("lines", self._axes.window.extent, lines)
        return _Task(chunk * self._width, lines, 0 if isinstance(row, int) and pixels >= row else pixels)

    def _tiles_of_task(self, wanted: int) -> int:
        """About ``wanted`` vectors of channels; 0 for all. A last vector that is not full is apart from the others."""
        extent = self._axes.channels.extent
        assert isinstance(extent, int)
        tiles, rest = divmod(extent, self._width)
        if wanted >= tiles + bool(rest):
            return 0
        return wanted if not rest else next(size for size in range(min(wanted, tiles), 0, -1) if tiles % size == 0)

    def _most_lines(self, tiles: int) -> int:
        """Lines of a window whose data takes a small part of the second-level cache."""
        line = count(self._axes.row.extent) * tiles * self._width * self._conv.tensor.dtype.itemsize
        return max(1, self._target.l2 // _L2_PARTS_PER_TASK // (line * self._stride**2))

    # -- loops

    def steps(self) -> Schedule:
        out, window, row, channel = self._output.name, self._axes.window, self._axes.row.name, self._axes.channels.name
        task = self._task()
        steps: list[Step] = []
        tasks: list[str] = [a.name for a in self._axes.outer]
        blocks: list[str] = []

        def split(axis: str, size: int, into: list[str]) -> None:
            if size > 1:
                steps.append(Split(out, axis, size))
            into.append(f"{axis}.{size}" if size > 1 else axis)

        if window is not None:
            split(window.name, task.lines, tasks)
        if task.channels > self._width:
            split(channel, task.channels, tasks)
        split(channel, self._width, tasks if task.channels == self._width else blocks)
        if window is not None and task.lines > 1:
            blocks.append(window.name)
        if task.pixels > self._pixels:
            split(row, task.pixels, tasks)
        split(row, self._pixels, tasks if task.pixels == self._pixels else blocks)
        nest = (*tasks, *blocks)
        inner = (row, channel) if self._pixels > 1 else (channel,)
        steps += [
            *([Unroll(out, row)] if self._pixels > 1 else []),
            Vectorize(out, channel),
            Reorder(out, (*nest, *inner)),
        ]
        if tasks:
            steps.append(Parallel(out, tuple(tasks)))
        steps.append(ComputeAt(self._diagonals.name, out, nest[-1]))
        return (*steps, *self._accumulate(), *self._copied(tasks[-1] if tasks else ROOT), *self._packed())

    def _accumulate(self) -> Schedule:
        """Weights of a diagonal serve all pixels, or a pixel all diagonals, whichever needs fewer registers."""
        stage, tap = self._diagonals, self._tap_of_row
        *outer, row, diagonal, channel = (a.name for a in stage.compute.axes)
        own = (diagonal, row) if self._pixels <= self._conv.group else (row, diagonal)
        assert stage.reduction is not None
        taps = [t.name for t in stage.reduction.axes if t != tap]
        last = [] if tap is None else [tap.name]
        order = Reorder(stage.name, (*outer, *taps, *last, *own, channel))
        unrolled = [*own, *(last if self._unrolled_taps > 1 else ())]
        return (order, *(Unroll(stage.name, n) for n in unrolled), Vectorize(stage.name, channel))

    def _copied(self, loop: str) -> Schedule:
        """Computed data goes to scratch once per task."""
        if self._local is None:
            return ()
        local = self._local
        last = local.compute.axes[-1]
        steps, names = vector_loops(local, last.name, self._width, 1, last.extent)
        others = tuple(a.name for a in local.compute.axes[:-1])
        place = ComputeAt(local.name, self._output.name, loop, "scratch")
        return (place, *steps, Reorder(local.name, (*others, *names)))

    def _packed(self) -> Schedule:
        """Turned weights ``[r, i, k..]`` in the order in which a tile of channels reads them."""
        weight = self._conv.weight.tensor
        size = math.prod(d for d in weight.shape if isinstance(d, int)) * weight.dtype.itemsize
        taps = tuple((axis, 1, 0) for axis in range(2, weight.rank))
        order = ((1, self._width, 0), *taps, (0, 1, 0), (1, 1, self._width))
        distance = self._knobs.choice("bytes ahead", BYTES_AHEAD, prefetch_distance(size, self._target))
        return packing(weight.name, order, distance)
