"""Sizes of the loop nest of a contraction, from an analytical model of the target."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from compiler_service.compiler.schedule.language.knobs import Knobs
from compiler_service.compiler.schedule.language.state import KernelStage
from compiler_service.compiler.schedule.model.analysis import depends
from compiler_service.compiler.schedule.model.tiles import chunk, lanes, register_tile, register_tiles, tile_cycles
from compiler_service.compiler.schedule.rules.contraction.division import ContractionWork, Division, Tile, best_division
from compiler_service.compiler.schedule.rules.contraction.match import Contraction
from compiler_service.compiler.tensor_expr.tensor import Axis, Load, axis_var
from shared_ir.expr import Const, substitute
from shared_ir.expr.dim import Dim
from shared_ir.expr.simplify import simplify
from shared_ir.machine.target import Target

_L2_SHARE_OF_TWO_TILES = 1.6
"""Size of two tiles of weights, in second-level caches, up to which both are taken to stay there: it may be more than one, since the
older tile makes room while the newer arrives."""
_MOST_LINES_OF_TASK = 4
"""Largest number of lines of a window that a task covers, unless their number is known and a larger one divides it."""
_FEWEST_SUMS = 8
"""Smallest number of accumulators of a register tile that may be asked for: with fewer, each waits for its last addition."""
_MOST_ROWS_OF_TILE, _MOST_VECTORS_OF_TILE = 30, 8
"""Largest number of rows, and of vectors, of a register tile that may be asked for."""
_TILES_OF_UNKNOWN_LINE = 4
"""Register tiles along a line that a task covers when the length of the line is only known at run time."""
_ROWS_IF_UNKNOWN, _DEPTH_IF_UNKNOWN = 64, 1024
"""What the number of rows, and of steps of the sum, is taken for when it is only known at run time."""
_MOST_VECTORS_OF_GROUP_TILE = 4
"""Largest width in vectors of the register tile of a group."""
_FEWEST_ROW_TILES, _MOST_ROW_TILES = 4, 8
"""Smallest and largest number of row tiles of a task when the number of rows is only known at run time: weights are read once for all
of them."""


@dataclass(frozen=True)
class ContractionBlocking:
    """Sizes of the loop nest; 0 leaves a loop out, 1 takes the axis as it is.

    ``height`` x ``vectors`` registers accumulate; a task covers ``window_chunk`` x ``row_chunk`` x ``column_chunk``.
    """

    height: int
    vectors: int
    tile: int
    window_chunk: int
    row_chunk: int
    column_chunk: int


@dataclass(frozen=True)
class WeightLayout:
    """The axes of the output by what they are for.

    Attributes:
        names: for each axis of the contraction, that of the output.
        columns, rows, window: see :class:`Contraction`.
        outer: axes that every task has one element of.
        inner: axes of known extent after the rows that choose other weights for the same data, where the second-level cache keeps
            them all.
    """

    names: Mapping[str, Axis]
    columns: Axis
    rows: Axis | None
    window: Axis | None
    outer: tuple[Axis, ...]
    inner: tuple[Axis, ...]

    @classmethod
    def of(cls, match: Contraction, output: KernelStage, target: Target) -> WeightLayout:
        axes = output.compute.axes
        names = {s.name: o for s, o in zip(match.stage.compute.axes, axes, strict=True)}
        columns = names[match.columns]
        rows = None if match.rows is None else names[match.rows]
        window = None if match.window is None else names[match.window]
        others = [a for a in axes if a not in (columns, rows, window)]
        last = len(axes) if rows is None else axes.index(rows)
        kept = _bytes(match.weight) <= target.l2 // 2
        inner = tuple(a for a in others if kept and isinstance(a.extent, int) and axes.index(a) > last)
        return cls(names, columns, rows, window, tuple(a for a in others if a not in inner), inner)


@dataclass(frozen=True)
class ContractionOperands:
    """How the operands come.

    Attributes:
        constant: whether the weight is packed when the model is compiled.
        moved: whether a task brings the weight of its columns into order first.
        copied: whether a task copies its data to scratch first.
    """

    constant: bool
    moved: bool
    copied: bool


class TileSizes:
    """The analytical model: tiles, chunks and lanes for one matched contraction.

    Attributes:
        width: lanes of a vector of columns.
        weight_bytes: size of the weights.
    """

    def __init__(self, match: Contraction, layout: WeightLayout, operands: ContractionOperands, target: Target) -> None:
        self._match, self._layout, self._operands, self._target = match, layout, operands, target
        self.width = lanes(target, match.stage.tensor.dtype)
        if match.groups:  # vectors must not cross groups
            self.width = self._group_width(match.groups)

    def choose(self, knobs: Knobs) -> ContractionBlocking:
        """What the model of the target finds best, or what ``knobs`` say instead."""
        model = self._chosen(None)
        height, width = knobs.choice("tile", self._tiles(), (model.height, model.tile))
        found = model if (height, width) == (model.height, model.tile) else self._chosen(Tile(height, width))
        window, rows, columns = self._layout.window, self._layout.rows, self._layout.columns
        if window is not None:
            found = replace(found, window_chunk=knobs.split("lines", window.extent, found.window_chunk))
        if rows is not None:
            stays = self._operands.copied  # the loop that data is copied in
            chunk = self._asked(knobs, "rows", rows.extent, found.row_chunk, height, stays)
            found = replace(found, row_chunk=chunk)
        if not self._match.groups and not (isinstance(columns.extent, int) and columns.extent <= width):
            chunk = self._asked(knobs, "columns", columns.extent, found.column_chunk, width)
            found = replace(found, column_chunk=chunk)
        return found

    def _asked(self, knobs: Knobs, name: str, extent: Dim, default: int, unit: int, stays: bool = False) -> int:
        """Elements of a task along an axis, a multiple of ``unit``; all of them are 0, unless the loop ``stays``."""
        if not isinstance(extent, int):
            return knobs.split(name, extent, default, multiple=unit) if default else 0
        whole = -(-extent // unit) * unit
        size = knobs.split(name, extent, default or whole, multiple=unit)
        return default if size == (default or whole) else 0 if size >= extent and not stays else size

    def _tiles(self) -> Iterator[tuple[int, int]]:
        """(rows, columns) of register tiles that may be asked for."""
        rows: Dim = 1 if self._layout.rows is None else self._layout.rows.extent
        if self._match.groups:
            yield from ((height, tile) for tile, _, height in self._group_tiles(self._match.groups, rows))
            return
        columns, registers = self._layout.columns.extent, self._target.vector_registers
        if isinstance(columns, int) and columns < self.width:
            widths = [(1, max(2, columns))]
        else:
            most = -(-columns // self.width) if isinstance(columns, int) else _MOST_VECTORS_OF_TILE
            widths = [(v, max(2, v * self.width)) for v in range(1, min(most, _MOST_VECTORS_OF_TILE) + 1)]
        most = min(rows, _MOST_ROWS_OF_TILE) if isinstance(rows, int) else _MOST_ROWS_OF_TILE
        for vectors, tile in widths:
            for height in range(1, most + 1):
                fits = height * vectors + vectors + 1 <= registers
                if fits and (height == most or height * vectors >= _FEWEST_SUMS):
                    yield height, tile

    def _chosen(self, tile: Tile | None) -> ContractionBlocking:
        """What the model of the target finds best, with a register tile where one is given."""
        work = self._work()
        return self._guessed(tile) if work is None else self._computed(work, tile)

    def _computed(self, work: ContractionWork, asked: Tile | None) -> ContractionBlocking:
        """What the model of the target finds best for sizes that are all known."""
        dtype = self._match.stage.tensor.dtype
        tiles = [Tile(h, v * self.width) for h, v in register_tiles(work.rows, work.columns, self._target, dtype)]
        if asked is not None:
            tiles = [Tile(asked.height, -(-asked.width // self.width) * self.width)]
        _, tile, division = best_division(work, tiles, self._target)
        width = min(tile.width, max(2, work.columns)) if work.columns < self.width else tile.width
        return ContractionBlocking(tile.height, tile.width // self.width, width, *self._loops(work, tile, division))

    def _loops(self, work: ContractionWork, tile: Tile, division: Division) -> tuple[int, int, int]:
        """(window chunk, row chunk, column chunk); the loop that data is copied in stays, even if it turns once."""
        window = 0 if self._layout.window is None else division.window
        rows = -(-division.rows // tile.height) * tile.height
        keeps = self._operands.copied and self._layout.window is None
        return window, rows if keeps or division.rows < work.rows else 0, division.columns % work.columns

    def _work(self) -> ContractionWork | None:
        """None where a size is the run's, and for groups."""
        stage, layout = self._match.stage, self._layout
        assert stage.reduction is not None
        axes = [a.extent for a in (*stage.compute.axes, *stage.reduction.axes)]
        if self._match.groups or layout.inner or layout.rows is None or not all(isinstance(e, int) for e in axes):
            return None
        steps = _product(a.extent for a in stage.reduction.axes)
        row_bytes = self._row_bytes()
        rows, window = _extent(layout.rows), _extent(layout.window)
        stride = 1 if layout.window is None else self._stride(layout.window)
        return ContractionWork(
            outer=_product(a.extent for a in layout.outer),
            window=window,
            rows=rows,
            columns=_extent(layout.columns),
            steps=steps,
            weight_bytes=steps * self._match.weight.dtype.itemsize,
            row_bytes=row_bytes,
            line_bytes=rows * row_bytes * self._stride(layout.rows) * stride,
            copied=self._operands.copied,
            moved=self._operands.moved,
            lanes=self.width,
        )

    def _guessed(self, asked: Tile | None) -> ContractionBlocking:
        columns: Dim = self._match.groups or self._layout.columns.extent
        rows: Dim = 1 if self._layout.rows is None else self._layout.rows.extent
        height, vectors = register_tile(rows, columns, self._target, self._match.stage.tensor.dtype)
        tile = max(2, vectors * self.width)
        if self._match.groups:
            height, vectors, tile = self._group_tile(self._match.groups, rows)
        elif isinstance(columns, int) and columns < self.width:
            tile = max(2, columns)
        if asked is not None:
            height, tile, vectors = asked.height, asked.width, -(-asked.width // self.width)
        wanted = 2 * self._target.cores
        window_chunk, row_chunk = self._data_chunks(height)
        parts = self._parts(self._layout.window, window_chunk) * self._parts(self._layout.rows, row_chunk)
        for axis in self._layout.outer:
            parts *= self._parts(axis, 1)
        column_chunk = 0
        if not self._match.groups:
            column_chunk = self._column_chunk(columns, tile, max(-(-wanted // parts), self._weight_parts()))
            parts *= self._parts(self._layout.columns, column_chunk)
            if parts < wanted and row_chunk == 0 and self._layout.rows is not None:
                row_chunk = self._smaller(self._layout.rows.extent, height, -(-wanted // parts))
        return ContractionBlocking(height, vectors, tile, window_chunk, row_chunk, column_chunk)

    def _weight_parts(self) -> int:
        """Tasks that the weights are divided among where there may be few rows: as many as there are cores, if that pays."""
        if self._layout.rows is None or isinstance(self._layout.rows.extent, int) or not self._operands.constant:
            return 1
        return 2 * self._target.cores if self.weight_bytes > self._target.l2 // 4 else 1

    def may_finish_rows(self, blocking: ContractionBlocking) -> bool:
        """Whether the columns of a row tile may come before the next rows: of several tiles that are read where they lie."""
        layout = self._layout
        columns = blocking.column_chunk or layout.columns.extent
        plain = not self._operands.moved and layout.rows is not None and not layout.inner and not self._match.groups
        return plain and isinstance(columns, int) and columns > blocking.tile

    def finishes_rows(self, blocking: ContractionBlocking) -> bool:
        """Whether all columns of a row tile come before the next rows: where the output leaves the second-level cache, and the
        weights of a task do not fill it.

        The other order keeps a tile of the weights in the first level, but passes over the output again for each; to pieces of a
        few lines of every row memory gives half of what it gives to whole rows (56x56, 64 to 256 channels: 20 %).
        """
        stage = self._match.stage
        extents = [a.extent for a in stage.compute.axes]
        known = self._operands.constant and all(isinstance(e, int) for e in extents)
        if not known or not self.may_finish_rows(blocking):
            return False
        columns = blocking.column_chunk or _extent(self._layout.columns)
        output = _product(extents) * stage.tensor.dtype.itemsize
        weights = self.tile_bytes(blocking) * -(-columns // blocking.tile)
        return output > self._target.l2 // 2 and weights <= self._target.l2 // 4

    def keeps_tiles(self, blocking: ContractionBlocking) -> bool:
        """Whether two tiles of the weights stay in the second-level cache, beside the data."""
        return 2 * self.tile_bytes(blocking) <= _L2_SHARE_OF_TWO_TILES * self._target.l2

    def tile_bytes(self, blocking: ContractionBlocking) -> int:
        """Bytes of the weights of one register tile's columns."""
        columns = self._layout.columns.extent
        return self.weight_bytes // columns * blocking.tile if isinstance(columns, int) else self.weight_bytes

    @property
    def weight_bytes(self) -> int:
        return _bytes(self._match.weight)

    def _group_width(self, group: int) -> int:
        """Lanes of a vector within a group: all of them where the last vector may be masked and is at least half full."""
        full = lanes(self._target, self._match.stage.tensor.dtype)
        exact = math.gcd(full, group)
        filled = group / (-(-group // full) * full)
        return full if self._target.masked and filled > exact / full and group > full else exact

    def _group_tile(self, group: int, rows: Dim) -> tuple[int, int, int]:
        """(rows, vectors, columns) of the register tile: whole tiles make up a group."""
        best: tuple[float, int, tuple[int, int, int]] = (math.inf, 0, (1, 1, group))
        total = rows if isinstance(rows, int) else _ROWS_IF_UNKNOWN
        for tile, vectors, height in self._group_tiles(group, rows):
            steps = group // tile * (total // height * tile_cycles(height, vectors))
            steps += group // tile * tile_cycles(total % height, vectors) if total % height else 0
            best = min(best, (steps, -height * vectors, (height, vectors, tile)))
        return best[2]

    def _group_tiles(self, group: int, rows: Dim) -> Iterator[tuple[int, int, int]]:
        """(columns, vectors, rows) of register tiles that fit."""
        total = rows if isinstance(rows, int) else _ROWS_IF_UNKNOWN
        for tile in (t for t in range(2, group + 1) if group % t == 0):
            vectors = -(-tile // self.width)
            most = (self._target.vector_registers - vectors - 1) // vectors
            if vectors > _MOST_VECTORS_OF_GROUP_TILE or (tile % self.width and tile != group):
                continue
            yield from ((tile, vectors, height) for height in range(1, max(1, min(most, total)) + 1))

    def _parts(self, axis: Axis | None, size: int) -> int:
        if axis is None or size == 0:
            return 1
        return -(-axis.extent // size) if isinstance(axis.extent, int) else 2 * self._target.cores

    def _smaller(self, extent: Dim, tile: int, pieces: int) -> int:
        size = chunk(extent, tile, pieces)
        return 0 if isinstance(extent, int) and size >= extent else size

    def _column_chunk(self, columns: Dim, tile: int, wanted: int) -> int:
        """Columns of one task; 0 for all of them."""
        if not isinstance(columns, int):
            return tile
        return self._smaller(columns, tile, wanted)

    def _data_chunks(self, height: int) -> tuple[int, int]:
        """(window chunk, row chunk) so that the data of one task stays in half of the second-level cache."""
        budget, depth = self._target.l2 // 2, self._row_bytes()
        rows, window = self._layout.rows, self._layout.window
        if rows is None:
            return 0, 0
        if window is not None:
            return self._window_chunks(rows, window, height, depth, budget)
        if not isinstance(rows.extent, int):
            return 0, height * max(_FEWEST_ROW_TILES, min(_MOST_ROW_TILES, budget // max(1, depth * height)))
        if rows.extent * depth <= budget:
            return 0, 0
        pieces = -(-rows.extent // max(height, budget // max(1, depth)))
        return 0, self._smaller(rows.extent, height, pieces)

    def _window_chunks(self, rows: Axis, window: Axis, height: int, depth: int, budget: int) -> tuple[int, int]:
        width, row_chunk = (rows.extent, 0) if isinstance(rows.extent, int) else (height * _TILES_OF_UNKNOWN_LINE,) * 2
        line = width * depth * self._stride(rows)
        lines = max(1, budget // max(1, line * self._stride(window)))
        if not isinstance(window.extent, int):
            return min(lines, _MOST_LINES_OF_TASK), row_chunk
        most = min(lines, window.extent)
        chunk_size = next(c for c in range(most, 0, -1) if window.extent % c == 0 or c == 1)
        return (most if chunk_size * 2 < most and chunk_size < _MOST_LINES_OF_TASK else chunk_size), row_chunk

    def _row_bytes(self) -> int:
        """Bytes of data for one row: what the reduction covers of it, but for the window."""
        data, reduction = self._match.data, self._match.stage.reduction
        assert reduction is not None
        placed = [name for name in (self._match.rows, self._match.window) if name is not None]
        depth = 1
        for index, extent in zip(data.indices, data.tensor.shape, strict=True):
            if any(depends(index, a.name) for a in reduction.axes) and not any(depends(index, n) for n in placed):
                depth *= extent if isinstance(extent, int) else _DEPTH_IF_UNKNOWN
        return depth * data.dtype.itemsize

    def _stride(self, axis: Axis) -> int:
        """How many elements the data moves on when ``axis`` advances by one."""
        name = next(s for s, o in self._layout.names.items() if o == axis)
        for index in self._match.data.indices:
            if depends(index, name):
                moved = simplify(substitute(index, {axis_var(name): axis_var(name) + 1}) - index)
                return int(moved.value) if isinstance(moved, Const) else 1
        return 1


def _bytes(load: Load) -> int:
    return _product(load.tensor.shape) * load.dtype.itemsize


def _extent(axis: Axis | None) -> int:
    return axis.extent if axis is not None and isinstance(axis.extent, int) else 1


def _product(extents: Iterable[Dim]) -> int:
    return math.prod(e for e in extents if isinstance(e, int))
