"""How constant operands are laid out at compile time."""

from __future__ import annotations

from compiler_service.tensor_expr.tensor import Load, axis_var
from shared_ir.expr import variables


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
