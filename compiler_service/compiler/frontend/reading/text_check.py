"""Names in a model must be text: protobuf hands out bytes where they are not UTF-8."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import onnx
from google.protobuf.descriptor import FieldDescriptor

from shared_ir.errors import ErrorCode, IngotError


def check_text(model: onnx.ModelProto) -> None:
    """Every string of the model is UTF-8.

    Raises:
        IngotError: INVALID_MODEL naming the field.
    """
    waiting: list[Any] = [model]
    while waiting:
        message = waiting.pop()
        for field, value in _fields(message):
            values = value if field.is_repeated else (value,)
            if field.type == FieldDescriptor.TYPE_MESSAGE:
                waiting.extend(values)
            elif field.type == FieldDescriptor.TYPE_STRING and any(isinstance(v, bytes) for v in values):
                raise IngotError(
                    ErrorCode.INVALID_MODEL,
                    "a name in the model is not text",
                    field=field.full_name,
                    expected="UTF-8",
                    received=repr(next(v for v in values if isinstance(v, bytes)))[:100],
                    remedy="Export the model again; this file is damaged.",
                )


def _fields(message: Any) -> Iterable[tuple[Any, Any]]:
    if not isinstance(message, onnx.TensorProto):
        found: Iterable[tuple[Any, Any]] = message.ListFields()
        return found
    # NOTE: ListFields would copy the elements of the tensor.
    names = message.DESCRIPTOR.fields_by_name
    return [(names[n], getattr(message, n)) for n in ("name", "doc_string", "external_data")]
