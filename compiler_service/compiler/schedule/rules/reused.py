"""Kernels without a reduction, of which some parts are read by many elements of the output: rows between the pixels of an image,
the places and weights of its columns, what is sampled by all channels alike.

Such a part is computed once for all that read it: inside the loops over the axes of the output that it hangs on, which come first,
with vectors along the axis that its source lies along. Computed anew for every element, its source would be gathered.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from compiler_service.compiler.schedule.language.knobs import Knobs
from compiler_service.compiler.schedule.language.schedule import Schedule, Step
from compiler_service.compiler.schedule.language.state import KernelStage, ScheduleState
from compiler_service.compiler.schedule.language.steps import ROOT, ComputeAt, Parallel, Reorder
from compiler_service.compiler.schedule.model.analysis import (
    KernelView,
    depends,
    extent_of,
    inlined,
    lane_axis,
    reads_in_place,
    reductions,
    steps_along,
)
from compiler_service.compiler.schedule.model.tasks import (
    TASKS_PER_CORE,
    arithmetic_cycles,
    count,
    memory_cycles,
    stage_cycles,
    task_loops,
)
from compiler_service.compiler.schedule.model.tiles import lanes, vector_loops
from compiler_service.compiler.tensor_expr.tensor import Axis, Load, loads
from shared_ir.expr import Expr, substitute
from shared_ir.expr.dim import Dim
from shared_ir.machine.target import Target

_GATHER_CYCLES = 1.5
"""Cycles to load one element that does not lie beside the one before it, on a Zen 4."""
_MOST_PART_OF_CYCLES = 0.75
"""A part is kept only if computing it once takes less than this part of the cycles of computing it wherever it is read: its buffer has
a price too."""
_VECTORS_PER_STEP = 4
"""Vectors of one step along the last axis."""
_VECTORS_ASKED = (1, 2, 4, 8, 16)
"""Numbers of vectors of a step that may be asked for."""
_MOST_BYTES_OF_PART = 1 << 16
"""Largest size in bytes of a part that is kept, so that it stays in the second-level cache."""
_MOST_BYTES_ON_STACK = 1 << 12
"""Largest size in bytes of a part that lies on the stack of its thread; there may be a dozen of them."""


@dataclass(frozen=True)
class _Part:
    """``stage``, where it is kept.

    Attributes:
        bound: axes of the output inside whose loops it is computed: those that say alone where it is read.
        vector: its axis along which vectors lie, if there is any.
        extents: of what is kept at a time.
    """

    stage: KernelStage
    bound: frozenset[str]
    vector: Axis | None
    extents: tuple[Dim, ...]


def reused_schedule(kernel: KernelView, target: Target) -> Schedule | None:
    """None where no part is worth computing once."""
    if reductions(kernel.state) or len(kernel.state.output.compute.axes) < 2:
        return None
    knobs = kernel.knobs.within("reused")
    kept = _worth_keeping(kernel, target, knobs)
    if not kept:
        return None
    steps = inlined(kernel.state, kept)
    state = kernel.after(steps)
    parts = [_part(state, s) for s in state.stages.values() if s is not state.output]
    return (*steps, *_loops(state, parts, target, knobs))


def _loops(state: ScheduleState, parts: list[_Part], target: Target, knobs: Knobs) -> Schedule:
    output = state.output
    *outer, last = output.compute.axes
    outer = sorted(outer, key=lambda a: -sum(a.name in p.bound for p in parts))
    width = lanes(target, output.tensor.dtype)
    step = knobs.choice("vectors of a step", _VECTORS_ASKED, _VECTORS_PER_STEP)
    vectors, inner = vector_loops(output, last.name, width, step, last.extent)
    places = math.prod(count(a.extent) for a in outer)
    cycles = sum(stage_cycles(s, lanes(target, s.tensor.dtype)) for s in state.stages.values()) / max(1, places)
    tasks = task_loops(output.name, outer, cycles, target, knobs)
    around = (*tasks.parallel, *tasks.serial)
    steps: list[Step] = [*tasks.steps, *vectors, Reorder(output.name, (*around, *inner))]
    if tasks.parallel:
        steps.append(Parallel(output.name, tasks.parallel))
    for part in parts:
        home = _home(part, tasks.parallel, tasks.serial)
        steps += [
            ComputeAt(part.stage.name, output.name, home, "stack" if _size(part) <= _MOST_BYTES_ON_STACK else "scratch")
        ]
        steps += _inside(part, target)
    return tuple(steps)


def _home(part: _Part, parallel: tuple[str, ...], serial: tuple[str, ...]) -> str:
    """The outermost loop inside which ``part`` stands still."""
    own = [name for name in (*parallel, *serial) if name.split(".")[0] in part.bound]
    if own and own[-1] not in parallel:
        return own[-1]
    return parallel[-1] if parallel else ROOT


def _inside(part: _Part, target: Target) -> Schedule:
    stage, along = part.stage, part.vector
    if along is None:
        return ()
    vectors, inner = vector_loops(stage, along.name, lanes(target, stage.tensor.dtype), _VECTORS_PER_STEP, along.extent)
    others = (a.name for a in stage.compute.axes if a is not along)
    return (*vectors, Reorder(stage.name, (*others, *inner)))


def _worth_keeping(kernel: KernelView, target: Target, knobs: Knobs) -> frozenset[str]:
    """Stages that take less time computed once than wherever they are read, or that ``knobs`` say; those that others are computed from
    come first."""
    kept: frozenset[str] = frozenset()
    for name in [n for n, s in kernel.state.stages.items() if _is_shared(kernel.state, s)]:
        state = kernel.after(inlined(kernel.state, kept | {name}))
        fits = all(_fits(_part(state, state.stages[n])) for n in kept | {name})  # one may be read by another now
        if fits and knobs.flag(f"keep {name}", default=_is_worth(state, state.stages[name], target)):
            kept |= {name}
    return kept


def _is_shared(state: ScheduleState, stage: KernelStage) -> bool:
    """Whether an element of ``stage`` may be read by several of another."""
    return not all(reads_in_place(reader, stage.tensor) for reader in state.consumers(stage.tensor))


def _is_worth(state: ScheduleState, stage: KernelStage, target: Target) -> bool:
    output = state.output
    sites = dict.fromkeys(ld for ld in loads(output.body) if ld.tensor is stage.tensor)
    last, part = output.compute.axes[-1], _part(state, stage)
    if not any(depends(i, last.name) for ld in sites for i in ld.indices):
        return False
    width = lanes(target, output.tensor.dtype)
    uses = len(sites) * math.prod(count(a.extent) for a in output.compute.axes)
    elements = math.prod(count(a.extent) for a in stage.compute.axes)
    size = memory_cycles(stage.tensor.dtype.itemsize)
    once = _cycles(stage.body, part.vector, width) + size
    anew = max(_cycles(_seen(stage, site), last, width) for site in sites)
    again = max(_reading(site, last) for site in sites)
    tasks = 1 if part.bound else TASKS_PER_CORE * target.cores
    return tasks * elements * once + uses * again < _MOST_PART_OF_CYCLES * uses * anew


def _seen(stage: KernelStage, site: Load) -> Expr:
    """An element of ``stage`` as the reader would compute it at ``site``."""
    return substitute(stage.body, {a.var: i for a, i in zip(stage.compute.axes, site.indices, strict=True)})


def _cycles(body: Expr, along: Axis | None, width: int) -> float:
    """Cycles of an element of ``body`` in vectors along an axis."""
    reading = sum(_reading(ld, along) for ld in loads(body))
    return reading + arithmetic_cycles(body, width, None if along is None else along.var)


def _reading(load: Load, along: Axis | None) -> float:
    """Cycles of an element of ``load`` in vectors along an axis."""
    if along is None:
        return _GATHER_CYCLES
    moving = [i for i in load.indices if depends(i, along.name)]
    in_order = not moving or (moving == [load.indices[-1]] and steps_along(moving[0], along.name))
    return memory_cycles(load.dtype.itemsize) if in_order else _GATHER_CYCLES


def _part(state: ScheduleState, stage: KernelStage) -> _Part:
    """``stage`` with vectors along the axis in which its source lies, or else the one that is read along the output's last."""
    axes = state.output.compute.axes
    last = axes[-1]
    pinned = {axis: _pin(state, stage, position) for position, axis in enumerate(stage.compute.axes)}
    lane = lane_axis(stage) if stage.compute.axes else None
    along = [a for a in pinned if a.name == lane] or [a for a in pinned if pinned[a] in (None, last.name)]
    vector = max(along, key=lambda a: count(a.extent), default=None)
    bound = {a: name for a, name in pinned.items() if name not in (None, last.name) and a is not vector}
    kept = tuple(a.extent if n is None else extent_of(axes, n) for a, n in pinned.items() if a not in bound)
    return _Part(stage, frozenset(name for name in bound.values() if name is not None), vector, kept)


def _pin(state: ScheduleState, stage: KernelStage, position: int) -> str | None:
    """The axis of the output that is the index at ``position`` wherever ``stage`` is read."""
    readers = state.consumers(stage.tensor)
    found = {ld.indices[position] for s in readers for ld in loads(s.body) if ld.tensor is stage.tensor}
    if readers != (state.output,) or len(found) != 1:
        return None
    return next((a.name for a in state.output.compute.axes if a.var in found), None)


def _fits(part: _Part) -> bool:
    """Whether what is kept has a size, and a small one."""
    return all(isinstance(e, int) for e in part.extents) and _size(part) <= _MOST_BYTES_OF_PART


def _size(part: _Part) -> int:
    """Bytes of what is kept, whose extents are known."""
    return math.prod(e for e in part.extents if isinstance(e, int)) * part.stage.tensor.dtype.itemsize
