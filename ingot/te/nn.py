"""Every operator of the inventory on tensors: ``te.nn.softmax(x, axis=-1)``, ``te.nn.conv(x, w, strides=(2, 2))``.

A function is called after its ONNX operator in small letters, words apart (``BatchNormalization``: ``batch_normalization``; ``And``:
``and_``); it takes the inputs of the operator in order, None for those that are left out, and its attributes by name. Numbers, and
tuples and arrays of at most 1024 of them, are taken for tensors whose elements are known, such as the shape of ``reshape``. What comes
back are tensors, one or as many as the operator has outputs, that can be read, scheduled and printed like others
(:func:`ingot.te.text`).

https://onnx.ai/onnx/operators/ says what each of them computes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from compiler_service.compiler.tensor_expr.registry import OPERATORS, infer
from compiler_service.compiler.tensor_expr.tensor import Tensor, compute
from compiler_service.compiler.tensor_expr.tensor import placeholder as given_tensor
from ingot.ir.names import FUNCTION_NAMES
from shared_ir.dtype import DType
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.expr import Expr, lift, select

Operand = Tensor | np.ndarray | int | float | bool | tuple[int, ...] | None
"""What an operator takes for an input; None for one that is left out."""
_MOST_ELEMENTS = 1024


def operator(name: str, *inputs: Operand, **attributes: Any) -> Any:
    """The outputs of the operator that ONNX calls ``name``: a tensor, or a tuple of tensors (None for those that it does not have).

    Raises:
        IngotError: UNSUPPORTED_OPERATOR, TYPE_MISMATCH, UNSUPPORTED_ATTRIBUTE, UNSUPPORTED_DTYPE.
    """
    given = {key: tuple(value) if isinstance(value, list) else value for key, value in attributes.items()}
    outputs = infer(name, tuple(map(_tensor, inputs)), given)
    return outputs[0] if len(outputs) == 1 else outputs


def __getattr__(name: str) -> Callable[..., Any]:
    if name not in FUNCTION_NAMES:
        raise AttributeError(f"module {__name__!r} has no operator {name!r}")

    def apply(*inputs: Operand, **attributes: Any) -> Any:
        return operator(FUNCTION_NAMES[name], *inputs, **attributes)

    apply.__name__ = apply.__qualname__ = name
    apply.__doc__ = OPERATORS[FUNCTION_NAMES[name]].definition.__doc__
    return apply


def __dir__() -> list[str]:
    return [*FUNCTION_NAMES, "operator"]


def _tensor(operand: Operand) -> Tensor | None:
    if operand is None or isinstance(operand, Tensor):
        return operand
    array = np.asarray(operand)
    if array.size > _MOST_ELEMENTS:
        raise IngotError(
            ErrorCode.INVALID_ARGUMENT,
            "an operand has more elements than are written into code",
            expected=f"at most {_MOST_ELEMENTS}",
            received=str(array.size),
            remedy="Make it a placeholder, and call the function with it.",
        )
    dtype = DType.FLOAT32 if isinstance(operand, float) else DType.of(array)
    elements = np.array(array.tolist(), dtype=object).reshape(array.shape)
    if dtype is DType.STRING:
        return given_tensor("known", array.shape, dtype, elements)
    known = compute(array.shape, lambda *axes: _element(elements, axes, dtype), name="known", axes=_axes(array.ndim))
    return replace(known, value=elements)


def _axes(rank: int) -> tuple[str, ...]:
    return tuple(f"i{number}" for number in range(rank))


def _element(elements: np.ndarray, axes: tuple[Expr, ...], dtype: DType, skipped: int = 0) -> Expr:
    """The element at ``axes``, of which the first counts those that were ``skipped`` too: halves of halves are told apart."""
    if not axes:
        return lift(elements.item(), dtype)
    if len(elements) == 0:
        return lift(0, dtype)
    if len(elements) == 1:
        return _element(elements[0] if len(axes) > 1 else np.array(elements[0]), axes[1:], dtype)
    half = len(elements) // 2
    below = _element(elements[:half], axes, dtype, skipped)
    above = _element(elements[half:], axes, dtype, skipped + half)
    return select(axes[0] < skipped + half, below, above)
