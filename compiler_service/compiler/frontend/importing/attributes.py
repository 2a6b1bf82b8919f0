"""ONNX attributes to Python values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import onnx

from compiler_service.compiler.frontend.importing.node import AttributeValue
from compiler_service.compiler.frontend.reading.tensors import DTYPES, dtype_of
from shared_ir.dtype import DType
from shared_ir.errors import ErrorCode, IngotError

DTYPE_ATTRIBUTES = frozenset({"to", "dtype", "output_dtype", "stash_type", "softmax_precision", "precision"})
"""Integer attributes that are numbers of TensorProto.DataType; they become :class:`DType`, and 0 becomes no attribute."""

_FIELDS = {
    onnx.AttributeProto.FLOAT: "f",
    onnx.AttributeProto.INT: "i",
    onnx.AttributeProto.STRING: "s",
    onnx.AttributeProto.TENSOR: "t",
    onnx.AttributeProto.GRAPH: "g",
    onnx.AttributeProto.SPARSE_TENSOR: "sparse_tensor",
    onnx.AttributeProto.TYPE_PROTO: "tp",
    onnx.AttributeProto.FLOATS: "floats",
    onnx.AttributeProto.INTS: "ints",
    onnx.AttributeProto.STRINGS: "strings",
    onnx.AttributeProto.TENSORS: "tensors",
    onnx.AttributeProto.GRAPHS: "graphs",
}


def read_attributes(
    attributes: list[onnx.AttributeProto], bound: Mapping[str, AttributeValue], where: str
) -> dict[str, AttributeValue]:
    """Attributes of a node as Python values.

    Tensors, sparse tensors and graphs are handed on as protos; inside a function, ``bound`` gives the attributes of the
    call that ``ref_attr_name`` names.

    Raises:
        IngotError: INVALID_MODEL naming the attribute, UNSUPPORTED_DTYPE.
    """
    found: dict[str, AttributeValue] = {}
    for attribute in attributes:
        if attribute.name in found:
            raise _invalid("an attribute is given twice", attribute.name, where, "one value", "two")
        if attribute.ref_attr_name and attribute.ref_attr_name not in bound:
            continue
        value = bound[attribute.ref_attr_name] if attribute.ref_attr_name else plain_value(attribute, where)
        if attribute.name in DTYPE_ATTRIBUTES and isinstance(value, int) and not isinstance(value, DType):
            if value == 0:
                continue
            value = dtype_of(value, f"{where}: {attribute.name}")
        found[attribute.name] = value
    return found


def plain_value(attribute: onnx.AttributeProto, where: str = "") -> AttributeValue:
    """The value of one attribute; lists become tuples, strings are decoded as UTF-8.

    Raises:
        IngotError: INVALID_MODEL when the attribute says no type and holds no value.
    """
    kind = attribute.type or _guess_type(attribute)
    field = _FIELDS.get(kind)
    if field is None:
        raise _invalid("an attribute has no value", attribute.name, where, "a value", f"type {kind}")
    value: Any = getattr(attribute, field)
    if field == "s":
        return _text(value)
    if field == "strings":
        return tuple(_text(v) for v in value)
    if field in ("floats", "ints", "tensors", "graphs"):
        return tuple(value)
    if field == "i" and attribute.name in DTYPE_ATTRIBUTES and value in DTYPES:
        return DTYPES[value]
    return value


def _guess_type(attribute: onnx.AttributeProto) -> int:
    """Files of the first IR versions leave the type out."""
    fields = attribute.DESCRIPTOR.fields_by_name
    for kind, field in _FIELDS.items():
        if getattr(attribute, field) if fields[field].is_repeated else attribute.HasField(field):
            return int(kind)
    return 0


def _text(value: bytes) -> str:
    return value.decode("utf-8", "surrogateescape")


def _invalid(message: str, field: str, where: str, expected: str, received: str) -> IngotError:
    return IngotError(
        ErrorCode.INVALID_MODEL,
        message,
        node=where,
        field=field,
        expected=expected,
        received=received,
        remedy="Export the model again.",
    )
