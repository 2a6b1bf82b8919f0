"""Sums of products with fewer results of a row than a vector has lanes: the last convolution of a segmentation, a transposed one
of one channel.

Vectors lie along the rows instead of the columns. A tile of rows is transposed first, in squares, so that each step of the
reduction reads vectors of neighbouring rows and multiplies them with one weight for each column; what is done to a result
fills whole vectors too, and results are interleaved as they are stored.
"""

from __future__ import annotations

from dataclasses import dataclass

from compiler_service.compiler.schedule.language.knobs import Knobs
from compiler_service.compiler.schedule.language.schedule import Schedule, Step
from compiler_service.compiler.schedule.language.state import KernelStage, ScheduleState
from compiler_service.compiler.schedule.language.steps import (
    CacheRead,
    ComputeAt,
    Overlap,
    Parallel,
    Reorder,
    Split,
    Unroll,
    Vectorize,
)
from compiler_service.compiler.schedule.model.analysis import KernelView, accumulated, depends, inlined, only_reduction
from compiler_service.compiler.schedule.model.tasks import arithmetic_cycles, body_cycles, memory_cycles, task_loops
from compiler_service.compiler.schedule.model.tiles import FMA_LATENCY_CYCLES, SQUARE_SIDES, lanes
from compiler_service.compiler.schedule.rules.contraction.match import Contraction, match_contraction, same_axes
from compiler_service.compiler.tensor_expr.tensor import Axis, Placeholder, Tensor
from shared_ir.expr.dim import product
from shared_ir.machine.target import Target

_L1_SHARE_OF_TILE = 0.5
"""Largest part of the first-level cache that a transposed tile of the data may fill."""


def few_columns_schedule(kernel: KernelView, target: Target) -> Schedule | None:
    steps = accumulated(kernel)
    steps += inlined(kernel.after(steps))
    state = kernel.after(steps)
    found = _match(state, kernel, target)
    knobs = kernel.knobs.within("few columns")
    return None if found is None else (*steps, *_steps(state, found, target, knobs))


@dataclass(frozen=True)
class _Product:
    """A sum of products to compute so.

    Attributes:
        rows: place of an axis of the output, of ``extent`` elements.
        few: places of those that choose other weights for the same data; they have ``columns`` elements together.
        depth: elements of the reduced axis.
        side: depth of the squares that are transposed.
    """

    match: Contraction
    rows: int
    few: tuple[int, ...]
    extent: int
    columns: int
    depth: int
    side: int


def _match(state: ScheduleState, kernel: KernelView, target: Target) -> _Product | None:
    stage = only_reduction(state)
    if (
        stage is None
        or (match := match_contraction(stage)) is None
        or match.rows is None
        or match.groups
        or not same_axes(state, stage)
    ):
        return None
    assert stage.reduction is not None
    axes, data, reduced = stage.compute.axes, match.data, stage.reduction.axes
    if len(reduced) != 1 or not isinstance(data.tensor.op, Placeholder) or match.weight.tensor not in kernel.constants:
        return None
    rows = next(i for i, a in enumerate(axes) if a.name == match.rows)
    few = tuple(i for i, a in enumerate(axes) if not any(depends(x, a.name) for x in data.indices))
    depth, columns, extent = reduced[0].extent, product([axes[i].extent for i in few]), axes[rows].extent
    width = lanes(target, stage.tensor.dtype)
    if not (isinstance(depth, int) and isinstance(columns, int) and isinstance(extent, int)):
        return None
    if data.indices[-2:] != (axes[rows].var, reduced[0].var) or data.tensor.dtype is not stage.tensor.dtype:
        return None
    side = next((s for s in SQUARE_SIDES if s <= width and depth % s == 0), None)
    size = depth * width * stage.tensor.dtype.itemsize
    if side is None or not 1 < columns <= width // 2 or extent < width or size > _L1_SHARE_OF_TILE * target.l1:
        return None
    return _Product(match, rows, few, extent, columns, depth, side)


