"""Values of control flow whose number of axes depends on the way the run takes, where that can be told no matter what runs.

A single element is a scalar in one branch and a vector of one in the other, or a scalar before a loop and a vector of one after
each iteration: exporters that keep no account of ranks (PaddlePaddle's) write them so. What reads such a value must take both, so
both are given the axes of the one that has more. A carried value that the body does not read may come in as anything, as long as
the body runs: what came in is then never seen.
"""

from __future__ import annotations

from collections.abc import Sequence

from compiler_service.compiler.frontend.importing.context import Context
from compiler_service.compiler.frontend.importing.node import SourceNode
from compiler_service.compiler.frontend.importing.objects import HandleType
from compiler_service.compiler.frontend.importing.scope import Binding, GraphDraft
from compiler_service.compiler.frontend.requirements.defining import Nodes
from shared_ir.graph.ir import Graph, Value, graph_free_values
from shared_ir.types import TensorType


def widened(a: TensorType, b: TensorType) -> TensorType | None:
    """The one of more axes, where both hold a single element of one type; None elsewhere."""
    if a.dtype is not b.dtype or not _is_single(a) or not _is_single(b):
        return None
    return a if a.rank >= b.rank else b


def _is_single(type: TensorType) -> bool:
    return all(d == 1 for d in type.shape) and not isinstance(type, HandleType)


def started(binding: Binding, type: TensorType | None, nodes: Nodes) -> Binding:
    """What a loop starts from, with the ``type`` that its body keeps: zeros where what is given is never seen."""
    if not isinstance(binding, Value) or type is None:
        return binding
    if binding.type.rank == type.rank and binding.dtype is type.dtype:
        return binding
    if widened(binding.type, type) is not None:
        return _with_axes(binding, type, nodes)
    return nodes.node("Expand", nodes.scalar(0, type.dtype), nodes.dims(type.shape))


def conformed(
    graph: Graph, outputs: Sequence[Binding], types: Sequence[TensorType | None], node: SourceNode, context: Context
) -> tuple[Graph, tuple[Binding, ...]]:
    """A body whose first outputs have as many axes as ``types``, and what its outputs are bound to."""
    draft = GraphDraft(list(graph.nodes), dict(graph.constants))
    nodes = Nodes(node, draft, context)
    first = tuple(_with_axes(b, t, nodes) for b, t in zip(outputs, types, strict=False))
    if first == tuple(outputs[: len(first)]):
        return graph, tuple(outputs)
    bound = (*first, *outputs[len(first) :])
    values = tuple(b for b in bound if isinstance(b, Value))
    return graph.with_(nodes=tuple(draft.nodes), constants=draft.constants, outputs=values), bound


def _with_axes(binding: Binding, type: TensorType | None, nodes: Nodes) -> Binding:
    if not isinstance(binding, Value) or type is None or binding.type.rank == type.rank:
        return binding
    return nodes.node("Reshape", binding, nodes.integers(*(1 for _ in type.shape)))


def unread(graph: Graph, value: Value) -> bool:
    """Whether nothing in the body depends on its input ``value``."""
    inner = graph.with_(inputs=tuple(v for v in graph.inputs if v != value))
    return value not in graph_free_values(inner)
