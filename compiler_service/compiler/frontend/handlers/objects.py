"""Nodes that make and read sequences and optionals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from compiler_service.compiler.frontend.importing.objects import OBJECT, HandleType, handle_type, is_object
from compiler_service.compiler.frontend.importing.scope import Binding, SequenceBinding, Special
from compiler_service.compiler.frontend.requirements.defining import Nodes
from shared_ir.dtype import DType
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.expr.dim import Dim
from shared_ir.graph.ir import CALL_OP, Attribute, Node, Value
from shared_ir.types import TensorType, ValueKind


@dataclass(frozen=True)
class ObjectNodes:
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
        self.nodes.draft.nodes.append(Node(CALL_OP, tuple(inputs), outputs, {**kinds, **attributes}, source.title))
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
            return self.one("sequence_construct", binding.values, handle_type(ValueKind.SEQUENCE, element, ranks))
        if declared is None or not declared.kind.is_optional or is_object(binding):
            return binding
        if binding is Special.ABSENT:
            empty = handle_type(declared.kind, declared.element, frozenset())
            return self.one("nothing", (), empty)
        if isinstance(binding, Value):
            own = handle_type(ValueKind.OPTIONAL, binding.dtype, frozenset({binding.type.rank}))
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