def _steps(state: ScheduleState, found: _Product, target: Target, knobs: Knobs) -> Schedule:
    output, stage, tensor = state.output, found.match.stage, found.match.data.tensor
    axes, width = output.compute.axes, lanes(target, stage.tensor.dtype)
    row, few = axes[found.rows], tuple(axes[i].name for i in found.few)
    vectors = _vectors(width, found, target, knobs)
    size = vectors * width
    cycles = _cycles(state, found, size, width)
    wide = (f"{row.name}.{width}",) if vectors > 1 else ()
    tile = f"{row.name}.{size}"
    outer = [a for i, a in enumerate(axes) if i != found.rows and i not in found.few]
    tiles = Axis(row.name, -(-found.extent // size))
    tasks = task_loops(output.name, [*outer, tiles], cycles, target, knobs).of_elements(row.name, size)
    loops = (*tasks.parallel, *tasks.serial)
    steps: list[Step] = [*tasks.steps, Split(output.name, row.name, size)]
    steps += [Split(output.name, row.name, width), Unroll(output.name, *wide)] if wide else []
    steps += [Unroll(output.name, n) for n in few]
    steps += [Vectorize(output.name, row.name), Reorder(output.name, (*loops, *wide, *few, row.name))]
    if found.extent % size and not any(s.axis == row.name for s in tasks.steps if isinstance(s, Split)):
        steps.append(Overlap(output.name, tile))
    steps += [Parallel(output.name, tasks.parallel)] if tasks.parallel else []
    steps += _transposed(tensor, output.name, tile, found.side, width)
    return (*steps, *_accumulated(stage, found, output.name, tile, vectors, width))


def _vectors(width: int, found: _Product, target: Target, knobs: Knobs) -> int:
    """Vectors of rows in a tile: enough sums side by side that none waits for its last addition."""
    wanted = -(-2 * FMA_LATENCY_CYCLES // found.columns)
    room = int(_L1_SHARE_OF_TILE * target.l1) // (found.depth * width * found.match.stage.tensor.dtype.itemsize)
    most = max(1, min(target.vector_registers // found.columns, found.extent // width, room))
    return knobs.range("vectors", 1, most, max(1, min(wanted, found.extent // width, room)))


def _cycles(state: ScheduleState, found: _Product, size: int, width: int) -> float:
    """Cycles of a tile of ``size`` rows."""
    moved = memory_cycles(found.match.data.tensor.dtype.itemsize) * found.depth
    summed = arithmetic_cycles(found.match.stage.body, width) * found.depth
    return size * (moved + (summed + body_cycles(state.output.body, width)) * found.columns)


def _transposed(tensor: Tensor, output: str, tile: str, side: int, width: int) -> Schedule:
    """A tile of the data with rows innermost, moved in squares that the loop passes transpose in registers."""
    copy, last = f"{tensor.name}.local", tensor.rank - 1
    others = tuple(range(last - 1))
    row, depth = f"{tensor.name}_{last - 1}", f"{tensor.name}_{last}"
    order = (*(f"{tensor.name}_{i}" for i in others), f"{depth}.{side}", f"{row}.{width}", depth, row)
    return (
        CacheRead(tensor.name, (*others, last, last - 1)),
        ComputeAt(copy, output, tile),
        Split(copy, depth, side),
        Split(copy, row, width),
        Unroll(copy, depth),
        Vectorize(copy, row),
        Reorder(copy, order),
    )


def _accumulated(stage: KernelStage, found: _Product, output: str, tile: str, vectors: int, width: int) -> Schedule:
    own = [a.name for a in stage.compute.axes]
    assert stage.reduction is not None
    row, few = own[found.rows], tuple(own[i] for i in found.few)
    wide = (f"{row}.{width}",) if vectors > 1 else ()
    outer = tuple(n for n in own if n != row and n not in few)
    return (
        ComputeAt(stage.name, output, tile),
        *((Split(stage.name, row, width), Unroll(stage.name, *wide)) if wide else ()),
        *(Unroll(stage.name, n) for n in few),
        Vectorize(stage.name, row),
        Reorder(stage.name, (*outer, stage.reduction.axes[0].name, *wide, *few, row)),
    )
