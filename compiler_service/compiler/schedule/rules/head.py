"""The mean of many rows, and what is made of it as of any row: pooling and the normalisation behind it, at the head of a network.

The sums go down the columns, some vectors side by side, and end as one row in memory of the task, which the reductions along it
and the output then read.
"""

from __future__ import annotations

from compiler_service.compiler.schedule.language.knobs import Knobs
from compiler_service.compiler.schedule.language.schedule import Schedule, Step
from compiler_service.compiler.schedule.language.state import KernelStage, ScheduleState
from compiler_service.compiler.schedule.language.steps import ROOT, ComputeAt, Parallel, Reorder
from compiler_service.compiler.schedule.model.analysis import (
    KernelView,
    accumulated,
    contiguous_axis,
    inlined,
    one_per_row,
    reads_in_place,
    reductions,
)
from compiler_service.compiler.schedule.model.tiles import lanes, vector_loops
from compiler_service.compiler.schedule.rules.row import along_row, free_loops, row_step, row_tasks
from compiler_service.compiler.tensor_expr.tensor import loads
from shared_ir.machine.target import Target

_VECTORS_SIDE_BY_SIDE = 8
"""Vectors that go down their columns together, so that no sum waits for its last addition."""

_VECTORS_ASKED = (1, 2, 4, 8, 12, 16, 24)
"""Numbers of vectors side by side that may be asked for."""


def head_schedule(kernel: KernelView, target: Target) -> Schedule | None:
    """The schedule of a kernel with one sum down the columns, whose result other reductions sum along, or None."""
    steps = accumulated(kernel)
    steps += inlined(kernel.after(steps), one_per_row(kernel.after(steps)))
    state = kernel.after(steps)
    pooled = [s for s in reductions(state) if _is_down(s)]
    others = [s for s in reductions(state) if s not in pooled]
    if len(pooled) != 1 or not others or not all(_reads_along(s, pooled[0]) for s in others):
        return None
    return (
        (*steps, *_loops(state, pooled[0], target, kernel.knobs.within("head")))
        if _shares_rows(state, pooled[0])
        else None
    )


def _is_down(stage: KernelStage) -> bool:
    axes = stage.compute.axes
    return bool(axes) and axes[-1].extent != 1 and contiguous_axis(stage) == axes[-1].name


def _reads_along(stage: KernelStage, row: KernelStage) -> bool:
    """Whether ``stage`` sums along the last axis of ``row``."""
    assert stage.reduction is not None
    along = stage.reduction.axes[-1].var
    return any(ld.tensor is row.tensor and ld.indices[-1] == along for ld in loads(stage.body))


def _shares_rows(state: ScheduleState, pooled: KernelStage) -> bool:
    """Whether the output has the axes of ``pooled`` and reads it in place: its rows are those of the sums."""
    return pooled.tensor.shape == state.output.tensor.shape and reads_in_place(state.output, pooled.tensor)


def _loops(state: ScheduleState, pooled: KernelStage, target: Target, knobs: Knobs) -> Schedule:
    output = state.output
    *rows, column = output.compute.axes
    tasks = row_tasks(state, rows, target, knobs)
    outer = (*tasks.parallel, *tasks.serial)
    step = row_step(knobs)
    vectors, inner = free_loops(output, (column.name,), target, step)
    parallel = (Parallel(output.name, tasks.parallel),) if tasks.parallel else ()
    place: list[Step] = []
    for stage in state.stages.values():
        if stage is not output:
            place.append(ComputeAt(stage.name, output.name, outer[-1] if outer else ROOT))
            if stage is pooled:
                place += _down(stage, target, knobs)
            elif stage.reduction is not None:
                place += along_row(stage, target, step)
    return (*tasks.steps, *vectors, Reorder(output.name, (*outer, *inner)), *parallel, *place)


def _down(stage: KernelStage, target: Target, knobs: Knobs) -> Schedule:
    """Loops of the sums: a few vectors at a time down all rows."""
    assert stage.reduction is not None
    *rows, column = stage.compute.axes
    width = lanes(target, stage.tensor.dtype)
    beside = knobs.choice("vectors side by side", _VECTORS_ASKED, _VECTORS_SIDE_BY_SIDE)
    vectors, (*outer, last) = vector_loops(stage, column.name, width, beside, column.extent)
    blocks, side_by_side = (outer[:1], outer[1:]) if len(outer) > 1 else ([], outer)
    reduced = (a.name for a in stage.reduction.axes)
    return (*vectors, Reorder(stage.name, (*(a.name for a in rows), *blocks, *reduced, *side_by_side, last)))
