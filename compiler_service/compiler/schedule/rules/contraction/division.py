"""How a contraction whose sizes are known is divided among tasks: the cheapest for one thread and for all cores together."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from compiler_service.compiler.schedule.model.tasks import exchange_cycles
from compiler_service.compiler.schedule.model.tiles import tile_cycles
from compiler_service.compiler.schedule.rules.contraction.packing import arrival_rate
from shared_ir.machine.target import Target

WEIGHT_BYTES_PER_CYCLE, _L2_DATA_BYTES_PER_CYCLE, _FAR_DATA_BYTES_PER_CYCLE = 64.0, 512.0, 96.0
"""Bytes of weights, of data from the second-level cache, and of data from behind it, that delay products by one cycle even though they
arrive in time."""
_L2_TILE_BYTES_PER_CYCLE = 44.0
"""Bytes of a tile of weights that the second-level cache gives in a cycle. A register tile of few rows waits for them."""
_COPIED_BYTES_PER_CYCLE = 16.0
"""Bytes of an operand that are copied to scratch memory in a cycle."""
_CYCLES_LOST_PER_LOAD = 0.08
"""Cycles lost to each load in a step of a register tile, beyond what :func:`tile_cost` counts."""
CYCLES_TO_BEGIN_TASK = 150.0
"""Cycles to begin a task: its indices, and the first branches of its loops, which are mispredicted."""
_CYCLES_TO_FORK_AND_JOIN = 8000.0
"""Cycles to hand out tasks and to wait for the last: two messages of the pool between caches, and data that another core wrote."""
_BYTES_OF_RESULT = 4
"""Bytes of one result."""
_REMEMBERED = 1024
"""Divisions that are remembered: a tuner asks for the same ones at each of its points."""
_MOST_TASKS_PER_CORE = 12
"""Largest number of tasks for each core that is considered, unless the data of so few tasks does not fit the cache."""


@dataclass(frozen=True)
class ContractionWork:
    """``outer`` times ``window`` x ``rows`` x ``columns`` sums of ``steps`` products.

    Attributes:
        weight_bytes: of one column, over all steps.
        row_bytes, line_bytes: of data that a row and a line of the window add.
        copied: whether the data is copied to scratch first.
        moved: whether the weights of a task are brought into order first.
        lanes: elements of a vector of columns.
    """

    outer: int
    window: int
    rows: int
    columns: int
    steps: int
    weight_bytes: int
    row_bytes: int
    line_bytes: int
    copied: bool
    moved: bool
    lanes: int


@dataclass(frozen=True)
class Tile:
    """``height`` rows x ``width`` columns stay in registers."""

    height: int
    width: int


@dataclass(frozen=True)
class Division:
    """A task covers ``window`` x ``rows`` x ``columns``, or what is left of them at the end."""

    window: int
    rows: int
    columns: int


@lru_cache(maxsize=_REMEMBERED)
def best_division(work: ContractionWork, tiles: tuple[Tile, ...], target: Target) -> tuple[float, Tile, Division]:
    """(cycles, register tile, division) that cost the least; of equals, the first tile and the fewest tasks."""
    model = _Model(work, target)
    found = ((model.cost(t, d), t, d) for t in tiles for d in _divisions(work, t, target))
    return min(found, key=lambda f: f[0])


def _divisions(work: ContractionWork, tile: Tile, target: Target) -> Iterator[Division]:
    """Lines of the window stay in half of the second-level cache; rows are divided within lines."""
    budget = target.l2 // 2
    most = _MOST_TASKS_PER_CORE * target.cores
    lines = max(1, min(work.window, budget // max(1, work.line_bytes)))
    columns = list(_sizes(work.columns, tile.width, 1, most))
    for window in _sizes(work.window, 1, -(-work.window // lines), most):
        divided = window == 1 and work.line_bytes <= budget if work.window > 1 else True
        fit = -(-work.rows * work.row_bytes // budget)
        for rows in _sizes(work.rows, tile.height, 1, max(most, 2 * fit)) if divided else (work.rows,):
            for width in columns:
                if width == work.columns or _parts(work, window, rows) <= most:
                    yield Division(window, rows, width)


def _parts(work: ContractionWork, window: int, rows: int) -> int:
    return work.outer * -(-work.window // window) * -(-work.rows // rows)


def _sizes(extent: int, unit: int, fewest: int, most: int) -> Iterator[int]:
    """Sizes of pieces, multiples of ``unit`` or all of ``extent``, that give at least ``fewest`` and about at most ``most``."""
    units = -(-extent // unit)
    last = 0
    for pieces in range(min(units, fewest), min(units, max(fewest, most)) + 1):
        size = -(-units // pieces) * unit
        if size != last:
            last = size
            yield min(size, extent)


class _Model:
    """Cycles of a division. Two multiply-adds start each cycle; weights arrive meanwhile."""

    def __init__(self, work: ContractionWork, target: Target) -> None:
        self._work, self._target, self._cores = work, target, target.cores
        size = work.weight_bytes * work.columns
        self._again = arrival_rate(size, target)

    def cost(self, tile: Tile, division: Division) -> float:
        """Cycles of one thread plus those of all cores, each counted as busy until the last has ended."""
        work = self._work
        kinds = [
            _pieces(work.window, division.window),
            _pieces(work.rows, division.rows),
            _pieces(work.columns, division.columns),
        ]
        tasks = work.outer * math.prod(sum(n for n, _ in kind) for kind in kinds)
        total = sum(
            work.outer * n * m * k * self._task(tile, window, rows, columns)
            for n, window in kinds[0]
            for m, rows in kinds[1]
            for k, columns in kinds[2]
        )
        total += work.weight_bytes * work.columns * (1 / self._target.memory_bytes - 1 / self._again)
        if tasks == 1 or self._cores == 1:
            return total * (1 + self._cores)
        beside = work.outer * sum(n for n, _ in kinds[2])
        largest = -(-tasks // self._cores) * self._task(tile, division.window, division.rows, division.columns)
        if beside % self._cores == 0:  # every core has as many of the same tasks
            columns = division.columns * -(-beside // work.outer)
            largest = total / self._cores * columns / work.columns
        shared = self._exchanged() if division.columns < work.columns else 0.0
        return total + self._cores * (max(total / self._cores, min(total, largest)) + _CYCLES_TO_FORK_AND_JOIN + shared)

    def _exchanged(self) -> float:
        """Cycles in which each core receives what others wrote, where columns are divided: it reads all data, of which it made its
        share, and the next kernel finds its part of the results on all cores. Rows of an image stay where they are made."""
        work = self._work
        data = work.outer * (work.rows * work.row_bytes if work.window == 1 else work.window * work.line_bytes)
        results = work.outer * work.window * work.rows * work.columns * _BYTES_OF_RESULT / self._cores
        return exchange_cycles(data + results, self._target)

    def _task(self, tile: Tile, window: int, rows: int, columns: int) -> float:
        work = self._work
        vectors = tile.width / work.lanes
        loads = 1 + _CYCLES_LOST_PER_LOAD * (tile.height + vectors) / (tile.height * vectors)
        products = window * self._products(tile, rows, columns) * work.steps * loads
        arriving = size = columns * work.weight_bytes
        if tile.width * work.weight_bytes > self._target.l2 // 2:  # gone before the next rows
            arriving *= window * -(-rows // tile.height)
        weights = max(0.0, arriving / self._again - products) + arriving / WEIGHT_BYTES_PER_CYCLE
        data = window * (rows * work.row_bytes if work.window == 1 else work.line_bytes * rows / work.rows)
        copies = data / _COPIED_BYTES_PER_CYCLE if work.copied else 0.0
        copies += size / _COPIED_BYTES_PER_CYCLE if work.moved else 0.0
        sweeps = reading_cycles(data, self._target) * -(-columns // tile.width)
        return products + weights + copies + sweeps + CYCLES_TO_BEGIN_TASK

    def _products(self, tile: Tile, rows: int, columns: int) -> float:
        """Cycles of one step over ``rows`` x ``columns``, whose weights come from the second cache level where it keeps a tile."""
        size = tile.width * self._work.weight_bytes
        line = self._target.vector_bits / 8 / _L2_TILE_BYTES_PER_CYCLE if size > self._target.l1 // 2 else 0.0
        return sum(
            n * m * _overlapped(tile_cycles(h, vectors), vectors * line)
            for n, h in _pieces(rows, tile.height)
            for m, w in _pieces(columns, tile.width)
            for vectors in [-(-w // self._work.lanes)]
        )


def reading_cycles(data: float, target: Target) -> float:
    """Cycles that reading ``data`` bytes once more for the next tile of weights costs."""
    if data <= target.l1 // 2:
        return 0.0
    return data / (_L2_DATA_BYTES_PER_CYCLE if data <= target.l2 // 2 else _FAR_DATA_BYTES_PER_CYCLE)


def _overlapped(products: float, arrival: float) -> float:
    """Cycles of what goes on at the same time: the longer one, and a part of the other that grows as they draw level."""
    return float((products**8 + arrival**8) ** 0.125)


def _pieces(extent: int, size: int) -> tuple[tuple[int, int], ...]:
    """(count, size) of whole pieces and of the rest."""
    whole, rest = divmod(extent, size)
    return ((whole, size), (1, rest)) if rest else ((whole, size),)
