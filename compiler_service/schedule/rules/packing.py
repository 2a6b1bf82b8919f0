"""How constant operands are laid out at compile time."""

from __future__ import annotations

from compiler_service.tensor_expr.tensor import Load, axis_var
from shared_ir.expr import variables
from shared_ir.target import Target

_PREFETCH = 8192
"""Bytes ahead. Hardware prefetchers stop at the end of a page of 4 KiB; two pages take longer to compute with than to fetch."""


def prefetch_distance(size: int, target: Target) -> int:
    """Bytes ahead that are worth asking for when ``size`` bytes of weights are read in order.

    Weights of a layer have left the caches by the time of the next inference; only small ones arrive soon enough anyway.
    """
    return _PREFETCH if size > 2 * target.l1 else 0


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
