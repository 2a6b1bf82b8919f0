"""Products whose few columns fill no whole number of vectors: several steps of the sums side by side (:mod:`tensor_expr.folded`).

All columns of some rows accumulate in registers; the epilogue adds neighbouring lanes of two vectors at a time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from compiler_service.compiler.schedule.algorithms.folded.step import Fold
from compiler_service.compiler.schedule.algorithms.product import Product, product_of
from compiler_service.compiler.schedule.language.knobs import Knobs
from compiler_service.compiler.schedule.language.schedule import Schedule, Step
from compiler_service.compiler.schedule.language.state import ScheduleState
from compiler_service.compiler.schedule.language.steps import ComputeAt, Parallel, Reorder, Split, Unroll, Vectorize
from compiler_service.compiler.schedule.model.analysis import (
    KernelView,
    ends_in_place,
    inlined,
    is_free,
    only_reduction,
)
from compiler_service.compiler.schedule.model.tasks import asked_tasks
from compiler_service.compiler.schedule.model.tiles import lanes, register_tile, tile_cost
from compiler_service.compiler.tensor_expr.tensor import Placeholder
from shared_ir.expr.dim import static
from shared_ir.machine.target import Target

_STEPS_PER_VECTOR = 2
"""Steps of the sum that a vector holds side by side: the lanes of two are added up by two shuffles of whole vectors, those of more
take too long."""
_OPERAND_REGISTERS = 4
"""Registers for data that is broadcast: it is loaded ahead of the products."""
_MOST_PART_OF_PLAIN_TIME = 0.93
"""Folding is taken only if the model promises less than this part of the time of vectors that hold one step."""
_EPILOGUE_CYCLES = 1.5
"""Cycles to add up the lanes of an accumulator and to write what is left of it."""


@dataclass(frozen=True)
class _Tile:
    """``height`` rows x ``vectors`` accumulators."""

    height: int
    vectors: int


def folded_schedule(kernel: KernelView, target: Target) -> Schedule | None:
    stage = only_reduction(kernel.state)
    if stage is None or (product := product_of(stage)) is None or not _applies(kernel, product):
        return None
    knobs = kernel.knobs.within("folded")
    tile = _choose(product, target, knobs, anyway=kernel.is_open)
    if tile is None:
        return None
    name = stage.name
    before: Schedule = (Fold(name, product.weight.tensor.name, _STEPS_PER_VECTOR, product.weight_columns),)
    before = (*before, *inlined(kernel.after(before), frozenset({f"{name}.folded"})))
    return (*before, *_loops(kernel.after(before), f"{name}.folded", product, tile, target, knobs))


def _applies(kernel: KernelView, product: Product) -> bool:
    """Whether constant weights multiply rows of known number that lie in memory, and the output reads the product in place."""
    weight, shape = product.weight.tensor, product.tensor.shape
    source = kernel.state.stage_of(product.data.tensor)
    if weight not in kernel.constants or not isinstance(weight.op, Placeholder) or not product.tensor.dtype.is_float:
        return False
    if (source is not None and not is_free(source)) or product.tensor.dtype.bits != 32 or product.data.dtype.bits != 32:
        return False
    return len(shape) > 1 and all(isinstance(d, int) for d in shape) and ends_in_place(kernel, product.tensor)


def _choose(product: Product, target: Target, knobs: Knobs, *, anyway: bool) -> _Tile | None:
    """The tile that takes the fewest cycles, if that is clearly less than whole vectors take, or if it is asked for ``anyway``."""
    rows, columns, depth = product.tensor.shape[-2], product.columns, product.depth
    width = lanes(target, product.tensor.dtype)
    assert isinstance(rows, int)
    if columns <= width or columns % width == 0 or columns * _STEPS_PER_VECTOR % width or depth % _STEPS_PER_VECTOR:
        return None
    height, vectors = register_tile(rows, columns, target, product.tensor.dtype)
    whole = depth * tile_cost(rows, height, columns, vectors * width, width)
    vectors = columns * _STEPS_PER_VECTOR // width
    most = min(rows, (target.vector_registers - _OPERAND_REGISTERS - vectors) // vectors)
    found = []
    for height in range(1, most + 1):
        steps = tile_cost(rows, height, columns * _STEPS_PER_VECTOR, vectors * width, width) * depth / _STEPS_PER_VECTOR
        found.append((steps + rows * vectors * _EPILOGUE_CYCLES, -height, _Tile(height, vectors)))
    cost, _, tile = min(found, default=(math.inf, 0, None), key=lambda entry: entry[:2])
    if tile is None or (cost >= _MOST_PART_OF_PLAIN_TIME * whole and not anyway):
        return None
    return replace(tile, height=knobs.range("rows", 1, most, tile.height))


def _loops(state: ScheduleState, folded: str, product: Product, tile: _Tile, target: Target, knobs: Knobs) -> Schedule:
    width = lanes(target, product.tensor.dtype)
    out = state.output
    *outer, row, column = out.compute.axes
    own, q = state.stage(folded).compute.axes[-2:]
    assert isinstance(row.extent, int)
    cycles = (
        math.prod(static(d) for d in product.tensor.shape[:-1]) * tile.vectors * product.depth / _STEPS_PER_VECTOR / 2
    )
    wanted = -(-max(1, asked_tasks(knobs, cycles, target)) // math.prod(static(a.extent) for a in outer))
    size = -(-row.extent // wanted // tile.height) * tile.height
    steps: list[Step] = []
    nest = [a.name for a in outer]
    if tile.height < size < row.extent:
        steps.append(Split(out.name, row.name, size))
        nest.append(f"{row.name}.{size}")
    tasks = tuple(nest)
    if tile.height > 1:
        steps += [Split(out.name, row.name, tile.height), Unroll(out.name, row.name)]
    nest.append(f"{row.name}.{tile.height}" if tile.height > 1 else row.name)
    inner = (row.name,) if tile.height > 1 else ()
    vectors = f"{column.name}.{width}"
    steps += [Split(out.name, column.name, width), Unroll(out.name, vectors), Vectorize(out.name, column.name)]
    steps.append(Reorder(out.name, (*nest, *inner, vectors, column.name)))
    steps += [Parallel(out.name, tasks)] if tasks else []
    steps.append(ComputeAt(folded, out.name, nest[-1]))
    return (*steps, *_accumulate(state, folded, own.name, q.name, width))


def _accumulate(state: ScheduleState, folded: str, row: str, q: str, width: int) -> Schedule:
    stage, vectors = state.stage(folded), f"{q}.{width}"
    assert stage.reduction is not None
    others = [a.name for a in stage.compute.axes[:-2]]
    (depth,) = (a.name for a in stage.reduction.axes)
    return (
        Split(folded, q, width),
        Reorder(folded, (*others, depth, row, vectors, q)),
        *(Unroll(folded, name) for name in (row, vectors)),
        Vectorize(folded, q),
    )
