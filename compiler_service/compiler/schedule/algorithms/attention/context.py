"""What the parts of an attention nest share: sizes, memory of the thread, and how arguments are read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from compiler_service.compiler.loop_ir.ir import Allocate, Buffer, BufferLoad, BufferScope, Statement, Store
from compiler_service.compiler.schedule.algorithms.attention.match import Attention
from compiler_service.compiler.schedule.language.state import ScheduleState
from compiler_service.compiler.schedule.lowering.loops import Loops
from compiler_service.compiler.schedule.lowering.values import Values, moves_with
from compiler_service.compiler.schedule.model.tiles import lanes
from compiler_service.compiler.tensor_expr.tensor import Axis, Load, Tensor
from shared_ir.dtype import DType
from shared_ir.expr import Expr, Var, lift, minimum, substitute, transform
from shared_ir.expr.dim import Dim
from shared_ir.machine.target import Target

F32 = DType.FLOAT32


class BlockSizes(Protocol):
    """Sizes of blocks: the attributes of the step ``attend`` of these names."""

    @property
    def rows(self) -> int: ...
    @property
    def keys(self) -> int: ...
    @property
    def scores(self) -> tuple[int, int]: ...
    @property
    def values(self) -> tuple[int, int]: ...
    @property
    def units(self) -> int: ...


@dataclass(frozen=True)
class Rows:
    """Where a task stands: ``count`` rows from ``first`` of the head at ``heads``."""

    heads: Mapping[Var, Expr]
    first: Expr
    count: Dim


@dataclass(frozen=True)
class KeyBlock:
    """A block of keys: ``count`` of them from ``first``."""

    first: Expr
    count: Dim


@dataclass(frozen=True)
class AttentionMemory:
    """What a task keeps while it goes through the keys.

    Attributes:
        keys: ``[tile][k][j in tile]``, the keys of a block.
        scores: ``[m][j]``; scores of a block, later their powers.
        sums: ``[m][n]``, the values so far.
        largest, total: of each row so far.
        shift: what is taken from the scores of a row before their powers: its largest, or 0 where nothing is left of it.
        part: of each row, what the present block adds.
        factor: what the sums so far shrink by.
    """

    keys: Buffer
    scores: Buffer
    sums: Buffer
    largest: Buffer
    total: Buffer
    shift: Buffer
    part: Buffer
    factor: Buffer

    def allocated(self, body: Statement) -> Statement:
        rows = (self.factor, self.part, self.shift, self.total, self.largest)
        for buffer in (*rows, self.sums, self.scores, self.keys):
            body = Allocate(buffer, body)
        return body


class BlockContext:
    """One attention with the sizes of its blocks.

    Attributes:
        columns, depth: extents of axes n and k.
        column_width: lanes of a vector of columns.
        rows: how many queries a head has.
        single: whether there is but one block of keys, so that nothing is carried from one to the next.
    """

    def __init__(
        self, attention: Attention, step: BlockSizes, state: ScheduleState, arguments: Sequence[Tensor], target: Target
    ) -> None:
        width = lanes(target, F32)
        self.attention, self.step, self.loops = attention, step, Loops(width, target.masked)
        values = Values(state, arguments, target, self.loops.simplify)
        self.arguments, self.output = values.arguments, values.output
        self.columns, self.depth = _constant(attention.columns), _constant(attention.depth)
        self.column_width = width if target.masked else _common_width(self.columns, width)
        self.rows: Dim = 1 if attention.rows is None else attention.rows.extent
        keys = attention.keys.extent
        self.single = isinstance(keys, int) and keys <= step.keys
        self.memory = self._allocations()

    def _allocations(self) -> AttentionMemory:
        step, width = self.step, self.loops.width
        key_tile, column_tile = step.scores[1] * width, step.values[1] * self.column_width
        rows = max(_rounded(step.rows, height) for height in (step.scores[0], step.values[0], width))
        tiles = -(-step.keys // key_tile)

        def scratch(name: str, *shape: int) -> Buffer:
            return Buffer(name, F32, shape, BufferScope.SCRATCH)

        return AttentionMemory(
            scratch("keys", tiles, self.depth, key_tile),
            scratch("scores", rows, tiles * key_tile),
            scratch("sums", rows, _rounded(self.columns, column_tile)),
            *(scratch(name, rows) for name in ("largest", "total", "shift", "part", "factor")),
        )

    def row(self, here: Rows, r: Expr, *, exact: bool = False) -> Mapping[Var, Expr]:
        """Where row ``r`` of a block is; that of the last row for those behind the end of a tile (unless ``exact``)."""
        if self.attention.rows is None:
            return {}
        place = here.first + r
        if not exact and not self._tiles_divide_rows():
            place = minimum(place, lift(self.rows) - 1)
        return {self.attention.rows.var: self.loops.simplify(place)}

    def _tiles_divide_rows(self) -> bool:
        height, size = self.step.scores[0], self.step.rows
        return isinstance(self.rows, int) and self.rows % height == 0 and (self.rows <= size or size % height == 0)

    def read(
        self,
        expr: Expr,
        places: Mapping[Var, Expr],
        wanted: Expr | None = None,
        known: Mapping[Tensor, Expr] | None = None,
    ) -> Expr:
        """``expr`` with axes at ``places`` and tensors that are ``known`` replaced; of vectors only lanes that are ``wanted``."""
        simplify = self.loops.simplify

        def element(node: Expr) -> Expr | None:
            if not isinstance(node, Load):
                return None
            if known is not None and node.tensor in known:
                return known[node.tensor]
            indices = tuple(simplify(substitute(transform(i, element), places)) for i in node.indices)
            mask = wanted if wanted is not None and moves_with(indices, wanted) else None
            return BufferLoad(self.arguments[node.tensor], indices, mask)

        return simplify(substitute(transform(expr, element), places))


def accumulate(buffer: Buffer, at: tuple[Expr, ...], value: Expr) -> Statement:
    """``buffer[at] += value``"""
    return Store(buffer, at, BufferLoad(buffer, at) + value)


def _constant(axis: Axis) -> int:
    assert isinstance(axis.extent, int)  # or it would not have matched
    return axis.extent


def _rounded(size: int, unit: int) -> int:
    return -(-size // unit) * unit


def _common_width(extent: int, width: int) -> int:
    """Lanes of the widest vectors that ``extent`` is a multiple of."""
    while extent % width:
        width //= 2
    return width
