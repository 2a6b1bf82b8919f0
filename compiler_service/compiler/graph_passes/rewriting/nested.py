"""Applying a transformation to a graph and to every graph nested in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from shared_ir.graph.ir import GROUP_OP, Attribute, Graph, Node, Value

Constants = Mapping[Value, np.ndarray]


def map_graphs(graph: Graph, function: Callable[[Graph, Constants], Graph], outer: Constants | None = None) -> Graph:
    """``function`` applied to ``graph``, then to the bodies of control flow inside the result, outermost first.

    ``function`` also gets the constants of the enclosing graphs, which a body may read. Bodies of fused groups are left
    alone: what is inside a group is settled. The same object comes back when nothing changed.
    """
    outer = outer or {}
    graph = function(graph, outer)
    visible = {**outer, **graph.constants} if any(n.subgraphs for n in graph.nodes) else {}
    return map_bodies(graph, lambda body: map_graphs(body, function, visible))


def map_bodies(graph: Graph, function: Callable[[Graph], Graph]) -> Graph:
    """``graph`` with ``function`` applied to the bodies of its control-flow nodes (one level down)."""
    nodes = tuple(_map_node(n, function) for n in graph.nodes)
    if all(a is b for a, b in zip(nodes, graph.nodes, strict=True)):
        return graph
    return graph.with_(nodes=nodes)


def _map_node(node: Node, function: Callable[[Graph], Graph]) -> Node:
    if node.op == GROUP_OP or not node.subgraphs:
        return node
    attributes: dict[str, Attribute] = {
        k: function(a) if isinstance(a, Graph) else a for k, a in node.attributes.items()
    }
    if all(attributes[k] is a for k, a in node.attributes.items()):
        return node
    return replace(node, attributes=attributes)
