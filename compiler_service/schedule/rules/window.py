"""Reductions that run beside a contiguous spatial axis: pooling, depthwise convolution, global pooling, column sums.

Vectors lie along the contiguous axis (channels, in channels-last layout); a few pixels and vectors accumulate in registers.
"""

from __future__ import annotations

from compiler_service.schedule.analysis import KernelView, bound_axes, contiguous_axis, extent_of, inlined, reductions
from compiler_service.schedule.rules.packing import packed_order
from compiler_service.schedule.state import Stage, State
from compiler_service.schedule.steps import CacheWrite, ComputeAt, Pack, Reorder, Schedule, Split, Step, Unroll
from compiler_service.schedule.tiles import lanes, ordered, vector_loops
from compiler_service.tensor_expr.tensor import Placeholder, loads
from shared_ir.dim import Dim
from shared_ir.target import Target

_ROWS = 4
_SMALL_WINDOW = 16


def window_schedule(kernel: KernelView, target: Target) -> Schedule | None:
    found = reductions(kernel.state)
    if len(found) != 1:
        return None
    steps: tuple[Step, ...] = ()
    if found[0] is kernel.state.output:
        steps = (CacheWrite(found[0].name),)
    steps += inlined(kernel.after(steps))
    state = kernel.after(steps)
    output, (reduction,) = state.output, reductions(state)
    axes = tuple(a.name for a in output.compute.axes)
    last = axes[-1] if axes else ""
    same = tuple(a.name for a in reduction.compute.axes) if axes else ()
    if not axes or contiguous_axis(reduction) != (same[-1] if same else None) or bound_axes(state, output) != axes:
        return None
    width = lanes(target, reduction.tensor.dtype)
    unroll = 2 if len(axes) > 1 and target.vector_registers > 16 else 4 if len(axes) <= 2 else 1
    extent = output.compute.axes[-1].extent
    vectors, columns = vector_loops(output, last, width, unroll, extent)
    rows, row_loops, row_steps = _row_loops(output, axes, columns)
    order = (*row_loops, *columns[:1], *rows, *columns[1:]) if len(columns) > 1 else (*row_loops, *rows, *columns)
    at = columns[0] if len(columns) > 1 else (rows or row_loops or columns)[0]
    tasks = tuple(n for n in row_loops) or columns[:1]
    tasks = tasks if len(columns) > 1 or row_loops else ()
    return (
        *steps,
        *vectors,
        *row_steps,
        *ordered(output.name, order, tasks),
        ComputeAt(reduction.name, output.name, at),
        *_accumulate(reduction, same, width, unroll, extent, len(rows) > 0),
        *_packed(kernel, state, reduction),
    )


def _row_loops(
    output: Stage, axes: tuple[str, ...], columns: tuple[str, ...]
) -> tuple[tuple[str, ...], tuple[str, ...], Schedule]:
    """(loops of the pixel tile, loops outside it, steps)."""
    if len(axes) < 3 or len(columns) < 2:
        return (), axes[:-1], ()
    row = axes[-2]
    extent = extent_of(output.compute.axes, row)
    height = _row_height(extent)
    if height == 1:
        return (), axes[:-1], ()
    return (row,), (*axes[:-2], f"{row}.{height}"), (Split(output.name, row, height), Unroll(output.name, row))


def _row_height(extent: Dim) -> int:
    if not isinstance(extent, int):
        return _ROWS
    return max((h for h in range(1, min(7, extent) + 1) if extent % h == 0), default=1)


def _accumulate(stage: Stage, axes: tuple[str, ...], width: int, unroll: int, extent: Dim, rows: bool) -> Schedule:
    assert stage.reduction is not None
    vectors, columns = vector_loops(stage, axes[-1], width, 1, extent)
    steps: list[Step] = [*vectors]
    if len(columns) > 1:
        steps.append(Unroll(stage.name, columns[0]))
    if rows:
        steps.append(Unroll(stage.name, axes[-2]))
    reduced = stage.reduction.axes
    inner = reduced[-1].extent
    if isinstance(inner, int) and 1 < inner <= _SMALL_WINDOW and len(reduced) > 1:
        steps.append(Unroll(stage.name, reduced[-1].name))
    names = tuple(a.name for a in reduced)
    steps.append(Reorder(stage.name, (*axes[:-2], *names, *axes[-2:-1], *columns)))
    return tuple(steps)


def _packed(kernel: KernelView, state: State, stage: Stage) -> Schedule:
    """Constant weights with the vector axis innermost."""
    axis = stage.compute.axes[-1].name
    return tuple(
        Pack(load.tensor.name, order)
        for load in loads(stage.body)
        if load.tensor in kernel.constants
        and isinstance(load.tensor.op, Placeholder)
        and (order := packed_order(load, axis, 1)) is not None
    )
