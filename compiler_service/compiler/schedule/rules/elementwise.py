"""Kernels without a reduction: inline everything, vectors along the last axis, tasks by the work there is.

Where memory is read along another axis than it is written (a transpose), a square of both is done at once, which the loop passes
turn into rows and shuffles. Where the last axis is too short for vectors (3 channels), it is unrolled and vectors lie along the one
before it.
"""

from __future__ import annotations

import math

from compiler_service.compiler.schedule.language.knobs import Knobs
from compiler_service.compiler.schedule.language.schedule import Schedule, Step
from compiler_service.compiler.schedule.language.state import KernelStage
from compiler_service.compiler.schedule.language.steps import Overlap, Parallel, Reorder, Split, Unroll, Vectorize
from compiler_service.compiler.schedule.model.analysis import (
    KernelView,
    depends,
    inlined,
    is_free,
    lane_axis,
    reductions,
)
from compiler_service.compiler.schedule.model.tasks import alone_cycles, body_cycles, count, memory_cycles, task_loops
from compiler_service.compiler.schedule.model.tiles import SQUARE_SIDES, lanes, vector_loops
from compiler_service.compiler.tensor_expr.tensor import Axis, Load, loads
from shared_ir.dtype import DType
from shared_ir.expr import Binary, BinaryOp, Const, Expr, Select, walk
from shared_ir.machine.target import Target

_VECTORS_PER_STEP = 4
"""Vectors of one step along the last axis."""
_DIVISIONS = (BinaryOp.FLOOR_DIV, BinaryOp.FLOOR_MOD, BinaryOp.TRUNC_DIV, BinaryOp.TRUNC_MOD)
"""Operations on integers that vectors do one lane after the other."""
_CLAMPS = (BinaryOp.MIN, BinaryOp.MAX)
_MOST_UNROLLED_ELEMENTS = 8
"""Largest extent of a last axis that is unrolled rather than vectorised."""
_ELEMENTS_OF_BLOCK = 1024
"""Where an axis is cut into tasks, each but the last has a multiple of so many elements."""

_VECTORS_ASKED, _ELEMENTS_ASKED = (1, 2, 4, 8, 16), (256, 512, 1024, 2048, 4096, 8192)
"""Numbers of vectors of a step, and of elements of a block, that may be asked for."""


def elementwise_schedule(kernel: KernelView, target: Target) -> Schedule | None:
    if reductions(kernel.state):
        return None
    steps = inlined(kernel.state)
    return (*steps, *output_loops(kernel.after(steps).output, target, kernel.knobs.within("elementwise")))


def output_loops(stage: KernelStage, target: Target, knobs: Knobs) -> Schedule:
    """Loops of an output without reductions inside."""
    axes = stage.compute.axes
    if not axes:
        return ()
    width = _width(stage, target)
    size = stage.tensor.dtype.itemsize
    cycles = body_cycles(stage.body, width) + memory_cycles(size)
    cycles += alone_cycles(size, size, math.prod(count(a.extent) for a in axes), target)
    if width > 1 and len(axes) > 1:
        last, before = axes[-1], axes[-2]
        if isinstance(last.extent, int) and last.extent <= _MOST_UNROLLED_ELEMENTS and count(before.extent) >= width:
            return _short(stage, width, cycles, target, knobs)
        across = lane_axis(stage)
        if across not in (None, last.name):
            rows = next(a for a in axes if a.name == across)
            side = _side(stage, rows, last, width)
            if side is not None and knobs.flag("squares", default=True):
                return _square(stage, rows, side, cycles, target, knobs)
    return _rows(stage, width, cycles, target, knobs)


def _width(stage: KernelStage, target: Target) -> int:
    """Elements of a vector: of a register, but where bytes are read at places that take more than steps of constants to find, no
    more than a register holds places: no target has an instruction that gathers bytes, each lane takes code of its own."""
    width = lanes(target, stage.tensor.dtype)
    last = stage.compute.axes[-1].name
    if width <= lanes(target, DType.FLOAT32):
        return width
    indices = (i for load in loads(stage.body) for i in load.indices)
    return min([width, *(lanes(target, i.dtype) for i in indices if depends(i, last) and _is_calculated(i))])


def _is_calculated(index: Expr) -> bool:
    """Whether ``index`` chooses, or divides by what the run knows."""
    parts = tuple(walk(index))
    return any(isinstance(e, Load | Select) for e in parts) or any(
        isinstance(e, Binary) and (e.op in _CLAMPS or _divides_by_size(e)) for e in parts
    )


def _rows(stage: KernelStage, width: int, cycles: float, target: Target, knobs: Knobs) -> Schedule:
    """Vectors along the last axis."""
    *outer, last = stage.compute.axes
    unroll = 1 if _divides_by_sizes(stage) else knobs.choice("vectors of a step", _VECTORS_ASKED, _VECTORS_PER_STEP)
    vectors, inner = vector_loops(stage, last.name, width, unroll, last.extent)
    if not outer:
        return _blocks(stage, last, vectors, inner, cycles, target, knobs)
    tasks = task_loops(stage.name, outer, cycles * count(last.extent), target, knobs)
    return (*tasks.steps, *vectors, *_placed(stage, (*tasks.parallel, *tasks.serial, *inner), tasks.parallel))


def _divides_by_sizes(stage: KernelStage) -> bool:
    """Whether elements are found by dividing by what the run knows: no target has an instruction for vectors of it, so that each lane
    takes code of its own."""
    return any(isinstance(e, Binary) and _divides_by_size(e) for e in walk(stage.body))


