"""Convolutions of stride 1 by Winograd's filtering, where the model of the target says that it pays.

A task computes some rows of tiles from data to output: it copies the padded data it needs, transforms it, multiplies (p, q) by
(p, q) with the register tile of every other product, and transforms back into the epilogue. Chunks of output channels keep the
products within the second-level cache.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from compiler_service.schedule.analysis import KernelView, ends_in_place, inlined, reductions
from compiler_service.schedule.rules.packing import L2_BYTES, arrival_rate, near_distance, packing, prefetch_distance
from compiler_service.schedule.state import convolution_of
from compiler_service.schedule.steps import (
    ComputeAt,
    Guard,
    Parallel,
    Prefetch,
    Reorder,
    Schedule,
    Split,
    Step,
    Unroll,
    Vectorize,
    Winograd,
)
from compiler_service.schedule.tiles import lanes, register_tile, tile_cost, tile_cycles, vector_loops
from compiler_service.tensor_expr.tensor import Placeholder
from compiler_service.tensor_expr.winograd import Convolution, Matrix, filtering
from shared_ir.dtype import DType
from shared_ir.target import Target

_FLOAT = 4
"""Bytes of an element."""
_CORES_OF_MEMORY = 2
"""So many cores that read at once have all that the memory gives."""
_BLOCK_SLACK = 1.1
"""Register blocks may take so much longer than the cheapest: fewer sweeps over the tiles hide more of the weights' arrival."""
_FEWEST_COLUMNS = 7
"""A task covers at least so many tiles of a row of tiles, or all of them."""
_UNKNOWN = (20, 48, 112)
"""What extents that the run defines are taken for."""
_GAIN = 0.9
"""A blocking must promise to take less than this part of the direct method's time: rounding errors are larger."""


def winograd_schedule(kernel: KernelView, target: Target) -> Schedule | None:
    return winograd_plan(kernel, target)


def winograd_plan(kernel: KernelView, target: Target, blocking: Blocking | None = None) -> Schedule | None:
    """The schedule with ``blocking``, by default what the model chooses; None where filtering does not apply or pay."""
    found = reductions(kernel.state)
    if len(found) != 1:
        return None
    conv = convolution_of(found[0])
    if conv is None or not _applies(kernel, conv) or not ends_in_place(kernel, conv.tensor):
        return None
    blocking = blocking or _choose(conv, target)
    return None if blocking is None else _Plan(kernel, conv, found[0].name, target, blocking).steps()


def _applies(kernel: KernelView, conv: Convolution) -> bool:
    weight = conv.weight.tensor
    constant = weight in kernel.constants and isinstance(weight.op, Placeholder)
    return constant and conv.kernel == 3 and conv.tensor.dtype is DType.FLOAT32


@dataclass(frozen=True)
class Blocking:
    """F(tile x tile); a task covers ``rows`` x ``columns`` tiles (0 columns: all) and ``channels`` output channels (0: all).

    ``down`` x ``across`` tiles x ``vectors`` registers accumulate.
    """

    tile: int
    rows: int
    columns: int
    channels: int
    down: int
    across: int
    vectors: int


def _choose(conv: Convolution, target: Target) -> Blocking | None:
    """The cheapest blocking, or None where the direct method is about as fast; sizes that the run defines count equally."""
    models = [_Model(conv, target, size) for size in _UNKNOWN]
    model = models[0]
    if model.channels < model.width or model.depth < model.width:
        return None
    if model.is_static:
        models = models[:1]

    def cost(b: Blocking) -> float:
        return sum(m.cost(b) / m.direct() for m in models) / len(models)

    best = min(((cost(b), b) for b in model.candidates()), key=lambda found: found[0])
    return best[1] if best[0] < _GAIN else None


