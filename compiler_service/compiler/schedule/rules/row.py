"""Reductions whose result is spread over the output again, row by row: softmax, normalisation, reduce over the last axes.

Axes of the output that the reductions hang on come first and are cut into tasks; everything else of a row is computed inside: the
reductions with vector lanes along the reduced axis, then the output with vectors along its last axis. A short row is written out in
full, so that it stays in registers from one sweep to the next; of a longer one, what waits in the output's memory is computed in the
sweep of the reduction that reads it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from compiler_service.compiler.schedule.language.knobs import Knobs
from compiler_service.compiler.schedule.language.schedule import Schedule, Step
from compiler_service.compiler.schedule.language.state import KernelStage, ScheduleState
from compiler_service.compiler.schedule.language.steps import (
    ROOT,
    Alias,
    ComputeAt,
    FetchNext,
    Parallel,
    Reorder,
    Split,
    Stagger,
)
from compiler_service.compiler.schedule.lowering.stagger import lags, sweeps
from compiler_service.compiler.schedule.model.analysis import (
    KernelView,
    accumulated,
    bound_axes,
    contiguous_axis,
    depends,
    extent_of,
    inlined,
    is_expensive,
    one_per_row,
    reads_in_place,
    reductions,
    stays_in_row,
)
from compiler_service.compiler.schedule.model.tasks import TASKS_PER_CORE, TaskLoops, count, stage_cycles, task_loops
from compiler_service.compiler.schedule.model.tiles import CACHE_LINE_BYTES, lanes, vector_loops
from compiler_service.compiler.tensor_expr.tensor import Axis, Placeholder, loads
from shared_ir.expr.dim import Dim
from shared_ir.machine.target import Target

_VECTORS_PER_STEP = 8
"""Vectors of one step along a row that does not fit the registers."""
_LEAST_ROWS_TOGETHER, _MOST_ROWS_TOGETHER = 4, 8
"""Smallest and largest number of rows that go through the stages together."""
_VECTORS_TOGETHER = 32
"""Number of vectors, over all rows that go together, from which on no further row is added."""
_L1_SHARE_OF_ROWS_TOGETHER = 0.5
"""Largest part of the first-level cache that rows that go together may fill."""
_L1_SHARE_OF_TURNS = 0.95
"""Largest part of the first-level cache that may be filled by all rows in flight while rows take turns."""
_MOST_ROWS_PER_LOOP_OF_TURNS = 512
"""Largest number of rows that take turns in one loop. More are cut in several loops; the ends of each are slower than its middle."""
_MOST_ROWS_PER_TURN = 4
"""Largest number of rows that one turn takes side by side: more of them hide no more of the time in which the end of a row waits."""
_VECTORS_OF_UNROLLED_ROW = 16
"""Largest number of vectors of a row that is unrolled completely."""

_VECTORS_ASKED, _UNROLLED_ASKED, _ROWS_TOGETHER_ASKED = (1, 2, 4, 8, 16), (0, 4, 8, 16, 32), (1, 2, 3, 4, 6, 8, 12, 16)
"""What may be asked for in place of the numbers above: of vectors of a step and of an unrolled row, of rows together."""


@dataclass(frozen=True)
class RowStep:
    """A step along a row takes so many ``vectors``; of a row of at most so many as are ``unrolled``, all."""

    vectors: int
    unrolled: int

    def of(self, extent: Dim, width: int) -> int:
        """Vectors of a step along a row of ``extent`` elements, in vectors of ``width``."""
        if isinstance(extent, int) and extent <= self.unrolled * width:
            return max(1, extent // width)
        return self.vectors


_OF_TURNS = RowStep(1, 0)
"""Rows that take turns have one vector each in a step."""


def row_schedule(kernel: KernelView, target: Target) -> Schedule | None:
    if not reductions(kernel.state):
        return None
    steps = accumulated(kernel)
    kept, aliased = _kept(kernel.after(steps))
    steps += inlined(kernel.after(steps), kept | aliased)
    state = kernel.after(steps)
    output, knobs = state.output, kernel.knobs.within("row")
    bound = bound_axes(state, output, aliased)
    free = tuple(a.name for a in output.compute.axes if a.name not in bound)
    turn = 0 if aliased else _rows_of_a_turn(state, target, knobs)
    tasks = row_tasks(state, [a for a in output.compute.axes if a.name in bound], target, knobs, bool(turn))
    rows = (*tasks.parallel, *tasks.serial)
    together, tile = _staggered(output, tasks) if turn else _together(state, output, tasks, target, knobs)
    staggers = bool(turn and tile)
    step = _OF_TURNS if staggers else row_step(knobs)
    vectors, inner = free_loops(output, free, target, step)
    outer = rows if not tile else rows[:-1] if tile in rows else (*rows[:-1], tile)
    place: list[Step] = []
    shared: list[Step] = []  # behind the loops of the stage whose sweep it is
    alone = _alone(state, aliased, target, step)
    for stage in state.stages.values():
        if stage is not output:
            loops = rows if stage.name in alone else outer
            sweep = _sweep(state, stage, target, step) if stage.name in aliased - alone else None
            at = ComputeAt(stage.name, *(sweep or (output.name, loops[-1] if loops else ROOT)))
            (shared if sweep else place).append(at)
            place += [Alias(stage.name)] if stage.name in aliased - alone else []
            place += along_row(stage, target, step) if stage.reduction or stage.name in aliased else ()
    order = (Reorder(output.name, (*outer, *(rows[-1:] if tile else ()), *inner)),)
    parallel = (Parallel(output.name, tasks.parallel),) if tasks.parallel else ()
    ahead: Schedule = ()
    if tile:
        distance = together[0].factor if together else 0
        ahead = (Stagger(output.name, tile, turn),) if staggers else _fetched(output, rows[-1], inner, distance, target)
        ahead = ahead if staggers or not ahead or knobs.flag("rows ahead", default=True) else ()
    return (*steps, *tasks.steps, *together, *vectors, *order, *parallel, *ahead, *place, *shared)


def _together(
    state: ScheduleState, output: KernelStage, tasks: TaskLoops, target: Target, knobs: Knobs
) -> tuple[tuple[Split, ...], str]:
    """The split, and its loop, of a few rows that go through each stage together: alone, one would wait for the sums and
    maxima across its lanes."""
    if not tasks.serial or _row_lengths(state) is None:
        return (), ""
    axis, most = tasks.serial[-1], max(1, _most_rows(state, target))
    factors = (s.factor for s in tasks.steps if isinstance(s, Split) and s.axis == axis)
    extent = next(factors, extent_of(output.compute.axes, axis))
    size = most
    if isinstance(extent, int):
        size = next((r for r in range(most, min(most, _LEAST_ROWS_TOGETHER) - 1, -1) if extent % r == 0), most)
    size = knobs.choice("rows together", sorted({*_ROWS_TOGETHER_ASKED, size}), size)
    if size == 1 or (isinstance(extent, int) and extent <= size):
        return (), ""
    return (Split(output.name, axis, size),), f"{axis}.{size}"


def _rows_of_a_turn(state: ScheduleState, target: Target, knobs: Knobs) -> int:
    """How many rows are in each stage at a time where rows take turns in them: all that are read and written meanwhile stay in the
    first-level cache. 0: too long a row, or nothing to wait for."""
    lengths, stages = _row_lengths(state), tuple(state.stages.values())
    if lengths is None or len(lengths) < 2 or 0 in lengths.values():
        return 0
    row = max(length * state.stage(name).tensor.dtype.itemsize for name, length in lengths.items())
    behind = lags(state, stages)
    turns = len({behind[s.name] for s in stages if sweeps(s, stages)})
    own, shared = _rows_read(state.output, bound_axes(state, state.output))
    room = int(_L1_SHARE_OF_TURNS * target.l1 / row) - shared
    found = max(0, min(room // (own * turns + 1), _MOST_ROWS_PER_TURN))
    return knobs.range("rows of a turn", 0, _MOST_ROWS_PER_TURN, found)


def _rows_read(output: KernelStage, bound: Sequence[str]) -> tuple[int, int]:
    """How many arguments the output reads at its own row, and how many at the same place in every row."""
    found = [ld for ld in loads(output.body) if ld.indices and isinstance(ld.tensor.op, Placeholder)]
    own = {ld.tensor for ld in found if any(depends(i, axis) for i in ld.indices for axis in bound)}
    return len(own), len({ld.tensor for ld in found} - own)


def _row_lengths(state: ScheduleState) -> Mapping[str, int] | None:
    """How many terms an element of each reduction has; None where the run decides."""
    found: dict[str, int] = {}
    for stage in reductions(state):
        assert stage.reduction is not None
        extents = [a.extent for a in stage.reduction.axes if isinstance(a.extent, int)]
        if len(extents) < len(stage.reduction.axes):
            return None
        found[stage.name] = math.prod(extents)
    return found


def _staggered(output: KernelStage, tasks: TaskLoops) -> tuple[tuple[Split, ...], str]:
    """The split, and its loop, of rows that take turns: those of a task, or a part of them."""
    if not tasks.serial:
        return (), ""
    axis = tasks.serial[-1]
    factor = next((s.factor for s in tasks.steps if isinstance(s, Split) and s.axis == axis), 0)
    if 0 < factor <= _MOST_ROWS_PER_LOOP_OF_TURNS:
        return (), f"{axis}.{factor}"
    extent = factor or extent_of(output.compute.axes, axis)
    size = _MOST_ROWS_PER_LOOP_OF_TURNS
    if isinstance(extent, int):
        parts = max(1, -(-extent // _MOST_ROWS_PER_LOOP_OF_TURNS))  # an axis may be empty
        size = min(-(-extent // parts), -(-extent // 2))
    return ((Split(output.name, axis, size),), f"{axis}.{size}") if size > 1 else ((), "")


def _fetched(output: KernelStage, row: str, inner: tuple[str, ...], distance: int, target: Target) -> Schedule:
    """Rows are asked for while those before them are written: the first sweep over them would else wait for the second-level
    cache, which does nothing during the others."""
    if len(inner) < 2 or lanes(target, output.tensor.dtype) * output.tensor.dtype.itemsize != CACHE_LINE_BYTES:
        return ()
    own = dict.fromkeys(ld.tensor for ld in loads(output.body) if any(depends(i, row) for i in ld.indices))
    found = tuple(t for t in own if isinstance(t.op, Placeholder) and t.dtype is output.tensor.dtype)
    return tuple(FetchNext(output.name, inner[-2], t.name, row, distance) for t in found[:1])


def _alone(state: ScheduleState, aliased: frozenset[str], target: Target, step: RowStep) -> frozenset[str]:
    """Stages computed row by row even where rows go together: one that stays in registers until it is used up, and what
    follows from it."""
    found: set[str] = set()
    for stage in state.stages.values():
        length = stage.compute.axes[-1].extent if stage.compute.axes else 1
        most = min(step.unrolled, target.vector_registers // 2) * lanes(target, stage.tensor.dtype)
        held = stage.name in aliased and isinstance(length, int) and length <= most
        if held or any((s := state.stage_of(ld.tensor)) is not None and s.name in found for ld in loads(stage.body)):
            found.add(stage.name)
    return frozenset(found - {state.output.name})


def _most_rows(state: ScheduleState, target: Target) -> int:
    """Rows, read and written, that stay in the first-level cache from one stage to the next."""
    lengths = _row_lengths(state)
    if lengths is None:
        return 1
    longest = vectors = 1
    for name, length in lengths.items():
        dtype = state.stage(name).tensor.dtype
        longest = max(longest, 2 * length * dtype.itemsize)
        vectors = max(vectors, -(-length // lanes(target, dtype)))
    wanted = min(max(_LEAST_ROWS_TOGETHER, _VECTORS_TOGETHER // vectors), _MOST_ROWS_TOGETHER)
    return min(wanted, int(_L1_SHARE_OF_ROWS_TOGETHER * target.l1 / longest))


def row_tasks(state: ScheduleState, rows: list[Axis], target: Target, knobs: Knobs, turns: bool = False) -> TaskLoops:
    """How ``rows`` are shared among tasks. Where rows take turns there is a task for each core: more would only have more ends."""
    total = sum(stage_cycles(s, lanes(target, s.tensor.dtype)) for s in state.stages.values())
    for axis in rows:
        total /= max(1, count(axis.extent))  # an axis may be empty
    return task_loops(state.output.name, rows, total, target, knobs, 1 if turns else TASKS_PER_CORE)


def _kept(state: ScheduleState) -> tuple[frozenset[str], frozenset[str]]:
    """Stages not to inline: those of one element a row that read a reduction, and (second) an expensive one that a reduction
    and the output both read, which can live in the output's memory."""
    kept = one_per_row(state)
    others = [s for s in state.stages.values() if s is not state.output and s.reduction is None and s.name not in kept]
    aliased = [s.name for s in others if _may_alias(state, s)]
    return kept, frozenset(aliased if len(aliased) == 1 else ())


