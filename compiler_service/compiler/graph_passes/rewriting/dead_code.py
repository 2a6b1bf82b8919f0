"""What no output of a graph depends on. Operators have no side effects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from compiler_service.compiler.graph_passes.analysis.symbols import defined_symbols, node_dims
from compiler_service.compiler.graph_passes.rewriting.nested import map_bodies
from shared_ir.expr.dim import dim_symbols
from shared_ir.graph.ir import CHECK_OP, DEFINE_OP, Graph, Node, Value, free_values


def eliminate_dead_code(graph: Graph) -> Graph:
    """``graph`` without dead nodes and constants, nested graphs included.

    A node that defines a symbol is needed where the symbol is: in a shape, or by arithmetic on it. One that may end the run
    is always needed.
    """
    graph = map_bodies(graph, eliminate_dead_code)
    needed: set[Value] = set(graph.outputs)
    defined = defined_symbols(graph)
    mentioned = dim_symbols(d for v in graph.outputs for d in v.shape) if defined else frozenset()
    kept: list[Node] = []
    for node in reversed(graph.nodes):
        symbols = defined.get(id(node), frozenset())
        checks = node.op in (DEFINE_OP, CHECK_OP) and "message" in node.attributes and not _holds(node, graph.constants)
        if checks or any(v in needed for v in node.results) or not symbols.isdisjoint(mentioned):
            kept.append(_without_unused_outputs(node, needed, mentioned & symbols))
            needed.update(node.operands, free_values(node))
            if defined:
                mentioned |= dim_symbols(node_dims(node))
    nodes = tuple(reversed(kept))
    constants = {v: a for v, a in graph.constants.items() if v in needed}
    same = len(nodes) == len(graph.nodes) and all(a is b for a, b in zip(nodes, graph.nodes, strict=True))
    if same and len(constants) == len(graph.constants):
        return graph
    return graph.with_(nodes=nodes, constants=constants)


def _holds(check: Node, constants: Mapping[Value, np.ndarray]) -> bool:
    """Whether nothing is left to check: what is required is a constant."""
    array = constants.get(check.operands[0]) if check.operands else None
    return array is not None and bool((array == check.attributes.get("expected", 0)).all())


def _without_unused_outputs(node: Node, needed: set[Value], symbols: frozenset[str]) -> Node:
    """Results that nobody reads become absent. Control flow keeps its arity: its bodies fix it.

    Results that define one of ``symbols`` stay.
    """
    if node.subgraphs or len(node.outputs) == 1:
        return node
    kept = {v for v in node.results if v in needed or (symbols and not symbols.isdisjoint(dim_symbols(v.shape)))}
    outputs = tuple(v if v in kept else None for v in node.outputs)
    return node if outputs == node.outputs else replace(node, outputs=outputs)
