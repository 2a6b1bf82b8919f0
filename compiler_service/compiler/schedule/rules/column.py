"""Sums along anything but the contiguous axis, whose results are spread over the output again: instance normalisation of
channels-last data, softmax over the channels of channels-first data.

Vectors lie along the contiguous axis. A block of a few of them goes down its columns in every sweep; it is narrow enough for them
to stay in the second cache level between sweeps, and some cache lines wide.
"""

from __future__ import annotations

import math

from compiler_service.compiler.schedule.language.knobs import Knobs
from compiler_service.compiler.schedule.language.schedule import Schedule, Step
from compiler_service.compiler.schedule.language.state import KernelStage, ScheduleState
from compiler_service.compiler.schedule.language.steps import ComputeAt, Parallel, Reorder, Split, Unroll, Vectorize
from compiler_service.compiler.schedule.model.analysis import (
    KernelView,
    accumulated,
    bound_axes,
    contiguous_axis,
    inlined,
    one_per_row,
    reductions,
)
from compiler_service.compiler.schedule.model.tasks import LEAST_CYCLES_OF_TASK, count, stage_cycles
from compiler_service.compiler.schedule.model.tiles import lanes, vector_loops
from compiler_service.compiler.tensor_expr.tensor import Axis
from shared_ir.machine.target import Target

_VECTORS_OF_BLOCK = (8, 4)
"""Vectors of a block, the best first: enough of them side by side that no sum waits for its last addition, and whole cache lines."""

_VECTORS_ASKED = (1, 2, 4, 8, 12, 16)
"""Numbers of vectors of a block that may be asked for."""


def column_schedule(kernel: KernelView, target: Target) -> Schedule | None:
    """The schedule of a kernel whose reductions are all across its vectors, or None."""
    steps = accumulated(kernel)
    steps += inlined(kernel.after(steps), one_per_row(kernel.after(steps)))
    state = kernel.after(steps)
    if not reductions(state) or not _is_across(state):
        return None
    return (*steps, *_loops(state, target, kernel.knobs.within("column")))


def _is_across(state: ScheduleState) -> bool:
    """Whether every stage has the last axis of the output, and no reduction sums along what is contiguous."""
    output = state.output
    if not output.compute.axes or output.compute.axes[-1].name not in bound_axes(state, output):
        return False
    extent = output.compute.axes[-1].extent
    for stage in state.stages.values():
        if not stage.compute.axes or stage.compute.axes[-1].extent != extent:
            return False
        if stage.reduction is not None and contiguous_axis(stage) not in (None, stage.compute.axes[-1].name):
            return False
    return any(contiguous_axis(s) is not None for s in reductions(state))


def _loops(state: ScheduleState, target: Target, knobs: Knobs) -> Schedule:
    output = state.output
    bound = bound_axes(state, output)
    *others, column = output.compute.axes
    outer = tuple(a.name for a in others if a.name in bound)
    free = tuple(a.name for a in others if a.name not in bound)
    wide = knobs.choice("vectors of a block", _VECTORS_ASKED, _vectors(state, target))
    width = lanes(target, output.tensor.dtype)
    vectors, (block, *inner) = vector_loops(output, column.name, width, wide, column.extent)
    place: list[Step] = []
    for stage in state.stages.values():
        if stage is not output:
            place += [ComputeAt(stage.name, output.name, block), *_inside(stage, width)]
    total = sum(stage_cycles(s, width) for s in state.stages.values())
    shared = knobs.flag("tasks", default=total >= 2 * LEAST_CYCLES_OF_TASK)
    parallel = (Parallel(output.name, (*outer, block)),) if shared else ()
    return (*vectors, Reorder(output.name, (*outer, block, *free, *inner)), *parallel, *place)


def _vectors(state: ScheduleState, target: Target) -> int:
    """Vectors of a block: the most whose columns stay in the second cache level."""
    column = max(math.prod(count(a.extent) for a in _reduced(s)) for s in reductions(state))
    size = target.vector_bits // 8
    return next((v for v in _VECTORS_OF_BLOCK if v * size * column <= target.l2 // 2), _VECTORS_OF_BLOCK[-1])


def _inside(stage: KernelStage, width: int) -> Schedule:
    """Loops of a stage that is computed for one block: its vectors side by side, innermost."""
    *others, column = (a.name for a in stage.compute.axes)
    reduced = tuple(a.name for a in _reduced(stage))
    if width == 1 or stage.compute.axes[-1].extent == 1:
        return (Reorder(stage.name, (*others, *reduced, column)),)
    tile = f"{column}.{width}"
    return (
        Split(stage.name, column, width),
        Unroll(stage.name, tile),
        Vectorize(stage.name, column),
        Reorder(stage.name, (*others, *reduced, tile, column)),
    )


def _reduced(stage: KernelStage) -> tuple[Axis, ...]:
    return () if stage.reduction is None else stage.reduction.axes
