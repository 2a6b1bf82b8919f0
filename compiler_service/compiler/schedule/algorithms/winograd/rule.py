"""Convolutions by Winograd's filtering, where the model of the target says that it pays.

A task computes some rows of tiles from data to output: it copies the padded data it needs, transforms it, multiplies (p, q) by
(p, q) with the register tile of every other product, and transforms back into the epilogue. Chunks of output channels keep the
products within the second-level cache.

Weights are transformed at compile time, which makes them up to four times as large. Where an image has so few tiles that all of
them accumulate in registers, each weight is used once: there the original is read from memory, and transformed on its way into
the registers.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from compiler_service.compiler.schedule.algorithms.winograd.choosing import choose_blocking
from compiler_service.compiler.schedule.algorithms.winograd.convolution import Convolution
from compiler_service.compiler.schedule.algorithms.winograd.model import (
    BYTES_OF_ELEMENT,
    WinogradBlocking,
    is_considered,
    vector_width,
)
from compiler_service.compiler.schedule.algorithms.winograd.step import Winograd, convolution_of
from compiler_service.compiler.schedule.language.schedule import Schedule, Step
from compiler_service.compiler.schedule.language.steps import (
    ComputeAt,
    FetchNext,
    Guard,
    Parallel,
    PrefetchTile,
    Reorder,
    Split,
    Unroll,
    Vectorize,
)
from compiler_service.compiler.schedule.model.analysis import KernelView, ends_in_place, inlined, only_reduction
from compiler_service.compiler.schedule.model.tiles import vector_loops
from compiler_service.compiler.schedule.rules.contraction.packing import (
    A_TILE,
    BYTES_AHEAD,
    BYTES_NEAR,
    near_distance,
    packing,
    prefetch_distance,
)
from compiler_service.compiler.tensor_expr.tensor import Placeholder
from shared_ir.dtype import DType
from shared_ir.expr.dim import Dim
from shared_ir.machine.target import Target


def winograd_schedule(kernel: KernelView, target: Target, blocking: WinogradBlocking | None = None) -> Schedule | None:
    """The schedule with ``blocking``, by default what the model chooses, or the knobs; None where filtering does not apply or pay."""
    stage = only_reduction(kernel.state)
    if stage is None or (conv := convolution_of(stage)) is None or not _applies(kernel, conv, target):
        return None
    knobs = kernel.knobs.within("winograd")
    blocking = blocking or choose_blocking(conv, target, knobs, anyway=kernel.is_open)
    return None if blocking is None else _Plan(kernel, conv, stage.name, target, blocking).steps()


def _applies(kernel: KernelView, conv: Convolution, target: Target) -> bool:
    weight = conv.weight.tensor
    constant = weight in kernel.constants and isinstance(weight.op, Placeholder)
    width = vector_width(conv, target)
    whole = width > 0 and (conv.depth // conv.planes % width == 0 or not conv.taps)  # no vector crosses planes
    known = constant and is_considered(conv) and conv.tensor.dtype is DType.FLOAT32
    return known and whole and ends_in_place(kernel, conv.tensor)


class _Plan:
    """The steps for one convolution."""

    def __init__(
        self, kernel: KernelView, conv: Convolution, name: str, target: Target, blocking: WinogradBlocking
    ) -> None:
        self._kernel, self._name, self._target, self._blocking = kernel, name, target, blocking
        self._weight = conv.weight.tensor.name
        self._weight_axes = conv.weight_axes
        self._conv = conv
        before = (Winograd(name, self._weight, conv.weight_axes, blocking.tile, blocking.chunk, conv.stride),)
        made = ("data", "rows", "data.transformed", "accumulated", "product", "columns")
        weights = ("weight.rows", "weight.transformed") if blocking.chunk else ()
        keep = frozenset(f"{name}.{s}" for s in (*made, *weights))
        self._before: Schedule = (*before, *inlined(kernel.after(before), keep))
        self._state = kernel.after(self._before)
        self._width = vector_width(conv, target)
        both = conv.filterings(blocking.tile)
        self._points = {"p": both[0].size, "q": both[1].size}
        self._parts = max(f.parts for f in both)
        self._tile = (both[0].tile, both[1].tile)
        self._depth = conv.depth
        taps = conv.window if blocking.chunk else self._parts * prod(self._points.values())
        channels = conv.tensor.shape[-1]
        assert isinstance(channels, int)
        self._knobs = kernel.knobs.within("winograd")
        self._prefetch = prefetch_distance(taps * channels * conv.depth * BYTES_OF_ELEMENT, target)
        width = conv.image[1]
        self._columns = width if isinstance(width, int) else 0

    def steps(self) -> Schedule:
        loops, task = self._output_loops()
        columns = f"{self._name}.columns"
        out = self._state.output
        back: Schedule = (
            ComputeAt(columns, out.name, self._serial_loops()[-1], "stack"),
            Unroll(columns, "i"),
            Unroll(columns, "q"),
            Vectorize(columns, "oc"),
        )
        return (
            *self._before,
            *loops,
            *self._data(task),
            *self._transformed(task),
            *(self._product_of_chunks() if self._blocking.chunk else self._product(task)),
            *(back if self._conv.dilation == 1 else self._phases_of_columns(task)),
        )

    # -- the output

    def _vector_loop(self) -> str:
        return f"{self._state.output.compute.axes[-1].name}.{self._width}"

    def _image_axes(self) -> list[tuple[str, int, int, Dim]]:
        """(name, outputs of a tile, tiles of a task (0: all), extent) of the output's rows, where it has any, and of its columns."""
        b, axes = self._blocking, self._state.output.compute.axes[:-1]
        found = [(axes[-1].name, self._tile[1], b.columns, self._conv.image[1])]
        if self._conv.has_rows:
            found.insert(0, (axes[-2].name, self._tile[0], b.rows, self._conv.image[0]))
        return found

    def _serial_loops(self) -> tuple[str, ...]:
        """The loops of a task around those of a tile."""
        tiles = tuple(
            f"{name}.{tile}" if tile > 1 else name for name, tile, count, _ in self._image_axes() if count != 1
        )
        return (self._vector_loop(), *tiles) if self._blocking.chunk else (*tiles, self._vector_loop())

    def _output_loops(self) -> tuple[Schedule, str]:
        """(steps, last parallel loop)"""
        if self._conv.dilation > 1:
            return self._output_loops_of_phases()
        out, image = self._state.output, self._image_axes()
        oc = out.compute.axes[-1].name
        sizes = [(name, count * tile if count else 0, count > 1, extent) for name, tile, count, extent in image]
        steps, tasks = self._task_loops(sizes)
        steps += [Split(out.name, name, tile) for name, tile, _, _ in image if tile > 1]
        steps.append(Split(out.name, oc, self._width))
        steps += [
            Guard(out.name, f"{name}.{tile}")
            for name, tile, _, extent in image
            if tile > 1 and (not isinstance(extent, int) or extent % tile)
        ]
        inner = [name for name, tile, _, _ in image if tile > 1]
        steps += [
            Reorder(out.name, (*tasks, *self._serial_loops(), *inner, oc)),
            Parallel(out.name, tuple(tasks)),
            *(Unroll(out.name, name) for name in inner),
            Vectorize(out.name, oc),
        ]
        return tuple(steps), tasks[-1]

    def _task_loops(self, image: Sequence[tuple[str, int, bool, Dim]]) -> tuple[list[Step], list[str]]:
        """(steps, parallel loops): of each axis of the image its name, outputs of a task (0: all of them), whether that is a loop of
        its own, extent."""
        out, channels = self._state.output, self._blocking.channels
        oc = out.compute.axes[-1].name
        steps: list[Step] = []
        tasks = [a.name for a in out.compute.axes[: -1 - len(image)]]
        for name, size, is_split, extent in image:
            if is_split:
                steps.append(Split(out.name, name, size))
                if self._is_cut(size, extent):
                    steps.append(Guard(out.name, f"{name}.{size}"))
            if size:
                tasks.append(f"{name}.{size}" if size > 1 else name)
        if channels:
            steps.append(Split(out.name, oc, channels))
            tasks.append(f"{oc}.{channels}")
        return steps, tasks

    def _is_cut(self, size: int, extent: Dim) -> bool:
        """Whether the last task of a line has less to do than the others: it does as much, and leaves out what is not wanted."""
        return sum(self._conv.filtered) == 1 and isinstance(extent, int) and extent % size > 0

    def _output_loops_of_phases(self) -> tuple[Schedule, str]:
        """(steps, last parallel loop): what is transformed back lies there phase by phase, and is picked in order."""
        out = self._state.output
        ow, oc = (a.name for a in out.compute.axes[-2:])
        size = self._blocking.columns * self._tile[1] * self._conv.dilation
        steps, tasks = self._task_loops([(ow, size, size > 0, self._conv.tensor.shape[-2])])
        steps += [
            Split(out.name, oc, self._width),
            Reorder(out.name, (*tasks, ow, self._vector_loop(), oc)),
            Parallel(out.name, tuple(tasks)),
            Vectorize(out.name, oc),
        ]
        return tuple(steps), tasks[-1]

    def _phases_of_columns(self, loop: str) -> Schedule:
        stage = self._state.stage(f"{self._name}.columns")
        outer = [a.name for a in stage.compute.axes[:-4]]
        return (
            ComputeAt(stage.name, self._state.output.name, loop, "scratch"),
            Split(stage.name, "oc", self._width),
            Reorder(stage.name, (*outer, "th", "tw", f"oc.{self._width}", "i", "oc")),
            Unroll(stage.name, "i"),
            Vectorize(stage.name, "oc"),
        )

    # -- the stages before it

    def _data(self, loop: str) -> Schedule:
        stage = self._state.stage(f"{self._name}.data")
        axes = [a.name for a in stage.compute.axes]
        vectors, names = vector_loops(stage, axes[-1], self._width, 1, stage.compute.axes[-1].extent)
        return (
            ComputeAt(stage.name, self._state.output.name, loop, "scratch"),
            *vectors,
            Reorder(stage.name, (*axes[:-1], *names)),
        )

    def _transformed(self, loop: str) -> Schedule:
        rows, stage = f"{self._name}.rows", self._state.stage(f"{self._name}.data.transformed")
        outer = [a.name for a in stage.compute.axes if a.name not in ("p", "q", "th", "tw", "c")]
        return (
            ComputeAt(stage.name, self._state.output.name, loop, "scratch"),
            Split(stage.name, "c", self._width),
            Reorder(stage.name, (*outer, "th", "tw", f"c.{self._width}", "p", "q", "c")),
            Unroll(stage.name, "p"),
            Unroll(stage.name, "q"),
            Vectorize(stage.name, "c"),
            ComputeAt(rows, stage.name, f"c.{self._width}", "stack"),
            Unroll(rows, "p"),
            Unroll(rows, "b"),
            Vectorize(rows, "c"),
        )

    def _product(self, loop: str) -> Schedule:
        b = self._blocking
        stage, inner = f"{self._name}.product", f"{self._name}.accumulated"
        outer = [a.name for a in self._state.stage(stage).compute.axes[:-5]]
        tile = b.vectors * self._width
        wide = (f"oc.{self._width}",) if b.vectors > 1 else ()
        tiled, blocks = self._tiles()
        unrolled = (*(name for name, _ in tiled), *wide)
        unread = self._state.stage(stage).unread
        apart = {point: f"{point}.{self._points[point] - 1}" for _, point in unread}
        points = [name for point in ("p", "q") for name in (apart.get(point), point) if name is not None]
        kinds: list[Step] = []
        for name in (stage, inner):
            kinds += [Split(name, "oc", self._width)] if wide else []
            kinds += [Unroll(name, loop_name) for loop_name in unrolled]
            kinds.append(Vectorize(name, "oc"))
        alone = [name for name in ("th", "tw") if name not in unrolled]
        return (
            ComputeAt(stage, self._state.output.name, loop, "scratch"),
            *(Split(stage, point, self._points[point] - 1) for _, point in unread),
            Split(stage, "oc", tile),
            *(Split(stage, name, size) for name, size in tiled),
            *kinds,
            Reorder(stage, (*outer, *points, f"oc.{tile}", *blocks, *unrolled, "oc")),
            Reorder(inner, (*outer, *alone, "p", "q", *(("s",) if self._parts > 1 else ()), "c", *unrolled, "oc")),
            ComputeAt(inner, stage, blocks[1], "stack"),
            *self._weights(inner, tile),
        )

    def _tiles(self) -> tuple[list[tuple[str, int]], list[str]]:
        """The axes of which several tiles accumulate together, with how many, and the loops over such blocks of tiles."""
        sizes = (("th", self._blocking.down), ("tw", self._blocking.across))
        return [pair for pair in sizes if pair[1] > 1], [f"{name}.{n}" if n > 1 else name for name, n in sizes]

    def _weights(self, stage: str, tile: int) -> Schedule:
        b = self._blocking
        parts = b.channels // tile if b.channels % tile == 0 else 0
        oc = sum(self._conv.filtered) + (self._parts > 1)  # behind the axes of points, and of parts
        chunks = ((oc, b.channels, 0),) if parts else ()  # a task reads its weights in order
        of_part = ((oc - 1, 1, 0),) if self._parts > 1 else ()
        points = ((axis, 1, 0) for axis in range(oc - len(of_part)))
        order = (*chunks, *points, (oc, tile, parts), *of_part, (oc + 1, 1, 0), (oc, 1, tile))
        columns = b.columns or -(-self._columns // self._tile[1])
        swept = b.rows > b.down or columns > b.across
        sweeps = (("th", b.rows, b.down), ("tw", columns, b.across))
        default = A_TILE if self._prefetch and swept else self._prefetch
        distance = self._knobs.choice("ahead", (*BYTES_AHEAD, A_TILE) if swept else BYTES_AHEAD, default)
        if distance != A_TILE:
            return packing(self._weight, order, distance)
        ahead = PrefetchTile(stage, "c", self._weight, sweeps)
        near = near_distance(tile * self._parts * self._depth * BYTES_OF_ELEMENT, self._target)
        near = self._knobs.choice("bytes near", BYTES_NEAR, near)
        return packing(self._weight, order, 0, ahead, near)

    def _product_of_chunks(self) -> Schedule:
        """For each chunk of channels and each row of points: all tiles accumulate, as the weights are transformed."""
        made = ("product", "accumulated", "weight.transformed", "weight.rows")
        stage, inner, weight, rows = (f"{self._name}.{s}" for s in made)
        outer = [a.name for a in self._state.stage(stage).compute.axes[:-5]]
        tiled, blocks = self._tiles()
        unrolled = ("q", *(name for name, _ in tiled))
        alone = [name for name in ("th", "tw") if name not in unrolled]
        last = self._points["p"] - 1
        apart = any(point == "p" for _, point in self._state.stage(stage).unread)
        points = (f"p.{last}", "p") if apart else ("p",)
        return (
            ComputeAt(stage, self._state.output.name, self._vector_loop(), "scratch"),
            *((Split(stage, "p", last),) if apart else ()),
            *(Split(stage, name, size) for name, size in tiled),
            Unroll(stage, "p"),
            *(Unroll(own, name) for own in (stage, inner) for name in unrolled),
            *(Vectorize(own, "oc") for own in (stage, inner, weight, rows)),
            Reorder(stage, (*outer, "chunk", *points, *blocks, *unrolled, "oc")),
            Reorder(inner, (*outer, *alone, "p", "chunk", "c", *unrolled, "oc")),
            ComputeAt(inner, stage, blocks[1], "stack"),
            ComputeAt(weight, inner, "c", "stack"),
            Unroll(weight, "q"),
            ComputeAt(rows, inner, "c", "stack"),
            Unroll(rows, "b"),
            *self._original_weights(inner, rows),
        )

    def _original_weights(self, stage: str, reader: str) -> Schedule:
        """In the order in which they are read; the next chunk is asked for while this one is multiplied."""
        b, width = self._blocking, self._width
        oc, c, kh, kw = self._weight_axes
        parts = b.channels // width
        chunks = ((oc, b.channels, 0),) if parts else ()
        order = (*chunks, (oc, width, parts), (c, 1, 0), (kh, 1, 0), (kw, 1, 0), (oc, 1, width))
        ahead = FetchNext(stage, "c", self._weight, "c", b.chunk, reader, (("p", self._points["p"], 1),))
        return (
            *packing(self._weight, order, 0),
            *((ahead,) if self._knobs.flag("chunk ahead", default=self._prefetch > 0) else ()),
        )
