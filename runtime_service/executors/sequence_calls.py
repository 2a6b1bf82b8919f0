"""Functions of the executor on sequences and optionals: lists of arrays, an array or None. Nothing is changed in place."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np

from runtime_service.arrays import Array
from runtime_service.executors.objects import ObjectAllowance
from shared_ir.errors import ErrorCode, IngotError

Items: TypeAlias = "list[Array]"


_PART_BYTES = 256
"""Of a tensor beside its elements, and its place in a list."""
_PLACE_BYTES = 10
_MAP_BYTES, _ENTRY_BYTES = 320, 144
"""Of a map, and of each number in it."""


def sequence_construct(*tensors: Array, room: ObjectAllowance) -> Items:
    return [_copy(t, room) for t in tensors]


def sequence_insert(
    sequence: Items | None, tensor: Array | None, position: Array | None = None, *, room: ObjectAllowance
) -> Items:
    """The position is counted from the end when negative; by default the tensor comes last."""
    items = _present(sequence)
    at = len(items) if position is None else _position(position, len(items), len(items))
    room.take(_PLACE_BYTES * len(items))
    found = list(items)
    found.insert(at, _copy(_present(tensor), room))
    return found


def sequence_erase(sequence: Items | None, position: Array | None = None, *, room: ObjectAllowance) -> Items:
    items = _present(sequence)
    at = _position(np.array(-1) if position is None else position, len(items), len(items) - 1)
    room.take(_PLACE_BYTES * len(items))
    found = list(items)
    del found[at]
    return found


def sequence_at(sequence: Items | None, position: Array, *, room: ObjectAllowance) -> Array:
    items: Items = _present(sequence)
    return items[_position(position, len(items), len(items) - 1)]


def sequence_length(sequence: Items | None, *, room: ObjectAllowance) -> Array:
    return np.array(len(_present(sequence)), np.int64)


def sequence_concat(sequence: Items | None, *, axis: int, new_axis: int, room: ObjectAllowance) -> Array:
    items = _present(sequence)
    room.take(_PART_BYTES * len(items))
    room.take(sum(item.nbytes for item in items))
    try:
        return np.stack(items, axis) if new_axis else np.concatenate(items, axis)
    except ValueError as error:  # AxisError is one
        raise _refused(
            "the tensors of a sequence do not fit together", "equal shapes but for the axis", str(error)
        ) from error


def split_to_sequence(
    x: Array, split: Array | None = None, *, axis: int, keepdims: int, room: ObjectAllowance
) -> Items:
    """Parts of extent 1 without ``split``; of the extents it lists; of its one extent, the last part what is left."""
    extent = x.shape[axis]
    sizes = _part_sizes(extent, split, room)
    if min(sizes, default=0) < 0 or sum(sizes) != extent:
        raise _refused("the sizes of SplitToSequence do not make up the axis", str(extent), str(list(sizes[:20])))
    room.take(x.nbytes)
    parts: Items = []
    places: list[slice | int] = [slice(None)] * x.ndim
    for some in room.each(zip(sizes, itertools.accumulate(sizes), strict=True)):
        for size, end in some:
            places[axis] = slice(end - size, end) if keepdims or size != 1 else end - 1
            parts.append(np.array(x[tuple(places)]))
    return parts


def _part_sizes(extent: int, split: Array | None, room: ObjectAllowance) -> Sequence[int]:
    if split is not None and split.ndim:
        room.take(_PART_BYTES * split.size)
        return [int(size) for size in split]
    each = 1 if split is None else int(split)
    if each < 1:
        raise _refused("SplitToSequence makes parts of no size", "at least 1", str(each))
    room.take(_PART_BYTES * -(-extent // each))
    return [min(each, extent - start) for start in range(0, extent, each)]


def zip_map(x: Array, *, labels: Sequence[Any], room: ObjectAllowance) -> list[dict[Any, Any]]:
    """One map per row, from labels to Python numbers."""
    rows = x.reshape(-1, len(labels))
    room.take((_MAP_BYTES + _ENTRY_BYTES * len(labels)) * len(rows))
    found: list[dict[Any, Any]] = []
    for some in room.each(range(len(rows))):
        found += [dict(zip(labels, row, strict=True)) for row in rows[some[0] : some[-1] + 1].tolist()]
    return found


def nothing(*, room: ObjectAllowance) -> None:
    return None


def optional(tensor: Array, *, room: ObjectAllowance) -> Array:
    return _copy(tensor, room)


def required(thing: Any, *, room: ObjectAllowance) -> Any:
    return _present(thing)


def extents(tensor: Array | None, *, room: ObjectAllowance) -> Array:
    return np.array(_present(tensor).shape, np.int64)


def tensor(tensor: Array | None, *, room: ObjectAllowance) -> Array:
    found: Array = _present(tensor)
    return found


def _copy(tensor: Array, room: ObjectAllowance) -> Array:
    room.take(_PART_BYTES + tensor.nbytes)
    return np.array(tensor)


def _present(thing: Any) -> Any:
    if thing is None:
        raise _refused("the element of an empty optional is asked for", "an optional with an element", "an empty one")
    return thing


def _position(position: Array, count: int, last: int) -> int:
    at = int(position.reshape(()))
    found = at + count if at < 0 else at
    if not 0 <= found <= last:
        raise _refused("a sequence has no such position", f"{-count} to {last}", str(at))
    return found


def _refused(message: str, expected: str, received: str) -> IngotError:
    return IngotError(ErrorCode.INVALID_ARGUMENT, message, expected=expected, received=received)


FUNCTIONS: Mapping[str, Any] = MappingProxyType(
    {
        f.__name__: f
        for f in (
            sequence_construct,
            sequence_insert,
            sequence_erase,
            sequence_at,
            sequence_length,
            sequence_concat,
            split_to_sequence,
            zip_map,
            nothing,
            optional,
            required,
            extents,
            tensor,
        )
    }
)
