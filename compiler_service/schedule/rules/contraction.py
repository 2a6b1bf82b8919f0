"""Sums of products: one register-tiled template for matmul, batched matmul and every dense or grouped convolution.

``rows`` x ``columns`` accumulators stay in registers over the whole reduction: each step loads a few vectors of the packed operand
and multiplies them with broadcast elements of the data. Columns are the last axis (output channels, channels last), rows the
one before it (pixels of an image row, rows of a matrix). Data that is padded or computed first is copied to the thread's
scratch, a chunk of rows at a time; epilogues read the accumulators.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass, replace

from compiler_service.schedule.analysis import KernelView, bound_axes, depends, inlined, reductions
from compiler_service.schedule.rules.packing import packed_order, prefetch_distance
from compiler_service.schedule.state import Stage, State
from compiler_service.schedule.steps import (
    CacheRead,
    CacheWrite,
    ComputeAt,
    Pack,
    Parallel,
    Reorder,
    Schedule,
    Split,
    Step,
    Unroll,
    Vectorize,
)
from compiler_service.schedule.tiles import chunk, lanes, register_tile, tile_cycles, vector_loops
from compiler_service.tensor_expr.tensor import Axis, Load, Placeholder, ReduceOp, axis_var
from shared_ir.dim import Dim
from shared_ir.expr import Binary, BinaryOp, Cast, Const, Expr, substitute, variables, walk
from shared_ir.simplify import simplify
from shared_ir.target import Target

_UNROLLED_REDUCTION = 4
"""A reduction axis of at most this extent is unrolled."""
_ROW_CHUNK = 4
_TILES = ((6, 4), (4, 6), (8, 3), (7, 3), (12, 2), (14, 2), (8, 2), (7, 4), (28, 1), (14, 1), (4, 2), (4, 4))
"""Register tiles (rows, vectors) that a tuner may try."""
_WINDOW_CHUNK_TILES = 4
_UNKNOWN_ROWS = 64
_MOST_GROUP_VECTORS = 4
_FEWEST_TILES, _MOST_TILES = 4, 8
"""Row tiles of a task when the number of rows is not known: weights are read once for all of them."""


@dataclass(frozen=True)
class Contraction:
    """``stage[.., m, n] = sum over k of data[.., m, k] * weight[k, n]``.

    Attributes:
        rows: axis of the row tile, or None for a vector times a matrix.
        groups: columns of one group when ``data`` depends on ``n // groups``, else 0.
        window: axis before ``rows`` along which the data window slides too (image rows), or None.
    """

    stage: Stage
    data: Load
    weight: Load
    columns: str
    rows: str | None
    groups: int
    window: str | None


def contraction_schedule(kernel: KernelView, target: Target) -> Schedule | None:
    plan = _plan(kernel, target)
    return None if plan is None else plan.steps()


def contraction_candidates(kernel: KernelView, target: Target) -> tuple[Schedule, ...]:
    """Other schedules worth measuring, the default first: register tiles and chunk sizes around the model's choice."""
    plan = _plan(kernel, target)
    if plan is None:
        return ()
    found = dict.fromkeys(plan.with_blocking(b).steps() for b in plan.neighbours())
    return tuple(dict.fromkeys((plan.steps(), *found)))


def _plan(kernel: KernelView, target: Target) -> _Plan | None:
    found = reductions(kernel.state)
    if len(found) != 1 or match_contraction(found[0]) is None:
        return None
    steps: tuple[Step, ...] = ()
    if found[0] is kernel.state.output:
        steps = (CacheWrite(found[0].name),)
    state = kernel.after(steps)
    local = _local_data(state, reductions(state)[0])
    steps += inlined(state, frozenset() if local is None else frozenset({local.name}))
    state = kernel.after(steps)
    (reduction,) = reductions(state)
    match = match_contraction(reduction)
    if match is None or not _same_axes(state, reduction):
        return None
    return _Plan(kernel, state, match, local, target, steps)


def match_contraction(stage: Stage) -> Contraction | None:
    """The operands and axes of ``stage`` if it is a sum of products with a columns axis that the data does not depend on."""
    if stage.reduction is None or stage.reduction.op is not ReduceOp.SUM or not stage.compute.axes:
        return None
    product = stage.body
    if not (isinstance(product, Binary) and product.op is BinaryOp.MUL):
        return None
    sides = [_load(product.lhs), _load(product.rhs)]
    columns = stage.compute.axes[-1]
    for data, weight in (sides, sides[::-1]):
        if data is None or weight is None or not any(i == columns.var for i in weight.indices):
            continue
        groups = _groups(data, columns.name)
        if groups is not None:
            rows, window = _rows(stage, data, weight)
            return Contraction(stage, data, weight, columns.name, rows, groups, window)
    return None


