"""Calls of graph functions replaced by the functions' nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from compiler_service.compiler.graph_passes.analysis.symbols import fresh_symbols, graph_dims
from compiler_service.compiler.graph_passes.calls.binding import FunctionType, bound_type, callee
from compiler_service.compiler.graph_passes.rewriting.nested import map_graphs
from shared_ir.expr import Expr, Var
from shared_ir.expr.dim import Dim, bind, dim_symbols
from shared_ir.graph.ir import INVOKE_OP, Attribute, Graph, Node, Value, fresh_names
from shared_ir.types import TensorType


def inline(graph: Graph, functions: Mapping[str, Graph]) -> Graph:
    """``graph`` with the nodes of ``functions``, which call none of each other, where it calls them; the same object where it does
    not. Values and symbols of the run get names of their own for each call.

    Raises:
        IngotError: TYPE_MISMATCH, a call does not fit the function.
    """
    names, symbols = fresh_names(graph), fresh_symbols(graph)
    return map_graphs(graph, lambda body, _: _inlined(body, functions, names, symbols))


def _inlined(
    graph: Graph, functions: Mapping[str, Graph], names: Callable[[str], str], symbols: Callable[[str], Var]
) -> Graph:
    nodes: list[Node] = []
    constants: dict[Value, np.ndarray] = dict(graph.constants)
    for node in graph.nodes:
        function = functions.get(callee(node)) if node.op == INVOKE_OP else None
        if function is None:
            nodes.append(node)
            continue
        copy = _Copy.of_call(node, function, names, symbols)
        nodes += [*(copy.node(n) for n in function.nodes), *copy.outputs(node, function)]
        constants |= {copy.value(v): a for v, a in function.constants.items()}
    if len(nodes) == len(graph.nodes) and all(a is b for a, b in zip(nodes, graph.nodes, strict=True)):
        return graph
    return graph.with_(nodes=tuple(nodes), constants=constants)


@dataclass
class _Copy:
    """A copy of a function's body: ``values`` are those of the caller that stand for its own, where they are known yet."""

    names: Callable[[str], str]
    symbols: Mapping[str, Dim]
    values: dict[Value, Value] = field(default_factory=dict)

    @classmethod
    def of_call(cls, node: Node, function: Graph, names: Callable[[str], str], symbols: Callable[[str], Var]) -> _Copy:
        bound = FunctionType.of(function).bound_by(node)
        of_the_run = sorted(dim_symbols(graph_dims(function)) - bound.keys())
        copy = cls(names, bound | {name: symbols(name) for name in of_the_run})
        copy.values.update(zip(function.inputs, node.operands, strict=True))
        for own, result in zip(function.outputs, node.outputs, strict=False):
            if own in function.producers and result is not None:
                copy.values.setdefault(own, result)
        return copy

    def value(self, value: Value) -> Value:
        found = self.values.get(value)
        if found is None:
            found = self.values[value] = Value(self.names(value.name), bound_type(value.type, self.symbols))
        return found

    def node(self, node: Node) -> Node:
        return replace(
            node,
            inputs=tuple(None if v is None else self.value(v) for v in node.inputs),
            outputs=tuple(None if v is None else self.value(v) for v in node.outputs),
            attributes={k: self.attribute(a) for k, a in node.attributes.items()},
        )

    def attribute(self, attribute: Attribute) -> Attribute:
        match attribute:
            case Expr():
                return bind(attribute, self.symbols)
            case TensorType():
                return bound_type(attribute, self.symbols)
            case Graph():
                return self.graph(attribute)
            case tuple():
                return tuple(self.attribute(a) for a in attribute)
        return attribute

    def graph(self, graph: Graph) -> Graph:
        inputs = tuple(map(self.value, graph.inputs))
        constants = {self.value(v): a for v, a in graph.constants.items()}
        nodes = tuple(map(self.node, graph.nodes))
        return Graph(graph.name, inputs, tuple(map(self.value, graph.outputs)), nodes, constants)

    def outputs(self, node: Node, function: Graph) -> tuple[Node, ...]:
        """What gives the results their names where no node of the function does: those that are inputs, constants, or given twice."""
        pairs = zip(function.outputs, node.outputs, strict=False)
        wanted = [(self.value(own), result) for own, result in pairs if result is not None]
        return tuple(Node("Identity", (own,), (result,), name=node.name) for own, result in wanted if own != result)