class _Model:
    """Cycles of one convolution on ``target``, counted for one thread and for all of its cores together.

    Two multiply-adds start each cycle. Weights come from memory once, and from the cache level that holds them each further
    time, while the first sweep over the tiles of a task multiplies them. Extents that the run defines count as ``unknown``.
    """

    def __init__(self, conv: Convolution, target: Target, unknown: int) -> None:
        height, width, channels = conv.tensor.shape[-3:]
        depth = conv.data.tensor.shape[-1]
        self.rows, self.columns, self.channels, self.depth = (
            d if isinstance(d, int) else unknown for d in (height, width, channels, depth)
        )
        self.is_static = isinstance(height, int) and isinstance(width, int)
        self.kernel, self.width = conv.kernel, lanes(target, DType.FLOAT32)
        self._target = target
        self._images = math.prod(d for d in conv.tensor.shape[:-3] if isinstance(d, int))

    def candidates(self) -> Iterator[Blocking]:
        for tile in (4, 2):
            down, across = -(-self.rows // tile), -(-self.columns // tile)
            for rows, columns in self._task_tiles(down, across):
                parts = {self._target.cores, 1} if rows == down and columns == across else {1}
                for part in sorted(parts):
                    channels = self.channels // part
                    chunk = 0 if columns == across and self.is_static else columns
                    for block in _register_blocks(rows, columns, channels, self._target):
                        whole = channels * part == self.channels and channels % (block[2] * self.width) == 0
                        if part == 1:
                            yield Blocking(tile, rows, chunk, 0, *block)
                        elif whole and channels > self.width:
                            yield Blocking(tile, rows, chunk, channels, *block)

    def _task_tiles(self, down: int, across: int) -> Iterator[tuple[int, int]]:
        """(rows, columns) of tiles that a task may cover."""
        if not self.is_static:
            yield from ((rows, columns) for rows in (1, 2, 4) for columns in (4, 7, 8, 14))
            return
        for columns in range(1, across + 1):
            if across % columns == 0 and (columns == across or columns >= _FEWEST_COLUMNS):
                yield from ((rows, columns) for rows in range(1, down + 1))

    def direct(self) -> float:
        height, vectors = register_tile(self.columns, self.channels, self._target, DType.FLOAT32)
        product = tile_cost(self.columns, height, self.channels, vectors * self.width, self.width)
        steps = self.kernel**2 * self.depth
        sweeps = self.rows * -(-self.columns // height)
        size = steps * self.channels * _FLOAT
        total = self._images * self.rows * product * steps
        return self._both(total, 0.0, _Weights(size, self._target.cores, self._images, sweeps))

    def cost(self, b: Blocking) -> float:
        f = filtering(b.tile, self.kernel)
        columns = b.columns or -(-self.columns // b.tile)
        tiles = b.rows * columns
        channels = b.channels or self.channels
        product = self._product(b, f.size, columns, channels)
        lines = (b.rows * b.tile + self.kernel - 1) * (columns * b.tile + self.kernel - 1)
        vectors_in, vectors_out = -(-self.depth // self.width), -(-channels // self.width)
        forth = vectors_in * (2 * lines + tiles * _transform(f.data, f.size))
        back = vectors_out * tiles * _transform(f.output, f.size)
        parts = self.channels // channels
        tasks = -(-self.rows // (b.rows * b.tile)) * -(-self.columns // (columns * b.tile)) * parts * self._images
        kept = f.size**2 * tiles * (self.depth + channels) * _FLOAT
        spilled = kept / L2_BYTES if kept > self._target.l2 else 0.0
        sweeps = -(-b.rows // b.down) * -(-columns // b.across)
        size = f.size**2 * self.depth * self.channels * _FLOAT
        return self._both(
            tasks * product, tasks * (forth + back + spilled), _Weights(size, parts, tasks // parts, sweeps)
        )

    def _product(self, b: Blocking, size: int, columns: int, channels: int) -> float:
        """Cycles of the products of a task: tiles that hang over the end do without the point at infinity."""
        hangs = [
            self.is_static and extent % b.tile != 0 and n * b.tile >= extent
            for extent, n in ((self.rows, b.rows), (self.columns, columns))
        ]
        return self.depth * sum(
            n * m * _block_cost(replace(b, rows=b.rows - down), columns - across, channels, self.width)
            for n, down in ((size - 1, 0), (1, hangs[0]))
            for m, across in ((size - 1, 0), (1, hangs[1]))
        )

    def _both(self, product: float, rest: float, weights: _Weights) -> float:
        """Cycles of one thread, and those of all cores while ``cores`` of them work and share the memory."""
        cores = self._target.cores
        return self._alone(product, rest, weights, 1) + cores * self._alone(product, rest, weights, cores)

    def _alone(self, product: float, rest: float, weights: _Weights, cores: int) -> float:
        """Cycles of the core that has the most to do."""
        tasks = weights.parts * weights.times
        share = -(-tasks // cores) / tasks
        first = product * share / weights.sweeps
        return max(first, self._arrival(weights, share, cores)) + (product - product / weights.sweeps + rest) * share

    def _arrival(self, weights: _Weights, share: float, cores: int) -> float:
        """Cycles in which a core's weights arrive, the first time from memory."""
        size, target = weights.size, self._target
        again = arrival_rate(size, target)
        own = max(share, 1 / weights.parts)
        once = size / target.memory_bytes * max(own, 1 / min(cores, _CORES_OF_MEMORY))
        return once + size * max(0.0, weights.times * share - own) / again


@dataclass(frozen=True)
class _Weights:
    """``size`` bytes of weights, of which a task reads one of ``parts``; each part is read ``times`` times.

    ``sweeps`` over its tiles multiply what a task reads, the first as it arrives.
    """

    size: int
    parts: int
    times: int
    sweeps: int


def _register_blocks(rows: int, columns: int, channels: int, target: Target) -> Iterator[tuple[int, int, int]]:
    """(down, across, vectors) of accumulator blocks for ``rows`` x ``columns`` tiles: the best for each number of vectors."""
    width = lanes(target, DType.FLOAT32)
    found = []
    for vectors in (v for v in (1, 2, 3, 4, 6) if v <= max(1, -(-channels // width))):
        best = (math.inf, 0, (1, 1, 1))
        tiles = (target.vector_registers - vectors - 1) // vectors
        for down in range(1, min(rows, tiles) + 1):
            for across in range(1, min(columns, tiles // down) + 1):
                b = Blocking(0, rows, columns, 0, down, across, vectors)
                own = (_block_cost(b, columns, channels, width), -down * across * vectors, (down, across, vectors))
                best = min(best, own)
        found.append(best)
    found.sort()
    yield from (block for cost, _, block in found if cost <= found[0][0] * _BLOCK_SLACK)


def _block_cost(b: Blocking, columns: int, channels: int, width: int) -> float:
    """Cycles of one reduction step over the tiles of a task, tails included."""
    heights = ((b.rows // b.down, b.down), (1, b.rows % b.down))
    widths = ((columns // b.across, b.across), (1, columns % b.across))
    wide = b.vectors * width
    vectors = ((channels // wide, b.vectors), (1, -(-(channels % wide) // width)))
    return sum(
        n * m * k * tile_cycles(h * w, v)
        for n, h in heights
        for m, w in widths
        for k, v in vectors
        if n * m * k * h * w * v
    )


def _transform(matrix: Matrix, size: int) -> float:
    """Cycles to transform one tile of vectors along both axes; registers are short, so operations and accesses add up."""
    terms = sum(1 for row in matrix for c in row if c) - len(matrix)
    return (size + len(matrix)) * terms + size * size


class _Plan:
    """The steps for one convolution."""

    def __init__(self, kernel: KernelView, conv: Convolution, name: str, target: Target, blocking: Blocking) -> None:
        self._kernel, self._name, self._target, self._blocking = kernel, name, target, blocking
        self._weight = conv.weight.tensor.name
        before = (Winograd(name, self._weight, conv.weight_axes, blocking.tile),)
        made = ("data", "rows", "data.transformed", "accumulated", "product", "columns")
        keep = frozenset(f"{name}.{s}" for s in made)
        self._before: Schedule = (*before, *inlined(kernel.after(before), keep))
        self._state = kernel.after(self._before)
        self._width = lanes(target, DType.FLOAT32)
        self._points = filtering(blocking.tile, conv.kernel).size
        channels = (conv.tensor.shape[-1], conv.data.tensor.shape[-1])
        self._depth = channels[1] if isinstance(channels[1], int) else 0
        size = self._points**2 * math.prod(d for d in channels if isinstance(d, int)) * _FLOAT
        self._prefetch = prefetch_distance(size, target)
        width = conv.tensor.shape[-2]
        self._columns = width if isinstance(width, int) else 0

    def steps(self) -> Schedule:
        loops, task = self._output_loops()
        columns = f"{self._name}.columns"
        out = self._state.output
        return (
            *self._before,
            *loops,
            *self._data(task),
            *self._transformed(task),
            *self._product(task),
            ComputeAt(columns, out.name, self._column_loop(), "stack"),
            Unroll(columns, "i"),
            Unroll(columns, "q"),
            Vectorize(columns, "oc"),
        )

    # -- the output

    def _column_loop(self) -> str:
        return f"{self._state.output.compute.axes[-1].name}.{self._width}"

    def _output_loops(self) -> tuple[Schedule, str]:
        """(steps, last parallel loop)"""
        b, out = self._blocking, self._state.output
        *outer, oh, ow, oc = (a.name for a in out.compute.axes)
        tasks = [*outer]
        steps: list[Step] = []
        if b.rows > 1:
            steps.append(Split(out.name, oh, b.rows * b.tile))
        tasks.append(f"{oh}.{b.rows * b.tile}")
        if b.columns > 1:
            steps.append(Split(out.name, ow, b.columns * b.tile))
        if b.columns:
            tasks.append(f"{ow}.{b.columns * b.tile}")
        if b.channels:
            steps.append(Split(out.name, oc, b.channels))
            tasks.append(f"{oc}.{b.channels}")
        steps += [Split(out.name, oh, b.tile), Split(out.name, ow, b.tile), Split(out.name, oc, self._width)]
        inner = [f"{oh}.{b.tile}"] if b.rows > 1 else []
        inner += [f"{ow}.{b.tile}"] if b.columns != 1 else []
        sizes = zip((oh, ow), out.tensor.shape[-3:-1], strict=True)
        steps += [Guard(out.name, f"{n}.{b.tile}") for n, d in sizes if not isinstance(d, int) or d % b.tile]
        steps += [
            Reorder(out.name, (*tasks, *inner, self._column_loop(), oh, ow, oc)),
            Parallel(out.name, tuple(tasks)),
            Unroll(out.name, oh),
            Unroll(out.name, ow),
            Vectorize(out.name, oc),
        ]
        return tuple(steps), tasks[-1]

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
        outer = [a.name for a in stage.compute.axes[:-5]]
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
        tiled = [(name, size) for name, size in (("th", b.down), ("tw", b.across)) if size > 1]
        unrolled = (*(name for name, _ in tiled), *wide)
        blocks = ["th" if b.down == 1 else f"th.{b.down}", "tw" if b.across == 1 else f"tw.{b.across}"]
        unread = self._state.stage(stage).unread
        apart = {point: f"{point}.{self._points - 1}" for _, point in unread}
        points = [name for point in ("p", "q") for name in (apart.get(point), point) if name is not None]
        kinds: list[Step] = []
        for name in (stage, inner):
            kinds += [Split(name, "oc", self._width)] if wide else []
            kinds += [Unroll(name, loop_name) for loop_name in unrolled]
            kinds.append(Vectorize(name, "oc"))
        alone = [name for name in ("th", "tw") if name not in unrolled]
        return (
            ComputeAt(stage, self._state.output.name, loop, "scratch"),
            *(Split(stage, point, self._points - 1) for _, point in unread),
            Split(stage, "oc", tile),
            *(Split(stage, name, size) for name, size in tiled),
            *kinds,
            Reorder(stage, (*outer, *points, f"oc.{tile}", *blocks, *unrolled, "oc")),
            Reorder(inner, (*outer, *alone, "p", "q", "c", *unrolled, "oc")),
            ComputeAt(inner, stage, blocks[1], "stack"),
            *self._weights(inner, tile),
        )

    def _weights(self, stage: str, tile: int) -> Schedule:
        b = self._blocking
        parts = b.channels // tile if b.channels % tile == 0 else 0
        chunks = ((2, b.channels, 0),) if parts else ()  # a task reads its weights in order
        order = (*chunks, (0, 1, 0), (1, 1, 0), (2, tile, parts), (3, 1, 0), (2, 1, tile))
        columns = b.columns or -(-self._columns // b.tile)
        swept = b.rows > b.down or columns > b.across
        sweeps = (("th", b.rows, b.down), ("tw", columns, b.across))
        ahead = Prefetch(stage, "c", self._weight, sweeps) if self._prefetch and swept else None
        near = near_distance(tile * self._depth * _FLOAT, self._target)
        return packing(self._weight, order, self._prefetch, ahead, near)
