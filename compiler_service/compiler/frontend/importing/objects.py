"""Values that are objects of the run: sequences and optionals whose length or presence the importer does not know.

In the graph they are int64 scalars, numbers of a table that the executor keeps; 0 is an empty optional. An optional that has an
element is the number of that element, so taking it out costs nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import onnx

from compiler_service.compiler.frontend.importing.scope import Binding, SequenceBinding, Special
from compiler_service.compiler.frontend.reading.tensors import dtype_of
from compiler_service.compiler.frontend.requirements.defining import Nodes
from shared_ir.dtype import DType
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.expr.dim import Dim
from shared_ir.graph.ir import CALL_OP, Attribute, Node, Value
from shared_ir.types import Kind, TensorType

Ranks: TypeAlias = "frozenset[int] | None"
"""How many axes the tensors of a sequence may have, none where it is empty; ``None``: any number."""

OBJECT = "object"


@dataclass(frozen=True, slots=True)
class HandleType(TensorType):
    """The type of a sequence or optional; ``element`` and ``ranks`` are those of its tensors."""

    kind: Kind = Kind.SEQUENCE
    element: DType = DType.FLOAT32
    ranks: Ranks = None

    def __str__(self) -> str:
        return f"{self.kind}({self.element})"


def handle_type(kind: Kind, element: DType, ranks: Ranks) -> HandleType:
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
        return handle_type(Kind.MAPS, dtype_of(numbers or onnx.TensorProto.FLOAT, where), None)
    if not tensor.HasField("tensor_type"):
        raise IngotError(
            ErrorCode.UNSUPPORTED_DTYPE,
            "a value is no tensor, nor a sequence or optional of tensors",
            tensor=where,
            expected="a tensor, a sequence of tensors, or an optional of either",
            received=str(tensor.WhichOneof("value") or "nothing").removesuffix("_type"),
            remedy="Export the model with tensors as inputs and outputs.",
        )
    kind = {(True, True): Kind.OPTIONAL_SEQUENCE, (True, False): Kind.OPTIONAL, (False, True): Kind.SEQUENCE}
    rank = len(tensor.tensor_type.shape.dim)
    element = dtype_of(tensor.tensor_type.elem_type, where)
    return handle_type(kind[optional, sequence], element, frozenset({rank}) if rank else None)


@dataclass(frozen=True)
class Objects:
    """Appends calls of the executor beside the node that is being imported."""

    nodes: Nodes

    def call(
        self, function: str, inputs: Sequence[Value | None], types: Sequence[TensorType], **attributes: Attribute
    ) -> tuple[Value, ...]:
        """The results of a function of the executor."""
        context, source = self.nodes.context, self.nodes.source
        outputs = tuple(context.value(f"{source.title}_{function}", t) for t in types)
        kinds: dict[str, Attribute] = {
            "function": function,
            "takes": tuple("" if v is None else _kind(v.type) for v in inputs),
            "gives": tuple(_kind(t) for t in types),
        }
        self.nodes.builder.nodes.append(Node(CALL_OP, tuple(inputs), outputs, {**kinds, **attributes}, source.title))
        return outputs

    def one(self, function: str, inputs: Sequence[Value | None], type: TensorType, **attributes: Attribute) -> Value:
        return self.call(function, inputs, (type,), **attributes)[0]

    def value(self, binding: Binding, declared: HandleType | None = None) -> Binding:
        """``binding`` as a value of the graph where it is a sequence or optional that the importer has followed."""
        if isinstance(binding, SequenceBinding):
            element = binding.element or (declared.element if declared is not None else None)
            if element is None:
                raise _untyped(self.nodes)
            ranks = frozenset(v.type.rank for v in binding.values)
            return self.one("sequence_construct", binding.values, handle_type(Kind.SEQUENCE, element, ranks))
        if declared is None or not declared.kind.is_optional or is_object(binding):
            return binding
        if binding is Special.ABSENT:
            empty = handle_type(declared.kind, declared.element, frozenset())
            return self.one("nothing", (), empty)
        if isinstance(binding, Value):
            own = handle_type(Kind.OPTIONAL, binding.dtype, frozenset({binding.type.rank}))
            return self.one("optional", (binding,), own)
        return binding

    def tensor(self, handle: Value, prefix: Sequence[Dim] = (), rank: int | None = None) -> Value:
        """The tensor that an object is: its extents, but for those of ``prefix``, become symbols of the run.

        Raises:
            IngotError: UNSUPPORTED_DTYPE, nobody knows how many axes it has.
        """
        nodes, type = self.nodes, handle.type
        assert isinstance(type, HandleType)
        if rank is None:
            rank = self._rank(type)
        shape = tuple(prefix)
        if rank > len(shape):
            extents = self.one("extents", (handle,), TensorType(DType.INT64, (rank,)))
            if shape:
                extents = nodes.node("Gather", extents, nodes.integers(*range(len(shape), rank)))
            shape = (*shape, *nodes.define(extents, f"{nodes.source.title}_extent"))
        return self.one("tensor", (handle,), TensorType(type.element, shape))

    def _rank(self, type: HandleType) -> int:
        if type.ranks is not None and len(type.ranks) == 1:
            (rank,) = type.ranks
            return rank
        raise IngotError(
            ErrorCode.UNSUPPORTED_DTYPE,
            "the number of axes of a tensor in a sequence or optional must be known while compiling",
            expected="tensors of equal rank, which the model declares or makes",
            received="any number of axes" if not type.ranks else f"{sorted(type.ranks)} axes",
            remedy="Declare the shape of the tensors in the type of the sequence, with names for extents that are not known.",
        )


def _kind(type: TensorType) -> str:
    return OBJECT if isinstance(type, HandleType) else str(type.dtype)


def _untyped(nodes: Nodes) -> IngotError:
    return IngotError(
        ErrorCode.INVALID_MODEL,
        "an empty sequence has no element type",
        node=str(nodes.source),
        remedy="Export the model again.",
    )
