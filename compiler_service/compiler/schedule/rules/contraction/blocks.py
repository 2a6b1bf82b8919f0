"""Sums of products with weights of which a word holds several, in blocks that are scaled before they are added up.

The register tile of a block, ``rows`` x ``columns``, is summed as in any product: a vector of words is read once, each of its codes
is made a float and multiplied with broadcast elements of the rows. What the blocks add up to waits in a tile of its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from compiler_service.compiler.schedule.language.knobs import Knobs
from compiler_service.compiler.schedule.language.schedule import Schedule, Step
from compiler_service.compiler.schedule.language.state import KernelStage, ScheduleState
from compiler_service.compiler.schedule.language.steps import ComputeAt, Parallel, Reorder, Split, Unroll, Vectorize
from compiler_service.compiler.schedule.model.analysis import KernelView, accumulated, depends, inlined, reductions
from compiler_service.compiler.schedule.model.tasks import TaskLoops, arithmetic_cycles, count, task_loops
from compiler_service.compiler.schedule.model.tiles import lanes
from compiler_service.compiler.schedule.rules.contraction.match import columns_index, same_axes
from compiler_service.compiler.schedule.rules.contraction.packing import (
    BYTES_AHEAD,
    packed_order,
    packing,
    prefetch_distance,
)
from compiler_service.compiler.tensor_expr.tensor import Axis, Load, loads
from shared_ir.expr.dim import as_dim
from shared_ir.machine.target import Target

_MOST_SUMS_ALONG_ONE_SIDE = 8
"""Largest number of rows, and of vectors, of a register tile: enough sums that none waits for its last addition."""
_WORKING_REGISTERS = 3
"""Registers for a code and for the masks that turn it into a number."""
_MOST_CODES = 16
"""Largest number of codes that one word holds: they are unrolled."""
_VECTORS_OF_UNKNOWN_ROWS = 3
"""Largest number of vectors of a register tile when the number of rows is only known at run time: it may be one."""


@dataclass(frozen=True)
class _Blocks:
    """``total[.., m, n] = sum over block of f(part[.., m, block, n])``, and ``part`` a sum of products over words and their codes.

    Attributes:
        total: None where there is one block, which the output reads itself.
        weights: name of each constant that is read along the columns, how it is read, and in which stage.
    """

    total: KernelStage | None
    part: KernelStage
    weights: tuple[tuple[str, Load, KernelStage], ...]

    @property
    def blocks(self) -> tuple[Axis, ...]:
        return _summed(self.total)

    @property
    def words(self) -> tuple[Axis, ...]:
        return _summed(self.part)[:-1]

    @property
    def code(self) -> Axis:
        return _summed(self.part)[-1]


def _summed(stage: KernelStage | None) -> tuple[Axis, ...]:
    return () if stage is None or stage.reduction is None else stage.reduction.axes


def block_schedule(kernel: KernelView, target: Target) -> Schedule | None:
    if len(reductions(kernel.state)) not in (1, 2):
        return None
    steps = accumulated(kernel)
    steps += inlined(kernel.after(steps))
    state = kernel.after(steps)
    found = _match(state, kernel)
    return None if found is None else (*steps, *_Plan(state.output, found, target, kernel.knobs).steps())


def _match(state: ScheduleState, kernel: KernelView) -> _Blocks | None:
    part, *rest = reductions(state)
    total = rest[0] if rest else None
    if not part.compute.axes or not same_axes(state, total or part) or not (total is None or _adds_blocks(total, part)):
        return None
    weights = tuple(
        (state.argument(ld.tensor).name, ld, stage)
        for stage in (part, *rest)
        for ld in dict.fromkeys(loads(stage.body))
        if ld.tensor is not part.tensor and state.argument(ld.tensor) in kernel.constants and ld.tensor.rank > 1
    )
    if any(columns_index(ld, stage.compute.axes[-1].name) is None for _, ld, stage in weights):
        return None
    code, codes = _summed(part)[-1].name, _summed(part)[-1].extent
    if not isinstance(codes, int) or codes > _MOST_CODES:
        return None
    own = [ld for _, ld, stage in weights if stage is part]
    if not own or any(depends(index, code) for ld in own for index in ld.indices):
        return None
    return _Blocks(total, part, weights)


def _adds_blocks(total: KernelStage, part: KernelStage) -> bool:
    """Whether each element of ``part`` goes into one of ``total``, column by column."""
    reads = [ld.indices for ld in loads(total.body) if ld.tensor is part.tensor]
    *outer, columns = (a.var for a in total.compute.axes)
    (*_, block) = (a.var for a in _summed(total))
    return len(_summed(total)) == 1 and reads in ([(*outer, block, columns)], [(*outer, columns)])


class _Plan:
    """Loops of the output, outermost first: tasks, column tile, row tile, and the register tile."""

    def __init__(self, output: KernelStage, found: _Blocks, target: Target, knobs: Knobs) -> None:
        self._output, self._found, self._target = output, found, target
        self._knobs = knobs.within("blocks")
        self._width = lanes(target, found.part.tensor.dtype)
        *outer, self._columns = output.compute.axes
        self._outer, self._rows = outer[:-1], outer[-1] if outer else None
        self._vectors, self._height = self._knobs.choice("tile", self._tiles(), self._register_tile())
        self._tile = self._vectors * self._width

    def _tiles(self) -> list[tuple[int, int]]:
        """(vectors, rows) of register tiles that may be asked for."""
        rows, wide = 1 if self._rows is None else self._rows.extent, -(-count(self._columns.extent) // self._width)
        most = min(rows, _MOST_SUMS_ALONG_ONE_SIDE) if isinstance(rows, int) else _MOST_SUMS_ALONG_ONE_SIDE
        room = self._target.vector_registers - _WORKING_REGISTERS
        pairs = ((v, h) for v in range(1, min(wide, _MOST_SUMS_ALONG_ONE_SIDE) + 1) for h in range(1, most + 1))
        return [(vectors, height) for vectors, height in pairs if (vectors + 1) * height + vectors <= room]

    def _register_tile(self) -> tuple[int, int]:
        """(vectors, rows) whose sums stay in registers while those of a block are added up, beside words and elements of rows."""
        rows, wide = 1 if self._rows is None else self._rows.extent, -(-count(self._columns.extent) // self._width)
        room = self._target.vector_registers - _WORKING_REGISTERS
        if not isinstance(rows, int):
            vectors = min(_VECTORS_OF_UNKNOWN_ROWS, max(1, room // 6), wide)
            return vectors, max(1, (room - vectors) // (vectors + 1))
        height = max(1, min(rows, _MOST_SUMS_ALONG_ONE_SIDE))
        most = max(1, min(_MOST_SUMS_ALONG_ONE_SIDE, (room - height) // (height + 1), wide))
        fitting = (v for v in range(most, most // 2, -1) if wide % v == 0)
        return next(fitting, most), height

    def steps(self) -> Schedule:
        output, columns = self._output, self._columns.name
        tasks = self._tasks()
        loops = [*tasks.parallel, *tasks.serial]
        steps: list[Step] = [*tasks.steps, Split(output.name, columns, self._tile)]
        if self._rows is not None and self._height == 1:
            loops.append(self._rows.name)
        elif self._rows is not None and self._rows.extent != self._height:
            loops.append(f"{self._rows.name}.{self._height}")
            steps.append(Split(output.name, self._rows.name, self._height))
        steps += self._register_loops(output, loops)
        steps += [Parallel(output.name, tasks.parallel)] if tasks.parallel else []
        return (*steps, *self._sums(loops[-1]), *self._packed())

    def _tasks(self) -> TaskLoops:
        """Tiles of columns are shared out: a core has weights of its own."""
        found = self._found
        inside = (*found.blocks, *found.words, found.code, *(() if self._rows is None else (self._rows,)))
        products = math.prod(count(a.extent) for a in inside) * self._tile
        cycles = arithmetic_cycles(found.part.body, self._width) * products
        tiles = Axis(self._columns.name, as_dim((self._columns.extent + self._tile - 1) // self._tile))
        tasks = task_loops(self._output.name, [*self._outer, tiles], cycles, self._target, self._knobs)
        return tasks.of_elements(self._columns.name, self._tile)

    def _sums(self, loop: str) -> Schedule:
        """The sums of a block inside of those of all blocks, these inside of ``loop`` of the output."""
        total, part = self._found.total, self._found.part
        inside = self._register_loops(part, [*self._outside(part), *(a.name for a in self._found.words)])
        if total is None:
            return (ComputeAt(part.name, self._output.name, loop), *inside)
        (block,) = (a.name for a in self._found.blocks)
        return (
            ComputeAt(total.name, self._output.name, loop),
            *self._register_loops(total, [*self._outside(total), block]),
            ComputeAt(part.name, total.name, block),
            *inside,
        )

    def _outside(self, stage: KernelStage) -> list[str]:
        """Axes of ``stage`` that a register tile does not cover."""
        rows = len(self._outer) if self._height > 1 else None
        return [a.name for place, a in enumerate(stage.compute.axes[:-1]) if place != rows]

    def _register_loops(self, stage: KernelStage, outer: Sequence[str]) -> Schedule:
        """The loops of the register tile in ``stage``, inside of ``outer``: the codes of a word, vectors, rows."""
        columns = stage.compute.axes[-1].name
        vectors = [f"{columns}.{self._width}"] if self._vectors > 1 else []
        codes = [self._found.code.name] if stage is self._found.part else []
        rows = [stage.compute.axes[len(self._outer)].name] if self._height > 1 else []
        steps: list[Step] = [Split(stage.name, columns, self._width)] if vectors else []
        steps += [Unroll(stage.name, n) for n in (*codes, *vectors, *rows)]
        steps += [Vectorize(stage.name, columns)] if self._width > 1 else []
        return (*steps, Reorder(stage.name, (*outer, *codes, *vectors, *rows, columns)))

    def _packed(self) -> Schedule:
        """Weights lie in the order in which they are read, and are asked for ahead of that."""
        steps: list[Step] = []
        for name, load, stage in self._found.weights:
            order = packed_order(load, stage.compute.axes[-1].name, self._tile)
            size = math.prod(d for d in load.tensor.shape if isinstance(d, int)) * load.dtype.itemsize
            if order is not None:
                distance = prefetch_distance(size, self._target)
                steps += packing(name, order, self._knobs.choice(f"bytes ahead of {name}", BYTES_AHEAD, distance))
        return tuple(steps)
