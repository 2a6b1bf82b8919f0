"""Which values share memory: a view group's output is its input under another shape, a Define's is its input; a view of several
inputs lies where these do, side by side."""

from __future__ import annotations

from collections.abc import Mapping

from shared_ir.graph.ir import DEFINE_OP, GROUP_OP, Graph, Node, Value


def is_view(node: Node) -> bool:
    """Whether ``node`` moves no byte: its output aliases its first input."""
    return node.op == DEFINE_OP or (node.op == GROUP_OP and bool(node.attributes.get("view", False)))


def is_joined(node: Node) -> bool:
    """Whether ``node`` is a concatenation whose operands are made where they belong in its result (see :mod:`parts`)."""
    return node.op == GROUP_OP and bool(node.attributes.get("parts", False))


def is_empty(value: Value) -> bool:
    """Whether ``value`` has no element in any run, so that nothing computes it."""
    return 0 in value.shape


def runs_no_kernel(node: Node) -> bool:
    """Whether no kernel runs for ``node``."""
    return is_view(node) or is_joined(node)


def memory_roots(graph: Graph) -> Mapping[Value, Value]:
    """For every value of ``graph``, the value that defines its memory: itself, unless it is a view. One of the enclosing graphs is its
    own root here."""
    roots: dict[Value, Value] = {v: v for v in (*graph.inputs, *graph.constants)}
    for node in graph.nodes:
        for value in node.results:
            source = node.operands[0] if is_view(node) else value
            roots[value] = roots.get(source, source)
    return roots
