"""Values that are objects of the run: sequences and optionals whose length or presence the importer does not know.

In the graph they are int64 scalars, numbers of a table that the executor keeps; 0 is an empty optional. An optional that has an
element is the number of that element, so taking it out costs nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import onnx

from compiler_service.compiler.frontend.reading.tensors import dtype_of
from shared_ir.dtype import DType
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.graph.ir import Value
from shared_ir.types import TensorType, ValueKind

Ranks: TypeAlias = "frozenset[int] | None"
"""How many axes the tensors of a sequence may have, none where it is empty; ``None``: any number."""

OBJECT = "object"


@dataclass(frozen=True, slots=True)
class HandleType(TensorType):
    """The type of a sequence or optional; ``element`` and ``ranks`` are those of its tensors."""

    kind: ValueKind = ValueKind.SEQUENCE
    element: DType = DType.FLOAT32
    ranks: Ranks = None

    def __str__(self) -> str:
        return f"{self.kind}({self.element})"


def handle_type(kind: ValueKind, element: DType, ranks: Ranks) -> HandleType:
    return HandleType(DType.INT64, (), kind, element, ranks)


def is_object(value: object) -> bool:
    return isinstance(value, Value) and isinstance(value.type, HandleType)


def join(a: HandleType, b: HandleType) -> HandleType | None:
    """The type of a value that is one or the other; None where no value can be both."""
    if a.element is not b.element or a.kind.is_sequence is not b.kind.is_sequence:
        return None
    ranks = None if a.ranks is None or b.ranks is None else a.ranks | b.ranks
    return handle_type(a.kind if a.kind.is_optional else b.kind, a.element, ranks)


def declared_type(proto: onnx.TypeProto, where: str) -> HandleType | None:
    """The type of a sequence or optional as the model declares it; None for tensors.

    Ranks of 0 are not believed: exporters write them for shapes that they do not know.

    Raises:
        IngotError: UNSUPPORTED_DTYPE for maps and nested sequences.
    """
    optional = proto.HasField("optional_type")
    inner = proto.optional_type.elem_type if optional else proto
    sequence = inner.HasField("sequence_type")
    tensor = inner.sequence_type.elem_type if sequence else inner
    if not optional and not sequence:
        return None
    if sequence and not optional and tensor.HasField("map_type"):
        numbers = tensor.map_type.value_type.tensor_type.elem_type
        return handle_type(ValueKind.MAPS, dtype_of(numbers or onnx.TensorProto.FLOAT, where), None)
    if not tensor.HasField("tensor_type"):
        raise IngotError(
            ErrorCode.UNSUPPORTED_DTYPE,
            "a value is no tensor, nor a sequence or optional of tensors",
            tensor=where,
            expected="a tensor, a sequence of tensors, or an optional of either",
            received=str(tensor.WhichOneof("value") or "nothing").removesuffix("_type"),
            remedy="Export the model with tensors as inputs and outputs.",
        )
    kind = {
        (True, True): ValueKind.OPTIONAL_SEQUENCE,
        (True, False): ValueKind.OPTIONAL,
        (False, True): ValueKind.SEQUENCE,
    }
    rank = len(tensor.tensor_type.shape.dim)
    element = dtype_of(tensor.tensor_type.elem_type, where)
    return handle_type(kind[optional, sequence], element, frozenset({rank}) if rank else None)