def _load(expr: Expr) -> Load | None:
    while isinstance(expr, Cast):
        expr = expr.x
    return expr if isinstance(expr, Load) else None


def _groups(data: Load, columns: str) -> int | None:
    """0 when ``data`` does not depend on the columns, g when it does so only through ``columns // g``, else None."""
    found: set[int] = set()
    for index in data.indices:
        nodes = list(_occurrences(index))
        total = sum(1 for e in nodes if e == axis_var(columns))
        grouped = [
            e
            for e in nodes
            if isinstance(e, Binary) and e.op is BinaryOp.FLOOR_DIV and e.lhs == axis_var(columns)
        ]
        if len(grouped) != total or not all(isinstance(getattr(e.rhs, "value", None), int) for e in grouped):
            return None
        found |= {int(getattr(e.rhs, "value", 0)) for e in grouped}
    return None if len(found) > 1 else found.pop() if found else 0


def _occurrences(expr: Expr) -> Iterator[Expr]:
    """Every node, as often as it occurs."""
    yield expr
    for child in expr.children():
        yield from _occurrences(child)


def _rows(stage: Stage, data: Load, weight: Load) -> tuple[str | None, str | None]:
    """(row axis, window axis)"""
    spatial = [a.name for a in stage.compute.axes[:-1]]
    used = [
        n
        for n in spatial
        if any(depends(i, n) for i in data.indices) and not any(depends(i, n) for i in weight.indices)
    ]
    rows = used[-1] if used else None
    if rows is None or rows == spatial[0] or stage.reduction is None:
        return rows, None
    before = spatial[spatial.index(rows) - 1]
    reduced = {a.var for a in stage.reduction.axes}
    slides = any(depends(i, before) and reduced & variables(i) for i in data.indices)
    return rows, before if slides else None


def _local_data(state: State, reduction: Stage) -> Stage | None:
    """The computed stage that the reduction reads as data (padding, a prologue), if any."""
    match = match_contraction(reduction)
    if match is None:
        return None
    source = state.stage_of(match.data.tensor)
    return source if source is not None and source.reduction is None else None


def _same_axes(state: State, reduction: Stage) -> bool:
    """Whether the output reads the reduction at its own index."""
    output = state.output
    own = tuple(a.var for a in output.compute.axes)
    reads = [e for e in walk(output.body) if isinstance(e, Load) and e.tensor is reduction.tensor]
    return bool(reads) and all(ld.indices == own for ld in reads) and len(bound_axes(state, output)) == len(own)


@dataclass(frozen=True)
class Blocking:
    """Sizes of the loop nest; 0 leaves a loop out.

    ``height`` x ``vectors`` registers accumulate; a task covers ``window_chunk`` x ``row_chunk`` x ``column_chunk``.
    """

    height: int
    vectors: int
    tile: int
    window_chunk: int
    row_chunk: int
    column_chunk: int


