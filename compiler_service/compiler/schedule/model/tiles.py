"""The analytical model: register tiles, chunks of parallel work, vector tiling."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from compiler_service.compiler.schedule.language.schedule import Schedule, Step
from compiler_service.compiler.schedule.language.state import KernelStage
from compiler_service.compiler.schedule.language.steps import Parallel, Reorder, Split, Unroll, Vectorize
from shared_ir.dtype import DType
from shared_ir.expr.dim import Dim
from shared_ir.machine.target import Target

CACHE_LINE_BYTES = 64
"""Bytes of a cache line."""
SQUARE_SIDES = (16, 8, 4)
"""Sides, in elements, of squares that are transposed in registers, the best first."""
MOST_UNROLLED_FMAS = 160
"""Largest number of multiply-adds of one unrolled tile of a window."""
FMA_LATENCY_CYCLES = 4
"""Cycles of a fused multiply-add on the cores of the last decade; two can start each cycle."""


def lanes(target: Target, dtype: DType) -> int:
    """Elements of one SIMD register, in the type that they are computed in; at least 1."""
    return max(1, target.vector_bits // max(8, dtype.arithmetic.bits))


def register_tile(
    rows: Dim, columns: Dim, target: Target, dtype: DType, most: int = 16, *, whole: bool = False
) -> tuple[int, int]:
    """(rows, vectors) of the cheapest accumulator tile for a sum of products over ``rows`` x ``columns``."""
    return next(register_tiles(rows, columns, target, dtype, most, 0.0, whole=whole))


def register_tiles(
    rows: Dim, columns: Dim, target: Target, dtype: DType, most: int = 16, slack: float = 0.06, *, whole: bool = False
) -> Iterator[tuple[int, int]]:
    """(rows, vectors) of accumulator tiles, the cheapest first, then those that cost at most ``slack`` times as much more.

    All accumulators, one row of vectors and one broadcast must fit the registers. A tile's cost are the cycles for one
    step of the reduction over the whole extent; unknown extents count as large; of equals, the larger tile comes first.
    With ``whole`` the last rows take as long as those of any tile.
    """
    width = lanes(target, dtype)
    total_rows = rows if isinstance(rows, int) else 64
    total_columns = columns if isinstance(columns, int) else 64 * width
    found: list[tuple[float, int, int]] = []
    for vectors in (v for v in (1, 2, 3, 4, 6, 8) if v == 1 or v <= -(-total_columns // width)):
        for height in range(1, min(most, total_rows) + 1):
            if height * vectors + vectors + 1 > target.vector_registers or (vectors > 4 and height > 1):
                continue
            if not isinstance(rows, int) and height & (height - 1) and height not in (6, 12):
                continue
            counted = -(-total_rows // height) * height if whole else total_rows
            cost = tile_cost(counted, height, total_columns, vectors * width, width)
            found.append((cost, -height * vectors, vectors))
    found.sort()
    for cost, area, vectors in found:
        if cost <= found[0][0] * (1 + slack):
            yield -area // vectors, vectors


def tile_cost(rows: int, height: int, columns: int, width: int, lane: int) -> float:
    """Cycles for one reduction step over rows x columns in tiles of height x width, tails included."""
    row_tiles = [(rows // height, height), (1, rows % height)]
    column_tiles = [(columns // width, width), (1, columns % width)]
    return sum(
        n * m * tile_cycles(h, -(-w // lane)) for n, h in row_tiles for m, w in column_tiles if n and m and h and w
    )


def tile_cycles(height: int, vectors: int, others: int = 0) -> float:
    """Cycles of one reduction step of a register tile, which reads memory ``others`` times for other reasons."""
    multiply = height * vectors / 2
    load = (height + vectors + others) / 2
    latency = FMA_LATENCY_CYCLES if height * vectors < 2 * FMA_LATENCY_CYCLES else 0
    return max(multiply, load, latency)


def chunk(extent: Dim, tile: int, pieces: int) -> int:
    """Elements of a chunk: about ``extent / pieces``, a multiple of ``tile`` that divides ``extent`` if possible."""
    if not isinstance(extent, int):
        return tile
    tiles = max(1, extent // tile)
    wanted = max(1, tiles // max(1, pieces))
    for size in range(wanted, max(0, wanted // 2), -1):
        if extent % (size * tile) == 0:
            return size * tile
    return wanted * tile


def vector_loops(
    stage: KernelStage, axis: str, width: int, unroll: int, extent: Dim
) -> tuple[Schedule, tuple[str, ...]]:
    """Steps that tile ``axis`` as ``unroll`` vectors of ``width``, and the names of the loops, outermost first."""
    if isinstance(extent, int):
        unroll = max(1, min(unroll, extent // width))
    if width == 1 or extent == 1:
        return (), (axis,)
    steps: list[Step] = []
    names: list[str] = []
    if unroll > 1:
        steps.append(Split(stage.name, axis, unroll * width))
        names.append(f"{axis}.{unroll * width}")
    steps.append(Split(stage.name, axis, width))
    names.append(f"{axis}.{width}")
    if unroll > 1:
        steps.append(Unroll(stage.name, f"{axis}.{width}"))
    steps.append(Vectorize(stage.name, axis))
    return tuple(steps), (*names, axis)


def ordered(stage: str, loops: Iterable[str], parallel: Sequence[str] = ()) -> Schedule:
    """Reorder ``stage`` to ``loops`` with the first ones parallel."""
    steps: list[Step] = [Reorder(stage, tuple(loops))]
    if parallel:
        steps.append(Parallel(stage, tuple(parallel)))
    return tuple(steps)
