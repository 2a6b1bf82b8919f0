"""Kernels without a reduction: inline everything, tasks over the outer axes, vectors along the last one."""

from __future__ import annotations

from compiler_service.schedule.analysis import KernelView, inlined, reductions
from compiler_service.schedule.state import Stage
from compiler_service.schedule.steps import Schedule, Split
from compiler_service.schedule.tiles import chunk, lanes, ordered, vector_loops
from shared_ir.target import Target

_TASK_ELEMENTS = 16384
_UNROLL = 4


def elementwise_schedule(kernel: KernelView, target: Target) -> Schedule | None:
    if reductions(kernel.state):
        return None
    steps = inlined(kernel.state)
    return (*steps, *output_loops(kernel.after(steps).output, target))


def output_loops(stage: Stage, target: Target) -> Schedule:
    """Loops of an output without reductions inside: all outer axes are tasks; a single axis is cut into chunks."""
    axes = stage.compute.axes
    if not axes:
        return ()
    last = axes[-1]
    width = lanes(target, stage.tensor.dtype)
    vectors, inner = vector_loops(stage, last.name, width, _UNROLL, last.extent)
    outer = tuple(a.name for a in axes[:-1])
    if outer:
        return (*vectors, *ordered(stage.name, (*outer, *inner), outer))
    if isinstance(last.extent, int) and last.extent <= _TASK_ELEMENTS:
        return vectors
    size = _TASK_ELEMENTS
    if isinstance(last.extent, int):
        size = chunk(last.extent, width * _UNROLL, -(-last.extent // _TASK_ELEMENTS))
    head = (Split(stage.name, last.name, size),)
    return (*head, *vectors, *ordered(stage.name, (f"{last.name}.{size}", *inner), (f"{last.name}.{size}",)))
