"""Dim symbols of a graph: which occur, which the run defines, and new ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from shared_ir.expr import Expr, Var
from shared_ir.expr.dim import Dim, dim_symbols, symbol
from shared_ir.graph.ir import DEFINE_OP, Attribute, Graph, Node
from shared_ir.types import TensorType


def node_dims(node: Node) -> Iterator[Dim]:
    """Every dim that ``node`` mentions: types of operands and results, attributes, nested graphs."""
    for value in (*node.operands, *node.results):
        yield from value.shape
    for attribute in node.attributes.values():
        yield from _attribute_dims(attribute)


def graph_dims(graph: Graph) -> Iterator[Dim]:
    """Every dim that ``graph`` mentions, nested graphs included."""
    for value in (*graph.inputs, *graph.outputs, *graph.constants):
        yield from value.shape
    for node in graph.nodes:
        yield from node_dims(node)


def _attribute_dims(attribute: Attribute) -> Iterator[Dim]:
    match attribute:
        case Expr():
            yield attribute
        case TensorType(shape=shape):
            yield from shape
        case Graph():
            yield from graph_dims(attribute)
        case tuple():
            for item in attribute:
                yield from _attribute_dims(item)


def input_symbols(graph: Graph) -> frozenset[str]:
    """The symbols that the shapes of the inputs define."""
    return frozenset(d.name for v in graph.inputs for d in v.shape if isinstance(d, Var))


def defined_symbols(graph: Graph) -> Mapping[int, frozenset[str]]:
    """For each node of ``graph`` that defines symbols (by its ``id``), which: those of its results, or of its attribute
    ``symbols``, that nothing above mentions."""
    given = input_symbols(graph)
    candidates = {d.name for n in graph.nodes for v in n.results for d in v.shape if isinstance(d, Var)} - given
    if not candidates and not any(n.op == DEFINE_OP for n in graph.nodes):
        return {}
    seen, found = set(given), {}
    for node in graph.nodes:
        seen |= dim_symbols(d for v in node.operands for d in v.shape)
        dims = [d for v in node.results for d in v.shape]
        own = dim_symbols([*dims, *_attribute_dims(node.attributes["symbols"])] if node.op == DEFINE_OP else dims)
        if own - seen:
            found[id(node)] = frozenset(own - seen)
            seen |= own
    return found


def fresh_symbols(graph: Graph) -> Callable[[str], Var]:
    """A source of symbols that ``graph`` does not mention: ``fresh("n")`` -> ``n``, ``n_1``, ..."""
    used = set(dim_symbols(graph_dims(graph)))

    def fresh(base: str) -> Var:
        base = "".join(c if c.isalnum() or c == "_" else "_" for c in base)
        base = base if base.isidentifier() else f"s_{base}"
        name, i = base, 0
        while name in used:
            i += 1
            name = f"{base}_{i}"
        used.add(name)
        return symbol(name)

    return fresh
