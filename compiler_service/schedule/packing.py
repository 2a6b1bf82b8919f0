"""Packing a constant: the compile-time side of the ``pack`` step."""

from __future__ import annotations

import numpy as np

from compiler_service.schedule.steps import Pack, Schedule
from compiler_service.tensor_expr.tensor import Tensor


def pack_of(schedule: Schedule, name: str) -> Pack | None:
    """The step that packs the argument ``name``, if there is one."""
    return next((s for s in schedule if isinstance(s, Pack) and s.tensor == name), None)


def pack_array(array: np.ndarray, tensor: Tensor, pack: Pack) -> np.ndarray:
    """``array`` (any shape with the elements of ``tensor``) in the order of ``pack``, padded with zeros.

    ``packed[p0, p1, ...] = array[index]`` where each entry ``(axis, divisor, modulus)`` of ``pack`` takes one digit of
    ``index[axis]``.
    """
    shape = tuple(int(str(d)) for d in tensor.shape)
    tiles = {axis: modulus for axis, _, modulus in pack.order if modulus}
    array = array.reshape(shape)
    padding = [(0, -extent % tiles.get(axis, 1)) for axis, extent in enumerate(shape)]
    if any(after for _, after in padding):
        array = np.pad(array, padding)
    split: list[int] = []
    position: dict[tuple[int, bool], int] = {}
    for axis, extent in enumerate(array.shape):
        tile = tiles.get(axis, 0)
        if tile:
            position[axis, False], position[axis, True] = len(split), len(split) + 1
            split += [extent // tile, tile]
        else:
            position[axis, False] = len(split)
            split.append(extent)
    order = [position[axis, bool(modulus)] for axis, _, modulus in pack.order]
    return np.ascontiguousarray(array.reshape(split).transpose(order))
