"""How constant operands are laid out at compile time."""

from __future__ import annotations

from compiler_service.compiler.schedule.language.schedule import Schedule
from compiler_service.compiler.schedule.language.steps import Pack, PrefetchTile
from compiler_service.compiler.schedule.model.tiles import CACHE_LINE_BYTES
from compiler_service.compiler.tensor_expr.tensor import Load, axis_var
from shared_ir.expr import variables
from shared_ir.machine.target import Target

L2_BYTES_PER_CYCLE = 32.0
"""Bytes that the second-level cache gives one core in a cycle."""
_PREFETCH_BYTES_AHEAD = 8192
"""How many bytes ahead weights are asked for. Hardware prefetchers stop at the end of a page of 4 KiB; two pages take longer to
compute with than to fetch."""
_NEAR_PREFETCH_BYTES_AHEAD = 1024
"""How many bytes ahead the second-level cache is asked for weights; all distances from 512 to 2048 are alike."""

BYTES_AHEAD, BYTES_NEAR = (0, 2048, 4096, 8192, 16384, 32768), (0, 512, 1024, 2048, 4096)
"""How many bytes ahead memory, and the second-level cache, may be asked for weights."""
A_TILE = -1
"""In place of the bytes ahead: what follows a tile is asked for while the tile is read again and again."""


def prefetch_distance(size: int, target: Target) -> int:
    """Bytes ahead that are worth asking for when ``size`` bytes of weights are read in order.

    Weights of a layer have left the caches by the time of the next inference; only small ones arrive soon enough anyway.
    """
    return _PREFETCH_BYTES_AHEAD if size > 2 * target.l1 else 0


def near_distance(tile: int, target: Target) -> int:
    """Bytes ahead that are worth asking the first cache level for while a tile of ``tile`` bytes is swept again and again.

    What the second level keeps arrives late on some cores if only loads ask for it (a Xeon: 3 to 7 % of a product's time). One
    request a vector is one a line where a vector fills it; elsewhere most would be in vain.
    """
    return _NEAR_PREFETCH_BYTES_AHEAD if tile > target.l1 // 2 and target.vector_bits == 8 * CACHE_LINE_BYTES else 0


def packing(
    tensor: str,
    order: tuple[tuple[int, int, int], ...],
    distance: int,
    ahead: PrefetchTile | None = None,
    near: int = 0,
) -> Schedule:
    """Pack the weights ``tensor``; ask memory for them a tile ahead, and the second cache level ``near`` bytes ahead, or else
    memory ``distance`` bytes ahead."""
    return (Pack(tensor, order, distance),) if ahead is None else (Pack(tensor, order, near), ahead)


def arrival_rate(size: int, target: Target) -> float:
    """Bytes that one core receives in a cycle when it reads ``size`` bytes of weights again."""
    if size <= target.l2 // 2:
        return L2_BYTES_PER_CYCLE
    return float(target.memory_bytes * (2 if size <= target.l3 else 1))


def packed_order(load: Load, axis: str, tile: int) -> tuple[tuple[int, int, int], ...] | None:
    """Packing of the constant that ``load`` reads, with ``axis`` innermost in tiles of ``tile`` (1: the whole axis).

    ``W[n, c, kh, kw]`` with n in tiles of 64 becomes ``[n // 64][kh][kw][c][n % 64]``: after the tile number come the other
    dims in the order of the load's window axes last to first, so that the reduction walks memory in order.
    None when ``axis`` is not an index of its own.
    """
    at = [i for i, index in enumerate(load.indices) if index == axis_var(axis)]
    if len(at) != 1 or any(axis_var(axis) in variables(x) for i, x in enumerate(load.indices) if i != at[0]):
        return None
    own = at[0]
    others = [i for i in range(len(load.indices)) if i != own]
    if own == 0 and len(others) > 1:  # O I kh kw: channels innermost of the others
        others = [*others[1:], others[0]]
    middle = tuple((i, 1, 0) for i in others)
    if tile == 1:
        return (*middle, (own, 1, 0))
    return ((own, tile, 0), *middle, (own, 1, tile))
