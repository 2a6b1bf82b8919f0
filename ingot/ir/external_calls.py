"""Calls of functions that a code generator of somebody else makes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from compiler_service.compiler.external.table import external_of
from compiler_service.compiler.graph_passes.calls.binding import callee, calls
from compiler_service.compiler.graph_passes.rewriting.nested import map_graphs
from compiler_service.compiler.tensor_expr.operators.sequential import EXTERNAL_OP
from ingot.ir.functions import Function, GraphFunction
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.graph.ir import INVOKE_OP, Attribute, Graph, Node, Value, fresh_names
from shared_ir.graph.text import print_graph


def codegen_of(node: Node) -> str:
    """The code generator that a call asks for; empty where the function is inlined."""
    name = node.attributes.get("codegen", "") if node.op == INVOKE_OP else ""
    return name if isinstance(name, str) else ""


def part_names(functions: Mapping[str, Function]) -> frozenset[str]:
    """Names of the functions that a call somewhere asks a code generator for."""
    graphs = (f.graph for f in functions.values() if isinstance(f, GraphFunction))
    return frozenset(callee(n) for graph in graphs for n in calls(graph) if codegen_of(n))


def with_parts(graph: Graph, functions: Mapping[str, Function]) -> Graph:
    """``graph`` with ``ingot.External`` in place of calls that ask for a code generator; constants of the parts become its own.

    Raises:
        IngotError: NOT_FOUND, there is none of that name; INVALID_ARGUMENT, it calls others, or has several results.
    """
    fresh = fresh_names(graph)
    return map_graphs(graph, lambda body, _: _with_parts(body, functions, fresh))


def _with_parts(graph: Graph, functions: Mapping[str, Function], fresh: Callable[[str], str]) -> Graph:
    if not any(codegen_of(n) for n in graph.nodes):
        return graph
    nodes: list[Node] = []
    constants = dict[Value, np.ndarray](graph.constants)
    for node in graph.nodes:
        if codegen_of(node):
            part = _part(functions[callee(node)], node)
            own = {replace(v, name=fresh(v.name)): a for v, a in part.constants.items()}
            constants |= own
            nodes.append(_external(node, part, tuple(own)))
        else:
            nodes.append(node)
    return graph.with_(nodes=tuple(nodes), constants=constants)


def _part(function: Function, node: Node) -> Graph:
    fits = isinstance(function, GraphFunction) and len(function.graph.outputs) == len(node.results) == 1
    if not isinstance(function, GraphFunction) or not fits or calls(function.graph):
        raise IngotError(
            ErrorCode.INVALID_ARGUMENT,
            f"the function {function.name!r} is no part for a code generator",
            node=str(node),
            expected="a graph function of one result, which calls no others",
            received=str(function)[:200],
        )
    return function.graph


def _external(node: Node, part: Graph, constants: tuple[Value, ...]) -> Node:
    codegen, (result,) = codegen_of(node), node.results
    open_graph = part.with_(inputs=(*part.inputs, *part.constants), constants={})
    attributes: dict[str, Attribute] = {
        "codegen": codegen,
        "version": external_of(codegen).version,
        "program": print_graph(open_graph),
        "constants": len(constants),
        "type": result.type,
    }
    return Node(EXTERNAL_OP, (*node.inputs, *constants), node.outputs, attributes, node.name or part.name)