def _divides_by_size(found: Binary) -> bool:
    return found.op in _DIVISIONS and found.dtype.is_integer and not isinstance(found.rhs, Const)


def _blocks(
    stage: KernelStage,
    last: Axis,
    vectors: Schedule,
    inner: tuple[str, ...],
    cycles: float,
    target: Target,
    knobs: Knobs,
) -> Schedule:
    """A single axis, cut into tasks."""
    extent = last.extent
    unit = knobs.choice("elements of a block", _ELEMENTS_ASKED, _ELEMENTS_OF_BLOCK)
    blocks = -(-extent // unit) if isinstance(extent, int) else extent
    tasks = task_loops(stage.name, [Axis(last.name, blocks)], cycles * unit, target, knobs)
    sizes = [s.factor for s in tasks.steps if isinstance(s, Split)]
    size = unit * (sizes[0] if sizes else 1)
    if not tasks.parallel or (isinstance(extent, int) and size >= extent):
        return vectors
    name = f"{last.name}.{size}"
    return (Split(stage.name, last.name, size), *vectors, *_placed(stage, (name, *inner), (name,)))


def _short(stage: KernelStage, width: int, cycles: float, target: Target, knobs: Knobs) -> Schedule:
    """Vectors along the axis before the last, which is unrolled: stores are interleaved. Where the last axis is half a register,
    and read in place, it is the vector."""
    *outer, row, last = stage.compute.axes
    steps: Schedule
    if isinstance(last.extent, int) and 2 * last.extent == width and lane_axis(stage) in (None, last.name):
        rows = knobs.choice("rows of a step", (2, 4, 8, 16), _VECTORS_PER_STEP)
        rest = (f"{row.name}.{rows}", row.name, last.name)
        steps = (
            Split(stage.name, row.name, rows),
            Unroll(stage.name, row.name),
            Vectorize(stage.name, last.name),
        )
    else:
        unrolled = (Unroll(stage.name, last.name),) if last.extent != 1 else ()
        rest = (f"{row.name}.{width}", last.name, row.name)
        steps = (Split(stage.name, row.name, width), Vectorize(stage.name, row.name), *unrolled)
    if outer:
        tasks = task_loops(stage.name, outer, cycles * count(row.extent) * count(last.extent), target, knobs)
        return (*tasks.steps, *steps, *_placed(stage, (*tasks.parallel, *tasks.serial, *rest), tasks.parallel))
    vectors: Schedule = (*steps, *_placed(stage, rest, ()))
    blocked = _blocks(stage, row, steps, rest, cycles * count(last.extent), target, knobs)
    return vectors if blocked is steps else blocked


def _side(stage: KernelStage, rows: Axis, last: Axis, width: int) -> int | None:
    """Elements of a side of squares: of a register, or of a part of one where a pure move has less to do."""
    shorter = min(count(rows.extent), count(last.extent))
    if is_free(stage) and isinstance(rows.extent, int) and isinstance(last.extent, int):
        return next((side for side in SQUARE_SIDES if side <= min(width, shorter)), None)
    return width if shorter >= width else None


def _square(stage: KernelStage, rows: Axis, width: int, cycles: float, target: Target, knobs: Knobs) -> Schedule:
    """Squares of ``rows`` and the last axis."""
    last = stage.compute.axes[-1]
    outer = [a for a in stage.compute.axes if a not in (rows, last)]
    tile = f"{rows.name}.{width}"
    steps: list[Step] = [
        Split(stage.name, rows.name, width),
        Unroll(stage.name, rows.name),
        Split(stage.name, last.name, width),
        Vectorize(stage.name, last.name),
    ]
    if is_free(stage):  # what is moved twice is the same; a sum might stand in the place of what it reads
        edges = ((rows, tile), (last, f"{last.name}.{width}"))
        steps += [Overlap(stage.name, n) for a, n in edges if isinstance(a.extent, int) and a.extent % width]
    inner = (f"{last.name}.{width}", rows.name, last.name)
    tasks = task_loops(stage.name, outer, cycles * count(rows.extent) * count(last.extent), target, knobs)
    if tasks.parallel:
        order = (*tasks.parallel, *tasks.serial, tile, *inner)
        return (*tasks.steps, *steps, *_placed(stage, order, tasks.parallel))
    tiles = -(-rows.extent // width) if isinstance(rows.extent, int) else rows.extent
    within = cycles * count(last.extent) * width
    for axis in outer:
        within *= count(axis.extent)
    cut = task_loops(stage.name, [Axis(rows.name, tiles)], within, target, knobs.within("squares"))
    sizes = [width * s.factor for s in cut.steps if isinstance(s, Split)]
    names = tuple(a.name for a in outer)
    if not cut.parallel:
        return (*steps, *_placed(stage, (*names, tile, *inner), ()))
    if not sizes:
        return (*steps, *_placed(stage, (tile, *names, *inner), (tile,)))
    head = f"{rows.name}.{sizes[0]}"
    steps = [s for s in steps if s != Overlap(stage.name, tile)]  # only the outermost tiles of an axis may overlap
    return (Split(stage.name, rows.name, sizes[0]), *steps, *_placed(stage, (head, *names, tile, *inner), (head,)))


def _placed(stage: KernelStage, order: tuple[str, ...], parallel: tuple[str, ...]) -> Schedule:
    steps: tuple[Step, ...] = (Reorder(stage.name, order),)
    return (*steps, Parallel(stage.name, parallel)) if parallel else steps
