"""Types that go into and out of the bodies of control flow: what the runs of a body agree on, and what the enclosing graph sees."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from compiler_service.compiler.frontend.handlers.arms import DynamicTypeError
from compiler_service.compiler.frontend.handlers.ranks import widened
from compiler_service.compiler.frontend.importing.context import Context
from compiler_service.compiler.frontend.importing.node import SourceNode
from compiler_service.compiler.frontend.importing.objects import HandleType, join
from compiler_service.compiler.frontend.importing.scope import Binding, SequenceBinding, Special
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.expr.dim import Dim, dim_symbols
from shared_ir.graph.ir import Graph, Value, graph_free_values
from shared_ir.types import TensorType


def type_of(binding: Binding) -> TensorType | None:
    """The type of what goes into or out of a body; None where a node before could not be imported.

    Raises:
        IngotError: INVALID_MODEL, it has no type that was declared.
    """
    if isinstance(binding, SequenceBinding) or binding is Special.ABSENT:
        raise IngotError(
            ErrorCode.INVALID_MODEL,
            "control flow takes and gives values",
            expected="a tensor, a sequence, or an optional of a declared type",
            received="a sequence" if isinstance(binding, SequenceBinding) else "an empty optional of no type",
            remedy="Export the model again, with the types of what the graphs of control flow take and give.",
        )
    return binding.type if isinstance(binding, Value) else None


def merged(node: SourceNode, index: int, a: Binding, b: Binding, context: Context) -> TensorType | None:
    """The type of an output of ``If``: a dim on which the branches differ becomes a symbol that the run defines, and single
    elements have the axes of the branch that gives them more."""
    if type_of(a) is None or not isinstance(a, Value) or type_of(b) is None or not isinstance(b, Value):
        return None
    joined = _of_objects(a.type, b.type, node.outputs[index])
    if joined is not None:
        return joined
    if a.dtype is not b.dtype or len(a.shape) != len(b.shape):
        wider = widened(a.type, b.type)
        if wider is not None:
            return wider
        raise DynamicTypeError(
            ErrorCode.TYPE_MISMATCH,
            "the branches of If give different types, and the condition is not known while compiling",
            tensor=node.outputs[index],
            expected="equal element type and number of axes in both branches",
            received=f"{a.type} and {b.type}",
            remedy="Pin the shapes of the inputs (shapes={...}) so that the condition becomes known.",
        )
    names = (f"{node.outputs[index]}_{axis}" for axis in range(len(a.shape)))
    dims = zip(a.shape, b.shape, names, strict=True)
    return TensorType(a.dtype, tuple(p if p == q else context.symbols.fresh(n) for p, q, n in dims))


def generalised(
    node: SourceNode,
    before: TensorType | None,
    after: TensorType | None,
    name: str,
    loose: set[Dim],
    context: Context,
) -> TensorType | None:
    """``before`` with a new symbol, added to ``loose``, for every dim that ``after`` changes; loose dims may change. A single
    element has the axes of the one that has more."""
    if before is None or after is None:
        return before
    joined = _of_objects(before, after, name)
    if joined is not None:
        return joined
    if before.dtype is not after.dtype or before.rank != after.rank:
        wider = widened(before, after)
        if wider is not None:
            return wider
        raise DynamicTypeError(
            ErrorCode.TYPE_MISMATCH,
            f"{node.op} changes the type of a carried value",
            tensor=name,
            expected=f"{before} after every iteration",
            received=str(after),
            remedy="Give the carried value the same element type and number of axes before and after the body.",
        )
    shape = list(before.shape)
    for axis, (old, new) in enumerate(zip(before.shape, after.shape, strict=True)):
        if old != new and old not in loose:
            shape[axis] = context.symbols.fresh(f"{name}_{axis}")
            loose.add(shape[axis])
    return TensorType(before.dtype, tuple(shape))


def _of_objects(a: TensorType, b: TensorType, where: str) -> TensorType | None:
    """The type of a sequence or optional that is one or the other; None for tensors."""
    if not isinstance(a, HandleType) and not isinstance(b, HandleType):
        return None
    joined = join(a, b) if isinstance(a, HandleType) and isinstance(b, HandleType) else None
    if joined is None:
        raise DynamicTypeError(
            ErrorCode.TYPE_MISMATCH,
            "a value of control flow is now one kind of sequence or optional, now another",
            tensor=where,
            expected="one kind and element type",
            received=f"{a} and {b}",
            remedy="Export the model again, with equal types of what the graphs of control flow take and give.",
        )
    return joined


@dataclass(frozen=True)
class Outside:
    """Types of the body as the enclosing graph sees them: dims that only the body knows become symbols of the run."""

    node: SourceNode
    inner: frozenset[str]
    context: Context

    @classmethod
    def of(cls, node: SourceNode, inputs: Sequence[Binding], graph: Graph, context: Context) -> Self:
        inside = (*graph.inputs, *(v for n in graph.nodes for v in n.results))
        outside = (*graph_free_values(graph), *(b for b in inputs if isinstance(b, Value)))
        return cls(node, _symbols(inside) - _symbols(outside), context)

    def type(self, index: int, after: TensorType | None, before: TensorType | None = None) -> TensorType | None:
        """The type of output ``index`` that is ``after`` in the last iteration and ``before`` in the first."""
        if after is None:
            return None
        if isinstance(after, HandleType):
            return after if before is None else _of_objects(before, after, self.node.title)
        name = self.node.outputs[index] if index < len(self.node.outputs) else ""

        def outer(axis: int, dim: Dim) -> Dim:
            changes = before is not None and before.shape[axis] != dim
            return self.context.symbols.fresh(f"{name}_{axis}") if changes or dim_symbols([dim]) & self.inner else dim

        return TensorType(after.dtype, tuple(outer(axis, dim) for axis, dim in enumerate(after.shape)))


def _symbols(values: Sequence[Value]) -> frozenset[str]:
    return dim_symbols(d for v in values for d in v.shape)


def stacked(node: SourceNode, index: int, type: TensorType | None) -> TensorType | None:
    """The type of what is stacked over the iterations."""
    if isinstance(type, HandleType):
        raise IngotError(
            ErrorCode.INVALID_MODEL,
            f"{node.op} stacks tensors alone",
            tensor=node.outputs[index] if index < len(node.outputs) else "",
            expected="a tensor",
            received=str(type),
            remedy="Carry the sequence from one iteration to the next.",
        )
    return type


def without_axis(type: TensorType | None, axis: int | None) -> TensorType | None:
    if type is None or axis is None:
        return None
    return TensorType(type.dtype, (*type.shape[:axis], *type.shape[axis + 1 :]))


def with_axis(type: TensorType, axis: int, dim: Dim) -> TensorType:
    return TensorType(type.dtype, (*type.shape[:axis], dim, *type.shape[axis:]))
