"""Reductions whose result is spread over the output again, row by row: softmax, normalisation, reduce over the last axes.

Axes of the output that the reductions hang on come first and are the tasks; everything else of a row is computed inside: the
reductions with vector lanes along the reduced axis, then the output with vectors along its last axis.
"""

from __future__ import annotations

from compiler_service.schedule.analysis import (
    KernelView,
    bound_axes,
    contiguous_axis,
    extent_of,
    inlined,
    is_expensive,
    reads_in_place,
    reductions,
    stays_in_row,
)
from compiler_service.schedule.state import Stage, State
from compiler_service.schedule.steps import ROOT, Alias, CacheWrite, ComputeAt, Reorder, Schedule, Step
from compiler_service.schedule.tiles import lanes, ordered, vector_loops
from compiler_service.tensor_expr.tensor import loads
from shared_ir.target import Target

_UNROLL = 4


def row_schedule(kernel: KernelView, target: Target) -> Schedule | None:
    if not reductions(kernel.state):
        return None
    steps: tuple[Step, ...] = ()
    if kernel.state.output.reduction is not None:
        steps = (CacheWrite(kernel.state.output.name),)
    kept, aliased = _kept(kernel.after(steps))
    steps += inlined(kernel.after(steps), kept | aliased)
    state = kernel.after(steps)
    output = state.output
    bound = bound_axes(state, output, aliased)
    free = tuple(a.name for a in output.compute.axes if a.name not in bound)
    vectors, inner = _free_loops(output, free, target)
    place: list[Step] = []
    for stage in state.stages.values():
        if stage is not output:
            place.append(ComputeAt(stage.name, output.name, bound[-1] if bound else ROOT))
            place += [Alias(stage.name)] if stage.name in aliased else []
            place += _inner_schedule(stage, target) if stage.reduction or stage.name in aliased else ()
    return (*steps, *vectors, *ordered(output.name, (*bound, *inner), bound), *place)


def _kept(state: State) -> tuple[frozenset[str], frozenset[str]]:
    """Stages not to inline: those of one element a row that read a reduction, and (second) expensive ones that a reduction
    and the output both read, which can live in the output's memory."""
    output = state.output
    bound = set(bound_axes(state, output))
    kept: set[str] = set()
    aliased: set[str] = set()
    for stage in state.stages.values():
        if stage is output or stage.reduction is not None:
            continue
        free = [a for a in stage.compute.axes if a.extent != 1]
        reads = [s for ld in loads(stage.body) if (s := state.stage_of(ld.tensor)) is not None]
        reads_reduction = any(s.reduction is not None or s.name in kept for s in reads)
        if reads_reduction and len(free) < len([a for a in output.compute.axes if a.extent != 1]) and bound:
            kept.add(stage.name)
        elif _may_alias(state, stage):
            aliased.add(stage.name)
    return frozenset(kept), frozenset(aliased if len(aliased) == 1 else ())


def _may_alias(state: State, stage: Stage) -> bool:
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


def _free_loops(stage: Stage, free: tuple[str, ...], target: Target) -> tuple[Schedule, tuple[str, ...]]:
    if not free:
        return (), ()
    last = extent_of(stage.compute.axes, free[-1])
    width = lanes(target, stage.tensor.dtype)
    vectors, inner = vector_loops(stage, free[-1], width, _UNROLL, last)
    return vectors, (*free[:-1], *inner)


def _inner_schedule(stage: Stage, target: Target) -> Schedule:
    """Loops of a stage inside a row."""
    spatial = tuple(a.name for a in stage.compute.axes)
    width = lanes(target, stage.tensor.dtype)
    if stage.reduction is None:
        vectors, inner = vector_loops(stage, spatial[-1], width, _UNROLL, stage.compute.axes[-1].extent)
        return (*vectors, Reorder(stage.name, (*spatial[:-1], *inner)))
    reduced = tuple(a.name for a in stage.reduction.axes)
    along = contiguous_axis(stage)
    if along is None or along not in reduced:
        along = reduced[-1]
    extent = extent_of(stage.reduction.axes, along)
    if isinstance(extent, int) and extent < width:
        return ()
    vectors, inner = vector_loops(stage, along, width, _UNROLL, extent)
    others = tuple(n for n in reduced if n != along)
    return (*vectors, Reorder(stage.name, (*spatial, *others, *inner)))