def _may_alias(state: ScheduleState, stage: KernelStage) -> bool:
    output = state.output
    consumers = state.consumers(stage.tensor)
    return (
        len(consumers) > 1
        and output in consumers
        and stage.tensor.dtype is output.tensor.dtype
        and stage.tensor.shape == output.tensor.shape
        and is_expensive(stage.body)
        and reads_in_place(output, stage.tensor)
        and stays_in_row(state, stage, bound_axes(state, output, frozenset({stage.name})))
    )


def row_step(knobs: Knobs) -> RowStep:
    """As the model has it, or the knobs."""
    vectors = knobs.choice("vectors of a step", _VECTORS_ASKED, _VECTORS_PER_STEP)
    return RowStep(vectors, knobs.choice("vectors of an unrolled row", _UNROLLED_ASKED, _VECTORS_OF_UNROLLED_ROW))


def free_loops(
    stage: KernelStage, free: tuple[str, ...], target: Target, step: RowStep
) -> tuple[Schedule, tuple[str, ...]]:
    """Steps that give vectors to the last of the axes inside a row, and the names of their loops."""
    if not free:
        return (), ()
    last = extent_of(stage.compute.axes, free[-1])
    width = lanes(target, stage.tensor.dtype)
    vectors, inner = vector_loops(stage, free[-1], width, step.of(last, width), last)
    return vectors, (*free[:-1], *inner)