class _Plan:
    """The steps for one matched contraction.

    Loops of the output, outermost first: tasks (batch axes, window chunk, row chunk, column chunk or group), column tile, window,
    row tile, axes that choose other weights for the same data, and the register tile itself. Accumulators are computed inside
    the innermost loop outside the register tile.
    """

    def __init__(
        self,
        kernel: KernelView,
        state: State,
        match: Contraction,
        local: Stage | None,
        target: Target,
        before: Schedule,
    ) -> None:
        self._kernel, self._match, self._local, self._target = kernel, match, local, target
        self._before = before
        self._output = state.output
        self._axes = {s.name: o for s, o in zip(match.stage.compute.axes, self._output.compute.axes, strict=True)}
        self._columns = self._axes[match.columns]
        self._rows = None if match.rows is None else self._axes[match.rows]
        self._window = None if match.window is None else self._axes[match.window]
        others = [a for a in self._output.compute.axes if a not in (self._columns, self._rows, self._window)]
        last = len(self._output.compute.axes) if self._rows is None else self._output.compute.axes.index(self._rows)
        self._inner = [a for a in others if self._output.compute.axes.index(a) > last]
        self._outer = [a for a in others if a not in self._inner]
        self._width = lanes(target, match.stage.tensor.dtype)
        if match.groups:  # vectors must not cross groups
            self._width = self._group_width(match.groups)
        self._blocking = self._choose_blocking()

    # -- sizes

    def with_blocking(self, blocking: Blocking) -> _Plan:
        other = copy(self)
        other._blocking = blocking
        return other

    def neighbours(self) -> Iterator[Blocking]:
        """Other register tiles that fit, and halved or doubled chunks of the default."""
        own = self._blocking
        if not self._match.groups:
            rows = 1 if self._rows is None else self._rows.extent
            for height, vectors in _TILES:
                fits = height * vectors + vectors + 1 <= self._target.vector_registers
                if fits and (not isinstance(rows, int) or height <= rows):
                    tile = vectors * self._width
                    chunks = [c if c % tile == 0 else 0 for c in (own.column_chunk,)]
                    row_chunk = -(-own.row_chunk // height) * height
                    yield replace(
                        own, height=height, vectors=vectors, tile=tile, column_chunk=chunks[0], row_chunk=row_chunk
                    )
        for name in ("window_chunk", "row_chunk", "column_chunk"):
            size = getattr(own, name)
            unit = {"window_chunk": 1, "row_chunk": own.height, "column_chunk": own.tile}[name]
            for other in (size // 2 // unit * unit, size * 2):
                if other > 0 and other != size:
                    yield replace(own, **{name: other})

    def _choose_blocking(self) -> Blocking:
        columns: Dim = self._match.groups or self._columns.extent
        rows: Dim = 1 if self._rows is None else self._rows.extent
        height, vectors = register_tile(rows, columns, self._target, self._match.stage.tensor.dtype)
        tile = max(2, vectors * self._width)
        if self._match.groups:
            height, vectors, tile = self._group_tile(self._match.groups, rows)
        elif isinstance(columns, int) and columns < self._width:
            tile = max(2, columns)
        wanted = 2 * self._target.cores
        window_chunk, row_chunk = self._data_chunks(height)
        parts = self._parts(self._window, window_chunk) * self._parts(self._rows, row_chunk)
        for axis in self._outer:
            parts *= self._parts(axis, 1)
        column_chunk = 0
        if not self._match.groups:
            column_chunk = self._column_chunk(columns, tile, max(-(-wanted // parts), self._weight_parts()))
            parts *= self._parts(self._columns, column_chunk)
            if parts < wanted and row_chunk == 0 and self._rows is not None:
                row_chunk = self._smaller(self._rows.extent, height, -(-wanted // parts))
        return Blocking(height, vectors, tile, window_chunk, row_chunk, column_chunk)

    def _weight_parts(self) -> int:
        """Tasks that the weights are divided among where there may be few rows: as many as there are cores, if that pays."""
        if self._rows is None or isinstance(self._rows.extent, int) or self._match.weight.tensor not in self._kernel.constants:
            return 1
        return 2 * self._target.cores if self._weight_bytes() > self._target.l2 // 4 else 1

    def _weight_bytes(self) -> int:
        weight = self._match.weight
        return math.prod(d for d in weight.tensor.shape if isinstance(d, int)) * weight.dtype.itemsize

    def _group_width(self, group: int) -> int:
        """Lanes of a vector within a group: all of them where the last vector may be masked and is at least half full."""
        full = lanes(self._target, self._match.stage.tensor.dtype)
        exact = math.gcd(full, group)
        filled = group / (-(-group // full) * full)
        return full if self._target.masked and filled > exact / full and group > full else exact

    def _group_tile(self, group: int, rows: Dim) -> tuple[int, int, int]:
        """(rows, vectors, columns) of the register tile: whole tiles make up a group."""
        best: tuple[float, int, tuple[int, int, int]] = (math.inf, 0, (1, 1, group))
        total = rows if isinstance(rows, int) else _UNKNOWN_ROWS
        for tile in (t for t in range(2, group + 1) if group % t == 0):
            vectors = -(-tile // self._width)
            most = (self._target.vector_registers - vectors - 1) // vectors
            if vectors > _MOST_GROUP_VECTORS or (tile % self._width and tile != group):
                continue
            for height in range(1, max(1, min(most, total)) + 1):
                steps = group // tile * (total // height * tile_cycles(height, vectors))
                steps += group // tile * tile_cycles(total % height, vectors) if total % height else 0
                best = min(best, (steps, -height * vectors, (height, vectors, tile)))
        return best[2]

    def _parts(self, axis: Axis | None, size: int) -> int:
        if axis is None or size == 0:
            return 1
        return -(-axis.extent // size) if isinstance(axis.extent, int) else 2 * self._target.cores

    def _smaller(self, extent: Dim, tile: int, pieces: int) -> int:
        size = chunk(extent, tile, pieces)
        return 0 if isinstance(extent, int) and size >= extent else size

    def _column_chunk(self, columns: Dim, tile: int, wanted: int) -> int:
        """Columns of one task; 0 for all of them."""
        if not isinstance(columns, int):
            return tile
        return self._smaller(columns, tile, wanted)

    def _data_chunks(self, height: int) -> tuple[int, int]:
        """(window chunk, row chunk) so that the data of one task stays in half of the second-level cache."""
        budget = self._target.l2 // 2
        depth = self._row_bytes()
        if self._window is None:
            if self._rows is None or (isinstance(self._rows.extent, int) and self._rows.extent * depth <= budget):
                return 0, 0
            if not isinstance(self._rows.extent, int):
                tiles = budget // max(1, depth * height)
                return 0, height * max(_FEWEST_TILES, min(_MOST_TILES, tiles))
            return 0, self._smaller(self._rows.extent, height, self._pieces(self._rows.extent, depth, height, budget))
        row_chunk = 0
        width: int
        assert self._rows is not None
        if isinstance(self._rows.extent, int):
            width = self._rows.extent
        else:
            width = row_chunk = height * _WINDOW_CHUNK_TILES
        line = width * depth * self._stride(self._rows)
        lines = max(1, budget // max(1, line * self._stride(self._window)))
        extent = self._window.extent
        window_chunk = min(lines, extent) if isinstance(extent, int) else min(lines, _ROW_CHUNK)
        if isinstance(extent, int):
            window_chunk = next(c for c in range(window_chunk, 0, -1) if extent % c == 0 or c == 1)
            if window_chunk * 2 < min(lines, extent) and window_chunk < 4:
                window_chunk = min(lines, extent)
        return window_chunk, row_chunk

    def _pieces(self, extent: Dim, depth: int, height: int, budget: int) -> int:
        rows = max(height, budget // max(1, depth))
        return -(-extent // rows) if isinstance(extent, int) else 1

    def _row_bytes(self) -> int:
        """Bytes of data for one row: the extent of the last index of the data load."""
        last = self._match.data.tensor.shape[-1]
        return (last if isinstance(last, int) else 1024) * self._match.data.dtype.itemsize

    def _stride(self, axis: Axis) -> int:
        """How many elements the data moves on when ``axis`` advances by one."""
        name = next(s for s, o in self._axes.items() if o == axis)
        for index in self._match.data.indices:
            if depends(index, name):
                moved = simplify(substitute(index, {axis_var(name): axis_var(name) + 1}) - index)
                return int(moved.value) if isinstance(moved, Const) else 1
        return 1

    # -- loops

    def steps(self) -> Schedule:
        tasks, split_tasks = self._task_loops()
        blocks, split_blocks = self._block_loops(tasks)
        steps: list[Step] = [*self._before, *split_tasks, *split_blocks]
        order = (*tasks, *blocks, *self._tile_loops(self._output))
        steps.append(Reorder(self._output.name, order))
        if tasks:
            steps.append(Parallel(self._output.name, tasks))
        innermost = (*tasks, *blocks)[-1]
        steps += self._tile_kinds(self._output)
        steps.append(ComputeAt(self._match.stage.name, self._output.name, innermost))
        steps += self._accumulate()
        steps += self._place_data((*tasks, *blocks)[max(0, len(tasks) - 1)])
        steps += self._place_weight(tasks, blocks)
        return tuple(steps)

    def _task_loops(self) -> tuple[tuple[str, ...], list[Step]]:
        b, out = self._blocking, self._output.name
        names = [a.name for a in self._outer]
        steps: list[Step] = []
        for axis, size in ((self._window, b.window_chunk), (self._rows, b.row_chunk), (self._columns, b.column_chunk)):
            if axis is not None and size > 1:
                steps.append(Split(out, axis.name, size))
                names.append(f"{axis.name}.{size}")
        if self._match.groups:
            steps.append(Split(out, self._columns.name, self._match.groups))
            names.append(f"{self._columns.name}.{self._match.groups}")
        return tuple(names), steps

    def _block_loops(self, tasks: tuple[str, ...]) -> tuple[tuple[str, ...], list[Step]]:
        b, out, columns = self._blocking, self._output.name, self._columns.name
        names: list[str] = []
        steps: list[Step] = []
        if f"{columns}.{b.tile}" not in tasks:
            steps.append(Split(out, columns, b.tile))
            names.append(f"{columns}.{b.tile}")
        if self._window is not None:
            names.append(self._window.name)
        if self._rows is not None and b.height > 1:
            if b.row_chunk != b.height:
                steps.append(Split(out, self._rows.name, b.height))
                names.append(f"{self._rows.name}.{b.height}")
        elif self._rows is not None:
            names.append(self._rows.name)
        names += [a.name for a in self._inner]
        if b.tile > self._width:
            steps.append(Split(out, columns, self._width))
        return tuple(names), steps

    def _tile_loops(self, stage: Stage) -> tuple[str, ...]:
        """Loops of the register tile in ``stage`` (the output or the reduction: rows and columns have their own names)."""
        rows, columns = self._names_in(stage)
        b = self._blocking
        wide = (f"{columns}.{self._width}",) if b.tile > self._width else ()
        return (*((rows,) if rows and b.height > 1 else ()), *wide, columns)

    def _names_in(self, stage: Stage) -> tuple[str | None, str]:
        if stage is self._output:
            return None if self._rows is None else self._rows.name, self._columns.name
        return self._match.rows, self._match.columns

    def _tile_kinds(self, stage: Stage) -> list[Step]:
        row_name, column_name = self._names_in(stage)
        steps: list[Step] = []
        if row_name is not None and self._blocking.height > 1:
            steps.append(Unroll(stage.name, row_name))
        if self._blocking.tile > self._width:
            steps.append(Unroll(stage.name, f"{column_name}.{self._width}"))
        if self._width > 1:
            steps.append(Vectorize(stage.name, column_name))
        return steps

    def _accumulate(self) -> list[Step]:
        stage = self._match.stage
        assert stage.reduction is not None
        steps: list[Step] = []
        if self._blocking.tile > self._width:
            steps.append(Split(stage.name, self._match.columns, self._width))
        tile = self._tile_loops(stage)
        outer = [a.name for a in stage.compute.axes if a.name not in tile]
        reduced = [a.name for a in stage.reduction.axes]
        steps.append(Reorder(stage.name, (*outer, *reduced, *tile)))
        steps += self._tile_kinds(stage)
        last = stage.reduction.axes[-1]
        if isinstance(last.extent, int) and 1 < last.extent <= _UNROLLED_REDUCTION:
            steps.append(Unroll(stage.name, last.name))
        return steps

    # -- operands

    def _place_data(self, loop: str) -> list[Step]:
        """Padded or computed data goes to scratch once per task, vectors along its last axis."""
        if self._local is None:
            return []
        local = self._local
        steps: list[Step] = [ComputeAt(local.name, self._output.name, loop, "scratch")]
        last = local.compute.axes[-1]
        vectors, names = vector_loops(local, last.name, lanes(self._target, local.tensor.dtype), 1, last.extent)
        others = tuple(a.name for a in local.compute.axes[:-1])
        return [*steps, *vectors, Reorder(local.name, (*others, *names))]

    def _place_weight(self, tasks: tuple[str, ...], blocks: tuple[str, ...]) -> list[Step]:
        weight, b = self._match.weight, self._blocking
        if weight.tensor in self._kernel.constants and isinstance(weight.tensor.op, Placeholder):
            order = packed_order(weight, self._match.columns, b.tile)
            ahead = prefetch_distance(self._weight_bytes(), self._target)
            return [] if order is None else [Pack(weight.tensor.name, order, ahead)]
        if weight.indices[-1] == axis_var(self._match.columns) or not isinstance(weight.tensor.op, Placeholder):
            return []
        return self._transposed_weight(tasks, blocks)

    def _transposed_weight(self, tasks: tuple[str, ...], blocks: tuple[str, ...]) -> list[Step]:
        """A weight that is not contiguous along the columns is copied tile by tile: ``[.., k, n]``."""
        weight = self._match.weight
        own = next(i for i, index in enumerate(weight.indices) if index == axis_var(self._match.columns))
        others = [i for i in range(len(weight.indices)) if i != own]
        reduced = self._match.stage.reduction
        assert reduced is not None
        if any(not isinstance(a.extent, int) for a in reduced.axes):
            return []
        name = weight.tensor.name
        loop = next(n for n in (*tasks, *blocks) if n == f"{self._columns.name}.{self._blocking.tile}")
        column = f"{name}_{own}"
        steps: list[Step] = [
            CacheRead(name, (*others, own)),
            ComputeAt(f"{name}.local", self._output.name, loop, "scratch"),
        ]
        if self._blocking.tile > self._width:
            steps.append(Split(f"{name}.local", column, self._width))
        if self._width > 1:
            steps.append(Vectorize(f"{name}.local", column))
        return steps
