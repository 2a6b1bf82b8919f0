"""Functions of the executor on sequences and optionals: lists of arrays, an array or None. Nothing is changed in place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np

from runtime_service.arrays import Array
from runtime_service.executors.objects import Room, in_parts
from shared_ir.errors import ErrorCode, IngotError

Items: TypeAlias = "list[Array]"


def sequence_construct(*tensors: Array) -> Items:
    return [np.array(t) for t in tensors]


def sequence_insert(sequence: Items | None, tensor: Array | None, position: Array | None = None) -> Items:
    """The position is counted from the end when negative; by default the tensor comes last."""
    items = _present(sequence)
    at = len(items) if position is None else _position(position, len(items), len(items))
    return [*items[:at], np.array(_present(tensor)), *items[at:]]


def sequence_erase(sequence: Items | None, position: Array | None = None) -> Items:
    items = _present(sequence)
    at = _position(np.array(-1) if position is None else position, len(items), len(items) - 1)
    return [*items[:at], *items[at + 1 :]]


def sequence_at(sequence: Items | None, position: Array) -> Array:
    items: Items = _present(sequence)
    return items[_position(position, len(items), len(items) - 1)]


def sequence_length(sequence: Items | None) -> Array:
    return np.array(len(_present(sequence)), np.int64)


def sequence_concat(sequence: Items | None, *, axis: int, new_axis: int) -> Array:
    items = _present(sequence)
    try:
        return np.stack(items, axis) if new_axis else np.concatenate(items, axis)
    except ValueError as error:  # AxisError is one
        raise _refused(
            "the tensors of a sequence do not fit together", "equal shapes but for the axis", str(error)
        ) from error


_PART_BYTES = 256
"""Of a part of a tensor beside its elements."""


def split_to_sequence(x: Array, split: Array | None = None, *, axis: int, keepdims: int, room: Room) -> Items:
    """Parts of extent 1 without ``split``; of the extents it lists; of its one extent, the last part what is left."""
    extent = x.shape[axis]
    if split is None:
        room(_PART_BYTES * extent)
        sizes: Sequence[int] = [1] * extent
    elif split.ndim:
        sizes = split.tolist()
    else:
        each = int(split)
        if each < 1:
            raise _refused("SplitToSequence makes parts of no size", "at least 1", str(each))
        room(_PART_BYTES * -(-extent // each))
        sizes = [min(each, extent - start) for start in range(0, extent, each)]
    if min(sizes, default=0) < 0 or sum(sizes) != extent:
        raise _refused("the sizes of SplitToSequence do not make up the axis", str(extent), str(list(sizes)))
    room(_PART_BYTES * len(sizes))
    places = list(zip(sizes, np.cumsum(sizes).tolist(), strict=True))
    parts = [np.take(x, range(end - size, end), axis) for some in in_parts(places, room) for size, end in some]
    return parts if keepdims else [np.squeeze(part, axis) for part in parts]


def zip_map(x: Array, *, labels: Sequence[Any]) -> list[dict[Any, Any]]:
    """One map per row, from labels to Python numbers."""
    return [dict(zip(labels, row, strict=True)) for row in x.reshape(-1, len(labels)).tolist()]


def nothing() -> None:
    return None


def optional(tensor: Array) -> Array:
    return np.array(tensor)


def required(thing: Any) -> Any:
    return _present(thing)


def extents(tensor: Array | None) -> Array:
    return np.array(_present(tensor).shape, np.int64)


def tensor(tensor: Array | None) -> Array:
    found: Array = _present(tensor)
    return found


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