def _sweep(state: ScheduleState, stage: KernelStage, target: Target, step: RowStep) -> tuple[str, str] | None:
    """The one reduction that reads ``stage``, in order, and its loop over some vectors of it: a sweep that both can share."""
    readers = [s for s in state.consumers(stage.tensor) if s is not state.output]
    if len(readers) != 1 or (reader := readers[0]).reduction is None:
        return None
    own = tuple(a.var for a in reader.compute.all_axes)
    if any(ld.indices != own for ld in loads(reader.body) if ld.tensor is stage.tensor):
        return None
    _, inner = _reduced_loops(reader, target, step)
    return (reader.name, inner[0]) if len(inner) > 1 else None


def along_row(stage: KernelStage, target: Target, step: RowStep) -> Schedule:
    """Loops of a stage inside a row."""
    spatial = tuple(a.name for a in stage.compute.axes)
    if stage.reduction is None:
        vectors, inner = free_loops(stage, spatial, target, step)
        return (*vectors, Reorder(stage.name, inner))
    vectors, inner = _reduced_loops(stage, target, step)
    return (*vectors, Reorder(stage.name, (*spatial, *inner))) if inner else ()


def _reduced_loops(stage: KernelStage, target: Target, step: RowStep) -> tuple[Schedule, tuple[str, ...]]:
    """Steps that give vectors to the terms of a reduction, and the names of the loops over them; none where they are few."""
    assert stage.reduction is not None
    width = lanes(target, stage.tensor.dtype)
    reduced = tuple(a.name for a in stage.reduction.axes)
    along = contiguous_axis(stage)
    if along is None or along not in reduced:
        along = reduced[-1]
    extent = extent_of(stage.reduction.axes, along)
    if isinstance(extent, int) and extent < (width // 4 if target.masked else width):
        return (), ()
    vectors, inner = vector_loops(stage, along, width, step.of(extent, width), extent)
    return vectors, (*(n for n in reduced if n != along), *inner)
