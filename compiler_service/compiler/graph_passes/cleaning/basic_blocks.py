"""Basic-block form: each node in the innermost graph that holds all who read it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, TypeAlias

from compiler_service.compiler.graph_passes.cleaning.eliminate_common_subexpressions import RANDOM
from compiler_service.compiler.graph_passes.rewriting.facts import Facts, GraphFact
from compiler_service.compiler.graph_passes.rewriting.nested import Constants, map_graphs
from compiler_service.compiler.graph_passes.rewriting.pass_manager import Pass
from shared_ir.expr.dim import dim_symbols
from shared_ir.graph.ir import CALL_OP, CHECK_OP, DEFINE_OP, INVOKE_OP, Attribute, Graph, Node, Value, graph_free_values

_STAY = frozenset({CALL_OP, CHECK_OP, DEFINE_OP, INVOKE_OP, *RANDOM})
"""What ends the run, defines symbols or differs each time is done where it stands."""

_Place: TypeAlias = tuple[int, str] | None
"""A branch: the ``id`` of its ``If``, and the name of the attribute; None: the graph itself."""


@dataclass(frozen=True)
class BasicBlocks(Pass):
    """A node that one branch of an ``If`` alone reads moves there, and is computed in the runs that take the branch. Bodies that
    repeat stay as they are: what moved there would be computed again and again."""

    name: ClassVar[str] = "basic-blocks"
    level: ClassVar[int] = 1
    forbids: ClassVar[Facts] = frozenset({GraphFact.GROUPED})

    def run(self, graph: Graph) -> Graph:
        return map_graphs(graph, _sunk)


def _sunk(graph: Graph, _outer: Constants) -> Graph:
    places: dict[Value, set[_Place]] = {v: {None} for v in graph.outputs}
    sunk: dict[_Place, list[Node]] = {}
    left: list[Node] = []
    for node in reversed(graph.nodes):
        found = set[_Place]().union(*(places.get(v, set()) for v in node.results))
        (place,) = found if len(found) == 1 else (None,)
        if place is None or not _may_move(node):
            place = None
            left.append(node)
        else:
            sunk.setdefault(place, []).append(node)
        for value in node.operands:
            places.setdefault(value, set()).add(place)
        for key, body in node.attributes.items():
            for value in graph_free_values(body) if isinstance(body, Graph) else ():
                places.setdefault(value, set()).add((id(node), key) if node.op == "If" else None)
    if not sunk:
        return graph
    return graph.with_(nodes=tuple(_with_branches(n, sunk) for n in reversed(left)))


def _may_move(node: Node) -> bool:
    known = dim_symbols(d for v in node.operands for d in v.shape)
    return (
        node.op not in _STAY and not node.subgraphs and dim_symbols(d for v in node.results for d in v.shape) <= known
    )


def _with_branches(node: Node, sunk: dict[_Place, list[Node]]) -> Node:
    if node.op != "If" or not any((id(node), key) in sunk for key in node.attributes):
        return node
    attributes: dict[str, Attribute] = {}
    for key, body in node.attributes.items():
        moved = tuple(reversed(sunk.get((id(node), key), ())))
        attributes[key] = body.with_(nodes=(*moved, *body.nodes)) if isinstance(body, Graph) else body
    return replace(node, attributes=attributes)
