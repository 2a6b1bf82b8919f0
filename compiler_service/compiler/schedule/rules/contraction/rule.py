"""Sums of products: one register-tiled template for matmul, batched matmul and every dense or grouped convolution.

``rows`` x ``columns`` accumulators stay in registers over the whole reduction: each step loads a few vectors of the packed operand
and multiplies them with broadcast elements of the data. Columns are the last axis (output channels, channels last), rows the
one before it (pixels of an image row, rows of a matrix). Data that is padded or computed first is copied to the thread's
scratch, a chunk of rows at a time; epilogues read the accumulators.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from compiler_service.compiler.schedule.language.schedule import Schedule, Step
from compiler_service.compiler.schedule.language.state import KernelStage, ScheduleState
from compiler_service.compiler.schedule.language.steps import (
    CacheRead,
    ComputeAt,
    Parallel,
    PrefetchTile,
    Reorder,
    SkipPadding,
    Split,
    Unroll,
    Vectorize,
)
from compiler_service.compiler.schedule.model.analysis import KernelView, accumulated, inlined, reductions
from compiler_service.compiler.schedule.model.tiles import CACHE_LINE_BYTES, SQUARE_SIDES, lanes, vector_loops
from compiler_service.compiler.schedule.rules.contraction.match import (
    Contraction,
    columns_index,
    local_data,
    match_contraction,
    multiplies_channels,
    same_axes,
    transposed_weight,
)
from compiler_service.compiler.schedule.rules.contraction.packing import (
    A_TILE,
    BYTES_AHEAD,
    BYTES_NEAR,
    near_distance,
    packed_order,
    packing,
    prefetch_distance,
)
from compiler_service.compiler.schedule.rules.contraction.padding import skipped_padding
from compiler_service.compiler.schedule.rules.contraction.sizes import (
    ContractionOperands,
    TileSizes,
    WeightLayout,
)
from compiler_service.compiler.tensor_expr.tensor import Placeholder, axis_var
from shared_ir.machine.target import Target

_MOST_UNROLLED_STEPS = 4
"""Largest extent of a reduction axis that is unrolled."""
_STEPS_TOGETHER = (1, 2, 4)
"""Steps along a longer reduction axis that may be asked to be unrolled."""
_MOST_SCALAR_COLUMNS = 8
"""Largest number of columns of a group that are accumulated side by side, one scalar each, where no vector fits them."""


def contraction_schedule(kernel: KernelView, target: Target, before: Schedule = ()) -> Schedule | None:
    """The template for ``kernel`` after the steps ``before``."""
    plan = _plan(kernel, target, before)
    return None if plan is None else plan.steps()


def _plan(kernel: KernelView, target: Target, before: Schedule = ()) -> _Plan | None:
    found = reductions(kernel.after(before) if before else kernel.state)
    if len(found) != 1 or match_contraction(found[0]) is None:
        return None
    steps = before or accumulated(kernel)
    state = kernel.after(steps)
    (moved,) = reductions(state)
    local = local_data(state, moved)
    kept = frozenset() if local is None else frozenset({local.name})
    through = reductions(kernel.after((*steps, *inlined(state, kept))))[0]
    transposed = transposed_weight(state, moved, through, kernel.constants)
    steps += inlined(state, kept if transposed is None else kept | {transposed.name})
    state = kernel.after(steps)
    (reduction,) = reductions(state)
    match = match_contraction(reduction, kernel.constants)
    if (
        match is None
        or not same_axes(state, reduction)
        or multiplies_channels(match, lanes(target, match.weight.dtype))
    ):
        return None
    return _Plan(
        kernel, state, match, local, None if transposed is None else state.stage(transposed.name), target, steps
    )


def _is_contiguous(match: Contraction) -> bool:
    """Whether the weight lies in memory along the columns."""
    return columns_index(match.weight, match.columns) == len(match.weight.indices) - 1


class _Plan:
    """The steps for one matched contraction.

    Loops of the output, outermost first: tasks (batch axes, window chunk, row chunk, column chunk or group), column tile, window,
    row tile, axes that choose other weights for the same data, and the register tile itself; the column tile after the
    row tile where rows are finished one after the other. Accumulators are computed inside the innermost loop outside the
    register tile.
    """

    def __init__(
        self,
        kernel: KernelView,
        state: ScheduleState,
        match: Contraction,
        local: KernelStage | None,
        transposed: KernelStage | None,
        target: Target,
        before: Schedule,
    ) -> None:
        self._kernel, self._match, self._local, self._target = kernel, match, local, target
        self._transposed = transposed
        self._before = before
        self._output = state.output
        self._layout = WeightLayout.of(match, state.output, target)
        self._columns, self._rows, self._window = self._layout.columns, self._layout.rows, self._layout.window
        self._argument, self._rows_of = state.argument(match.weight.tensor), state.argument(match.data.tensor)
        constant = self._argument in kernel.constants
        moved = transposed is not None or (not constant and not _is_contiguous(match))
        self._sizes = TileSizes(match, self._layout, ContractionOperands(constant, moved, local is not None), target)
        self._width = self._sizes.width
        self._knobs = kernel.knobs.within("contraction")
        self._blocking = self._sizes.choose(self._knobs)
        self._finishes_rows = self._sizes.may_finish_rows(self._blocking) and self._knobs.flag(
            "rows by rows", default=self._sizes.finishes_rows(self._blocking)
        )

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
        skipped = [] if self._local is None else skipped_padding(self._match, self._local, self._blocking.height)
        skipped = skipped if skipped and self._knobs.flag("skip padding", default=True) else []
        steps += skipped
        steps += self._place_data((*tasks, *blocks)[max(0, len(tasks) - 1) :], skipped)
        steps += self._place_weight(tasks, blocks)
        steps += self._ask_for_rows()
        return tuple(steps)

    def _task_loops(self) -> tuple[tuple[str, ...], list[Step]]:
        b, out = self._blocking, self._output.name
        names = [a.name for a in self._layout.outer]
        steps: list[Step] = []
        chunks = [(self._columns, b.column_chunk), (self._window, b.window_chunk), (self._rows, b.row_chunk)]
        others = any(axis is not None and size for axis, size in chunks[1:])
        if b.column_chunk and others and not self._knobs.flag("columns outside", default=True):
            chunks = [*chunks[1:], chunks[0]]
        for axis, size in chunks:  # columns outside: a core has weights of its own
            if axis is not None and size > 1:
                steps.append(Split(out, axis.name, size))
                names.append(f"{axis.name}.{size}")
            elif axis is not None and size == 1:
                names.append(axis.name)
        if self._match.groups:
            steps.append(Split(out, self._columns.name, self._match.groups))
            names.append(f"{self._columns.name}.{self._match.groups}")
        return tuple(names), steps

    def _block_loops(self, tasks: tuple[str, ...]) -> tuple[tuple[str, ...], list[Step]]:
        b, out, columns = self._blocking, self._output.name, self._columns.name
        names: list[str] = []
        steps: list[Step] = []
        tiles: list[str] = []
        if f"{columns}.{b.tile}" not in tasks:
            steps.append(Split(out, columns, b.tile))
            tiles.append(f"{columns}.{b.tile}")
        if self._window is not None and b.window_chunk != 1:
            names.append(self._window.name)
        if self._rows is not None and b.height > 1:
            if b.row_chunk != b.height:
                steps.append(Split(out, self._rows.name, b.height))
                names.append(f"{self._rows.name}.{b.height}")
        elif self._rows is not None and b.row_chunk != 1:
            names.append(self._rows.name)
        names += [a.name for a in self._layout.inner]
        if self._is_wide:
            steps.append(Split(out, columns, self._width))
        return (*names, *tiles) if self._finishes_rows else (*tiles, *names), steps

    def _tile_loops(self, stage: KernelStage) -> tuple[str, ...]:
        """Loops of the register tile in ``stage`` (the output or the reduction: rows and columns have their own names)."""
        rows, columns = self._names_in(stage)
        wide = (f"{columns}.{self._width}",) if self._is_wide else ()
        return (*((rows,) if rows and self._blocking.height > 1 else ()), *wide, columns)

    @property
    def _is_wide(self) -> bool:
        """Whether the register tile is several vectors wide; a group may have to do without vectors."""
        return self._blocking.tile > self._width > 1

    def _names_in(self, stage: KernelStage) -> tuple[str | None, str]:
        if stage is self._output:
            return None if self._rows is None else self._rows.name, self._columns.name
        return self._match.rows, self._match.columns

    def _tile_kinds(self, stage: KernelStage) -> list[Step]:
        row_name, column_name = self._names_in(stage)
        steps: list[Step] = []
        if row_name is not None and self._blocking.height > 1:
            steps.append(Unroll(stage.name, row_name))
        if self._is_wide:
            steps.append(Unroll(stage.name, f"{column_name}.{self._width}"))
        if self._width > 1:
            steps.append(Vectorize(stage.name, column_name))
        elif self._blocking.tile <= _MOST_SCALAR_COLUMNS:
            steps.append(Unroll(stage.name, column_name))
        return steps

    def _accumulate(self) -> list[Step]:
        stage = self._match.stage
        assert stage.reduction is not None
        steps: list[Step] = []
        if self._is_wide:
            steps.append(Split(stage.name, self._match.columns, self._width))
        tile = self._tile_loops(stage)
        outer = [a.name for a in stage.compute.axes if a.name not in tile]
        *reduced, last = stage.reduction.axes
        few = isinstance(last.extent, int) and 1 < last.extent <= _MOST_UNROLLED_STEPS
        together = 1 if few else self._knobs.choice("steps together", _STEPS_TOGETHER, 1)
        along = (f"{last.name}.{together}", last.name) if together > 1 else (last.name,)
        steps += [Split(stage.name, last.name, together)] if together > 1 else []
        steps.append(Reorder(stage.name, (*outer, *(a.name for a in reduced), *along, *tile)))
        steps += self._tile_kinds(stage)
        steps += [Unroll(stage.name, last.name)] if few or together > 1 else []
        return steps

    # -- operands

    def _place_data(self, loops: Sequence[str], skipped: Sequence[SkipPadding]) -> list[Step]:
        """Padded or computed data goes to scratch once per task, or in each turn of one of its ``loops``, vectors along its last axis;
        where padding is left out within rows, what a register tile reads under one tap: the padding of a row may be longer than
        its data."""
        if self._local is None:
            return []
        local, summed = self._local, self._match.stage.reduction
        assert summed is not None
        within = skipped and skipped[-1].loop == summed.axes[-2].name
        inside = 0 if within else self._knobs.range("copy inside", 0, len(loops) - 1, 0)
        place = (self._match.stage.name, skipped[-1].loop) if within else (self._output.name, loops[inside])
        steps: list[Step] = [ComputeAt(local.name, *place, "scratch")]
        last = local.compute.axes[-1]
        vectors, names = vector_loops(local, last.name, lanes(self._target, local.tensor.dtype), 1, last.extent)
        others = tuple(a.name for a in local.compute.axes[:-1])
        return [*steps, *vectors, Reorder(local.name, (*others, *names))]

    def _place_weight(self, tasks: tuple[str, ...], blocks: tuple[str, ...]) -> list[Step]:
        match, weight = self._match, self._match.weight
        if self._transposed is not None:
            return self._moved_weight(self._transposed, tasks, blocks)
        if self._argument in self._kernel.constants and isinstance(weight.tensor.op, Placeholder):
            order = packed_order(weight, match.columns, self._blocking.tile)
            if order is None:
                return []
            return self._packed(order)
        if _is_contiguous(match) or not isinstance(weight.tensor.op, Placeholder):
            return []
        return self._transposed_weight(tasks, blocks)

    def _packed(self, order: tuple[tuple[int, int, int], ...]) -> list[Step]:
        """Constant weights in the order of the register tiles, and how far ahead of them memory is asked for more."""
        name, b = self._argument.name, self._blocking
        if self._finishes_rows:
            return [*packing(name, order, self._near(near_distance(self._sizes.weight_bytes, self._target)))]
        sweeps, model = self._sweeps(), prefetch_distance(self._sizes.weight_bytes, self._target)
        default = A_TILE if model and sweeps and self._sizes.keeps_tiles(b) else model
        ahead = self._knobs.choice("ahead", (*BYTES_AHEAD, A_TILE) if sweeps else BYTES_AHEAD, default)
        if ahead != A_TILE:
            return [*packing(name, order, ahead)]
        assert self._match.stage.reduction is not None
        last = self._match.stage.reduction.axes[-1].name
        near = near_distance(self._sizes.tile_bytes(b), self._target)
        if self._rows is not None and not isinstance(self._rows.extent, int):
            near = model  # there may be one row, and so one sweep of each tile
        return [
            *packing(name, order, ahead, PrefetchTile(self._match.stage.name, last, name, sweeps), self._near(near))
        ]

    def _near(self, default: int) -> int:
        """Bytes ahead that the first cache level is asked for."""
        return self._knobs.choice("bytes near", BYTES_NEAR, default)

    def _ask_for_rows(self) -> list[Step]:
        """The rows of the next register tile are asked for during the products of this one, where the second-level cache is not
        taken to hold the data: hardware prefetchers follow few rows at once, and each only up to the end of its page."""
        match, b, summed = self._match, self._blocking, self._match.stage.reduction
        data, columns = match.data, b.column_chunk or self._columns.extent
        size = math.prod(d if isinstance(d, int) else 0 for d in data.tensor.shape) * data.dtype.itemsize
        rows = match.rows is not None and match.stage.reads_rows(data) and data.indices[-2] == axis_var(match.rows)
        argument = isinstance(data.tensor.op, Placeholder) and not match.groups
        if not (rows and argument and b.height > 1 and size and isinstance(columns, int)):
            return []
        if not self._knobs.flag("rows ahead", default=2 * size > self._target.l2):
            return []
        assert summed is not None
        swept = self._finishes_rows
        return [
            PrefetchTile(
                match.stage.name,
                summed.axes[0].name,
                self._rows_of.name,
                ((match.columns, columns, b.tile),) if swept else (),
            )
        ]

    def _sweeps(self) -> tuple[tuple[str, int, int], ...]:
        """How often a tile of the weights is read by one task; empty where only the run knows, or so seldom that a line asked
        for at each step is not enough."""
        b, match = self._blocking, self._match
        found: list[tuple[str, int, int]] = []
        for own, axis, chunk, covered in (
            (match.window, self._window, b.window_chunk, 1),
            (match.rows, self._rows, b.row_chunk, b.height),
        ):
            if own is None or axis is None or chunk == 1:
                continue
            extent = chunk or axis.extent
            if not isinstance(extent, int):
                return ()
            found.append((own, min(extent, axis.extent) if isinstance(axis.extent, int) else extent, covered))
        sweeps = math.prod(-(-extent // covered) for _, extent, covered in found)
        few = b.tile * match.weight.dtype.itemsize > sweeps * CACHE_LINE_BYTES
        return () if few or self._layout.inner or match.groups else tuple(found)

    def _moved_weight(self, stage: KernelStage, tasks: tuple[str, ...], blocks: tuple[str, ...]) -> list[Step]:
        """The weight of a tile of columns is brought to ``[.., k, n]`` first, in squares that the loop passes transpose."""
        loop = next(n for n in (*tasks, *blocks) if n == f"{self._columns.name}.{self._blocking.tile}")
        *outer, depth, columns = (a.name for a in stage.compute.axes)
        steps: list[Step] = [ComputeAt(stage.name, self._output.name, loop, "scratch")]
        width = self._width
        if width == 1:
            return steps
        squares = (f"{depth}.{width}", f"{columns}.{width}")
        steps += [Split(stage.name, depth, width), Split(stage.name, columns, width)]
        steps += [Unroll(stage.name, depth), Vectorize(stage.name, columns)]
        return [*steps, Reorder(stage.name, (*outer, *squares, depth, columns))]

    def _transposed_weight(self, tasks: tuple[str, ...], blocks: tuple[str, ...]) -> list[Step]:
        """A weight that is not contiguous along the columns is copied tile by tile: ``[.., k, n]``, in squares where it lies along
        the sum."""
        weight = self._match.weight
        own = columns_index(weight, self._match.columns)
        assert own is not None  # or it would not have matched
        others = [i for i in range(len(weight.indices)) if i != own]
        reduced = self._match.stage.reduction
        assert reduced is not None
        if any(not isinstance(a.extent, int) for a in reduced.axes):
            return []
        name = self._argument.name
        loop = next(n for n in (*tasks, *blocks) if n == f"{self._columns.name}.{self._blocking.tile}")
        column = f"{name}_{own}"
        steps: list[Step] = [
            CacheRead(name, (*others, own), self._match.stage.name, self._match.columns),
            ComputeAt(f"{name}.local", self._output.name, loop, "scratch"),
        ]
        if self._is_wide:
            steps.append(Split(f"{name}.local", column, self._width))
        if self._width > 1:
            steps.append(Vectorize(f"{name}.local", column))
        depth, last = weight.tensor.shape[-1], f"{name}_{others[-1]}"
        side = next((s for s in SQUARE_SIDES if isinstance(depth, int) and s <= self._width and depth % s == 0), 0)
        if side and self._is_wide and own != weight.tensor.rank - 1:
            order = (*(f"{name}_{i}" for i in others[:-1]), f"{last}.{side}", f"{column}.{self._width}", last, column)
            copy = f"{name}.local"
            steps += [Split(copy, last, side), Unroll(copy, last), Reorder(copy, order)]
        return steps
