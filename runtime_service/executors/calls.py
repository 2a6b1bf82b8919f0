"""Calls of a plan: buffers to Python values, a function of the executor, and its results back to buffers."""

from __future__ import annotations

import ctypes
import inspect
import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from runtime_service.arrays import Array
from runtime_service.executors import sequence_calls, string_calls
from runtime_service.executors.objects import ObjectAllowance, Objects
from runtime_service.executors.signature import array_dtype
from shared_ir.dtype import DType
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.plan.program import Call

FUNCTIONS: Mapping[str, Any] = MappingProxyType({**sequence_calls.FUNCTIONS, **string_calls.FUNCTIONS})
"""Each takes its ``room``, and asks there before it makes something."""
OBJECT = "object"
_FAULTS = (TypeError, ValueError, LookupError, ArithmeticError, AttributeError)
"""What functions raise that get what the compiler never gives them."""


def check_call(step: Call) -> None:
    """Whether this runtime has the function, and it takes so many inputs and these attributes.

    Raises:
        IngotError: ARTIFACT_CORRUPT.
    """
    function = _function(step)
    try:
        inspect.signature(function).bind(*step.inputs, room=None, **step.attributes)
    except TypeError as error:
        raise _corrupt(step, str(error)) from error


def _function(step: Call) -> Any:
    function = FUNCTIONS.get(step.function)
    if function is None:
        raise IngotError(
            ErrorCode.ARTIFACT_CORRUPT,
            f"the plan calls a function that this runtime does not have: {step.function}",
            remedy="Run the model with the version of the runtime that it was compiled for, or compile it again.",
        )
    return function


def _corrupt(step: Call, reason: str) -> IngotError:
    return IngotError(
        ErrorCode.ARTIFACT_CORRUPT,
        f"the plan calls {step.function} with what it does not take: {reason}"[:300],
        node=", ".join(step.nodes),
        remedy="Compile the model again.",
    )


def run_call(step: Call, inputs: list[Array | None], outputs: list[Array | None], objects: Objects) -> None:
    """Run ``step`` on views of its buffers.

    Raises:
        IngotError: INVALID_ARGUMENT from the function, or where a tensor is not of the shape that the plan expects;
            RESOURCE_EXHAUSTED where more memory would be needed than a run may take;
            ARTIFACT_CORRUPT for a function that this runtime does not have.
    """
    function, room = _function(step), ObjectAllowance(objects.require)
    try:
        given = [
            None if x is None else _value(x, kind, objects, room) for x, kind in zip(inputs, step.takes, strict=True)
        ]
        attributes = dict(step.attributes)
        if "dtype" in attributes:
            attributes["dtype"] = array_dtype(DType(attributes["dtype"]))
        found = function(*given, room=room, **attributes)
        results = found if isinstance(found, tuple) else (found,)
        if OBJECT in step.gives:
            objects.hold(room.taken)
        for result, kind, target in zip(results, step.gives, outputs, strict=True):
            if target is not None:
                _store(result, kind, target, objects, step)
    except IngotError as error:
        raise error.located(node=", ".join(step.nodes)) from error
    except _FAULTS as error:
        raise _corrupt(step, f"{type(error).__name__}: {error}") from error


def _value(x: Array, kind: str, objects: Objects, room: ObjectAllowance) -> Any:
    if kind == OBJECT:
        return objects.get(int(x.reshape(())))
    return objects.texts(x, room) if kind == DType.STRING else x


def _store(result: Any, kind: str, target: Array, objects: Objects, step: Call) -> None:
    if kind == OBJECT:
        target[...] = objects.keep(result)
        return
    if result.shape != target.shape or (kind != DType.STRING and result.dtype != target.dtype):
        raise IngotError(
            ErrorCode.INVALID_ARGUMENT,
            "a tensor of a sequence or optional is not what the model expects",
            node=", ".join(step.nodes),
            expected=f"{kind}{list(target.shape)}",
            received=f"{result.dtype}{list(result.shape)}",
        )
    target[...] = objects.numbers(result) if kind == DType.STRING else result


def view(address: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """The memory at ``address`` as an array."""
    size = dtype.itemsize * math.prod(shape)
    if not size:
        return np.empty(shape, dtype)
    memory: Any = (ctypes.c_char * size).from_address(address)
    array: Array = np.frombuffer(memory, dtype).reshape(shape)
    return array
