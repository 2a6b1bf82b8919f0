"""Give every output of the model a buffer of its own, so that the last kernel can write straight into it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from compiler_service.compiler.graph_passes.analysis.aliases import is_view, memory_roots
from compiler_service.compiler.graph_passes.rewriting.facts import Facts, GraphFact
from compiler_service.compiler.graph_passes.rewriting.pass_manager import Pass
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.graph.ir import GROUP_OP, Graph, Node, Value, fresh_names


@dataclass(frozen=True)
class SeparateOutputs(Pass):
    """An output that shares memory with an input, a constant or another output gets a copying group before it.

    A view that would have to alias two buffers becomes the copy itself. Runs after ``fuse``, on the outermost graph.
    """

    name: ClassVar[str] = "separate-outputs"
    level: ClassVar[int] = 0
    needs: ClassVar[Facts] = frozenset({GraphFact.GROUPED})
    gives: ClassVar[Facts] = frozenset({GraphFact.OUTPUTS_APART})
    forbids: ClassVar[Facts] = frozenset({GraphFact.PARTS_PLACED, GraphFact.ROWS_PADDED})

    def run(self, graph: Graph) -> Graph:
        graph = _copy_repeated(graph)
        return _copy_views(graph)

    def ensures(self, graph: Graph) -> None:
        roots = memory_roots(graph)
        found = [roots[v] for v in graph.outputs]
        given = {*graph.inputs, *graph.constants}
        if len(set(found)) != len(found) or any(v in given for v in found):
            raise IngotError(ErrorCode.COMPILER_FAULT, f"outputs of {graph.name!r} share memory")


def _copy_repeated(graph: Graph) -> Graph:
    """Outputs that are no result of a node, or that an earlier output already is, are copied."""
    fresh = fresh_names(graph)
    seen: set[Value] = set()
    outputs: list[Value] = []
    copies: list[Node] = []
    for value in graph.outputs:
        if value in graph.producers and value not in seen:
            seen.add(value)
            outputs.append(value)
            continue
        copy = Value(fresh(value.name), value.type)
        copies.append(copy_group(value, copy))
        outputs.append(copy)
    if not copies:
        return graph
    return graph.with_(nodes=(*graph.nodes, *copies), outputs=tuple(outputs))


def copy_group(source: Value, target: Value) -> Node:
    """A group that copies ``source`` to ``target``."""
    body = Graph("copy", (source,), (target,), (Node("Identity", (source,), (target,)),))
    return Node(GROUP_OP, (source,), (target,), {"body": body, "nodes": ()})


def _copy_views(graph: Graph) -> Graph:
    """Views that lead from an output to memory which is not that output's own become kernels."""
    given = {*graph.inputs, *graph.constants}
    while True:
        roots = memory_roots(graph)
        claimed: set[Value] = set()
        clashing: set[Value] = set()
        for value in sorted(graph.outputs, key=lambda v: roots[v] != v):  # outputs that own their memory come first
            if roots[value] in given or roots[value] in claimed:
                clashing.add(value)
            claimed.add(roots[value])
        if not clashing:
            return graph
        graph = graph.with_(nodes=tuple(n if clashing.isdisjoint(n.results) else _as_copy(n) for n in graph.nodes))


def _as_copy(node: Node) -> Node:
    if not is_view(node):
        raise IngotError(ErrorCode.COMPILER_FAULT, "an output that is no view shares memory", node=str(node))
    return replace(node, attributes={k: a for k, a in node.attributes.items() if k != "view"})
