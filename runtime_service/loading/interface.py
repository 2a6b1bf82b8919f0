"""Inputs and outputs that are no plain arrays of numbers, and the numbers that stand for them in memory.

Users hand in and get object arrays of str for tensors of strings, lists of arrays for sequences, None for an empty optional.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from runtime_service.arrays import Array
from runtime_service.executors.objects import ObjectAllowance, Objects
from runtime_service.executors.signature import array_dtype
from shared_ir.dtype import DType
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.plan.program import TensorSpec
from shared_ir.types import ValueKind


def is_plain(spec: TensorSpec) -> bool:
    return spec.kind is ValueKind.TENSOR and spec.dtype is not DType.STRING


def to_memory(spec: TensorSpec, given: Any, objects: Objects) -> Array:
    """What stands for ``given`` in memory.

    Raises:
        IngotError: INVALID_ARGUMENT naming the input.
    """
    if spec.kind is ValueKind.TENSOR:
        return objects.numbers(_tensor(spec, given))
    if given is None and spec.kind.is_optional:
        return np.array(objects.keep(None), np.int64)
    if not spec.kind.is_sequence:
        return np.array(objects.keep(_tensor(spec, given)), np.int64)
    if not isinstance(given, list | tuple):
        raise _misfit(spec, given, "a list of arrays")
    return np.array(objects.keep([_tensor(spec, x) for x in given]), np.int64)


def from_memory(spec: TensorSpec, found: Array, objects: Objects, room: ObjectAllowance) -> Any:
    """What the user gets for an output; of strings, ``room`` is asked for the characters of each, shared or not."""
    if is_plain(spec):
        return found
    if spec.kind is ValueKind.TENSOR:
        texts = objects.texts(found, room)
        for some in room.each(texts):
            room.take(sum(map(len, some)))
        return texts
    return objects.get(int(found.reshape(())))


def _tensor(spec: TensorSpec, given: Any) -> Array:
    array = np.asarray(given)
    if spec.dtype is DType.STRING:
        if array.dtype.kind not in "OUS" and array.size:
            raise _misfit(spec, given, "an array of strings")
        return array.astype(object)
    if array.dtype != array_dtype(spec.dtype):
        raise _misfit(spec, given, f"arrays of {spec.dtype}")
    return array


def _misfit(spec: TensorSpec, given: Any, expected: str) -> IngotError:
    received = str(given.dtype) if isinstance(given, np.ndarray) else type(given).__name__
    return IngotError(
        ErrorCode.INVALID_ARGUMENT,
        f"input {spec.name!r} is not of the type that the model takes",
        tensor=spec.name,
        expected=f"{expected} ({spec.kind} of {spec.dtype})",
        received=received,
    )
