"""``Constant`` nodes, and attributes that hold tensors or types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx

from compiler_service.compiler.frontend.importing.context import Context
from compiler_service.compiler.frontend.importing.node import AttributeValue, SourceNode
from compiler_service.compiler.frontend.reading.tensors import dtype_of
from shared_ir.dtype import DType
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.expr import Expr
from shared_ir.graph.ir import Attribute
from shared_ir.types import TensorType

_FORMS: Mapping[str, Any] = {
    "value_float": np.float32,
    "value_floats": np.float32,
    "value_int": np.int64,
    "value_ints": np.int64,
    "value_string": object,
    "value_strings": object,
}


def constant_array(node: SourceNode, context: Context) -> np.ndarray:
    """The value of a ``Constant`` node in any of its forms.

    Raises:
        IngotError: INVALID_MODEL unless exactly one form is given.
    """
    if len(node.attributes) != 1:
        raise IngotError(
            ErrorCode.INVALID_MODEL,
            "a Constant node has no value, or several",
            node=str(node),
            expected="one of value, sparse_value, " + ", ".join(_FORMS),
            received=", ".join(node.attributes) or "none",
            remedy="Export the model again.",
        )
    ((key, value),) = node.attributes.items()
    if key in ("value", "sparse_value"):
        return context.array(value, node.outputs[0])
    return np.array(value, dtype=_FORMS[key])


def graph_attributes(node: SourceNode, context: Context) -> dict[str, Attribute]:
    """The attributes of ``node`` as the graph IR holds them.

    Raises:
        IngotError: UNSUPPORTED_ATTRIBUTE for a tensor or graph where the IR has no place for one.
    """
    return {key: _attribute(node, key, value, context) for key, value in _one_element(node, context).items()}


def _one_element(node: SourceNode, context: Context) -> dict[str, AttributeValue]:
    """``value`` of ConstantOfShape (one element, default float32 0) as a number and its ``dtype``."""
    if node.op != "ConstantOfShape" or node.domain:
        return node.attributes
    value = node.attributes.get("value")
    array = np.zeros(1, np.float32) if value is None else context.array(value, node.title)
    if array.size != 1:
        raise IngotError(
            ErrorCode.INVALID_MODEL,
            "the value of ConstantOfShape must have one element",
            field="value",
            expected="one element",
            received=str(array.size),
            remedy="Export the model again.",
        )
    element = array.reshape(-1)[0]
    dtype = DType.of(array)
    plain = float(element) if dtype.is_float else bool(element) if dtype is DType.BOOL else int(element)
    return {**node.without("value"), "value": plain, "dtype": dtype}


def _attribute(node: SourceNode, key: str, value: AttributeValue, context: Context) -> Attribute:
    match value:
        case DType() | TensorType() | bool() | int() | float() | str():
            return value
        case tuple() if all(isinstance(v, int | float | str | Expr) for v in value):
            return value
        case onnx.TypeProto() if value.HasField("tensor_type"):
            return TensorType(dtype_of(value.tensor_type.elem_type, node.title), ())
    raise IngotError(
        ErrorCode.UNSUPPORTED_ATTRIBUTE,
        f"{node.op} has an attribute of a kind that is not supported",
        field=key,
        expected="numbers, strings, or lists of them",
        received=type(value).__name__,
        remedy="Rewrite this part of the model with supported operators.",
    )
