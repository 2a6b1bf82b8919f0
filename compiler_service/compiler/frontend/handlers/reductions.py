"""Reductions over axes of which only the run knows how many there are: where they stay, with an extent of 1, none need be counted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from compiler_service.compiler.frontend.handlers.data_dependent import expanded
from compiler_service.compiler.frontend.importing.handler import Handler, Importer
from compiler_service.compiler.frontend.importing.node import SourceNode
from compiler_service.compiler.frontend.importing.scope import Frame, GraphDraft
from compiler_service.compiler.frontend.requirements.defining import Nodes
from compiler_service.compiler.frontend.requirements.normalising import REDUCTIONS
from compiler_service.compiler.frontend.requirements.operand_checks import within
from shared_ir.dtype import DType
from shared_ir.graph.ir import Value


def reduction(nodes: Nodes, operands: Sequence[Value | None]) -> Sequence[Value | None]:
    """Each axis is named in its turn where it is reduced; in place of the others stands a number that none has."""
    x, axes = operands[:2]
    assert x is not None  # the handler asks for both
    assert axes is not None
    rank, zero = x.type.rank, nodes.integers(0)
    vector = nodes.vector(axes)
    counted = nodes.node("Add", vector, nodes.integers(rank))
    vector = nodes.node("Where", nodes.node("Less", vector, zero), counted, vector)
    within(nodes, vector, rank - 1, f"axes of '{axes.name}' that are not within -{rank} and {rank - 1}")
    numbers = nodes.integers(*range(rank))
    named = nodes.node("Equal", nodes.node("Unsqueeze", numbers, nodes.integers(1)), vector)
    times = nodes.node("ReduceSum", nodes.node("Cast", named, to=DType.INT64), nodes.integers(1), keepdims=0)
    chosen = nodes.node("Less", zero, times)
    if not nodes.source.attributes.get("noop_with_empty_axes", 0):
        chosen = nodes.node("Or", chosen, nodes.node("Equal", nodes.dims(axes.shape), zero))
    given = nodes.node("Where", chosen, numbers, nodes.integers(rank))
    known = nodes.dims(nodes.define(given, f"{nodes.source.outputs[0]}_axis"))
    return [nodes.node(nodes.source.op, x, known, output=nodes.source.outputs[0], keepdims=1)]


_reduction = expanded(reduction)


def _handler(node: SourceNode, frame: Frame, draft: GraphDraft, importer: Importer) -> None:
    """The plain operator where it is known how many axes are reduced, or where those go."""
    x, axes = (frame.lookup(node.input(i)) for i in (0, 1))
    is_open = isinstance(axes, Value) and axes.type.rank == 1 and not isinstance(axes.shape[0], int)
    if is_open and isinstance(x, Value) and x.shape and node.attributes.get("keepdims", 1):
        _reduction(node, frame, draft, importer)
    else:
        importer.operator(node, frame, draft)


HANDLERS: Mapping[str, Handler] = MappingProxyType({f"Reduce{kind}": _handler for kind in REDUCTIONS})
