"""Regions: parts of a graph for another code generator, marked and joined.

A region is an ``ingot.Group`` with the attribute ``codegen``: its body reads the operands of the node and its own constants, and has
one result.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from compiler_service.compiler.graph_passes.parts.patterns import Match, NodePattern, PartSite
from compiler_service.compiler.graph_passes.rewriting.nested import map_graphs
from shared_ir.expr import Var
from shared_ir.expr.dim import Dim, dim_symbols
from shared_ir.graph.ir import GROUP_OP, Graph, Node, Value, free_values


def annotate(graph: Graph, codegen: str, patterns: Sequence[NodePattern]) -> Graph:
    """``graph``, and those nested in it, with a region for everything that one of ``patterns`` fits, from the outputs up; the same
    object where none does.

    Extents of a region's operands are numbers or symbols, and those of its result are made of these: a code generator knows no others.
    """
    return map_graphs(graph, lambda body, _: _annotated(body, codegen, patterns))


def region_of(node: Node) -> str:
    """The code generator that ``node`` is a region for; empty where it is none."""
    name = node.attributes.get("codegen", "") if node.op == GROUP_OP else ""
    return name if isinstance(name, str) else ""


def merge(graph: Graph) -> Graph:
    """``graph``, and those nested in it, with regions of one code generator joined where one alone reads the other's result."""
    return map_graphs(graph, lambda body, _: _merged(body))


def unmark(graph: Graph) -> Graph:
    """``graph``, and those nested in it, with the nodes of regions in their place: nobody has made a part of them."""
    return map_graphs(graph, lambda body, _: _unmarked(body))


def _unmarked(graph: Graph) -> Graph:
    if not any(region_of(n) for n in graph.nodes):
        return graph
    nodes = tuple(m for n in graph.nodes for m in (n.subgraphs[0].nodes if region_of(n) else (n,)))
    constants = {v: a for n in graph.nodes if region_of(n) for v, a in n.subgraphs[0].constants.items()}
    return graph.with_(nodes=nodes, constants={**graph.constants, **constants})


def _annotated(graph: Graph, codegen: str, patterns: Sequence[NodePattern]) -> Graph:
    site, regions = PartSite(graph), dict[Value, Node]()
    for node in reversed(graph.nodes):
        found = _first(node, site, patterns)
        if found is not None:
            site.taken.update(n.results[0] for n in found.nodes)
            regions[found.result] = _region(codegen, found.nodes, graph)
    return _replaced(graph, site.taken, regions) if regions else graph


def _first(node: Node, site: PartSite, patterns: Sequence[NodePattern]) -> Match | None:
    if region_of(node) or not site.is_free(node):
        return None
    matches = (p.match(node, site) for p in patterns)
    return next((m for m in matches if m is not None and _tells_extents(m, site.graph)), None)


def _tells_extents(match: Match, graph: Graph) -> bool:
    operands = [v for v in _read(match.nodes) if v not in graph.constants]
    dims: list[Dim] = [d for v in operands for d in v.shape]
    told = {d.name for d in dims if isinstance(d, Var)}
    asked = dim_symbols([d for n in match.nodes for v in n.results for d in v.shape])
    return bool(operands) and all(isinstance(d, int | Var) for d in dims) and asked <= told


def _replaced(graph: Graph, gone: set[Value], regions: dict[Value, Node]) -> Graph:
    nodes: list[Node] = []
    for node in graph.nodes:
        result = node.results[0] if len(node.results) == 1 else None
        if result in regions:
            nodes.append(regions[result])
        elif result not in gone:
            nodes.append(node)
    read = {v for n in nodes for v in (*n.operands, *free_values(n))} | set(graph.outputs)
    taken = {v for region in regions.values() for v in region.subgraphs[0].constants}
    constants = {v: a for v, a in graph.constants.items() if v in read or v not in taken}
    return graph.with_(nodes=tuple(nodes), constants=constants)


def _read(nodes: Iterable[Node]) -> tuple[Value, ...]:
    """What ``nodes`` read and none of them gives, in order."""
    nodes = tuple(nodes)
    made = {v for n in nodes for v in n.results}
    return tuple(dict.fromkeys(v for n in nodes for v in n.operands if v not in made))


def _region(codegen: str, nodes: Sequence[Node], graph: Graph) -> Node:
    """The region of ``nodes``, in the order of ``graph``, of which the last gives the result."""
    constants = {v: graph.constants[v] for v in _read(nodes) if v in graph.constants}
    operands = tuple(v for v in _read(nodes) if v not in constants)
    result = nodes[-1].results[0]
    body = Graph(codegen, operands, (result,), tuple(nodes), constants)
    names = tuple(n.name for n in nodes if n.name)
    return Node(GROUP_OP, operands, (result,), {"body": body, "codegen": codegen, "nodes": names}, nodes[-1].name)


def _merged(graph: Graph) -> Graph:
    """From the outputs up, so that a region meets those that read it joined already; ``readers`` are numbers of nodes, of joined
    regions that of the lowest, and -1 for outputs."""
    readers = defaultdict[Value, set[int]](set)
    for number, node in enumerate(graph.nodes):
        for value in (*node.operands, *free_values(node)):
            readers[value].add(number)
    for value in graph.outputs:
        readers[value].add(-1)
    members: dict[int, list[int]] = {}
    for number, node in reversed(list(enumerate(graph.nodes))):
        name = region_of(node)
        below = readers[node.results[0]] if name else set()
        lowest = next(iter(below)) if len(below) == 1 else -1
        if lowest < 0 or region_of(graph.nodes[lowest]) != name:
            continue
        members.setdefault(lowest, [lowest]).append(number)
        for value in node.operands:
            readers[value] = readers[value] - {number} | {lowest}
    gone = {n for lowest, numbers in members.items() for n in numbers if n != lowest}
    joined = {lowest: _joined([graph.nodes[n] for n in sorted(numbers)]) for lowest, numbers in members.items()}
    nodes = tuple(joined.get(i, n) for i, n in enumerate(graph.nodes) if i not in gone)
    return graph.with_(nodes=nodes) if gone else graph


def _joined(regions: Sequence[Node]) -> Node:
    """One region for ``regions``, of which the last gives the result."""
    bodies = [region.subgraphs[0] for region in regions]
    inside = {region.results[0] for region in regions[:-1]}
    operands = tuple(dict.fromkeys(v for region in regions for v in region.operands if v not in inside))
    nodes = tuple(n for body in bodies for n in body.nodes)
    constants = {v: a for body in bodies for v, a in body.constants.items()}
    last = regions[-1]
    body = bodies[-1].with_(inputs=operands, nodes=nodes, constants=constants)
    names = tuple(name for region in regions for name in _names(region))
    return Node(GROUP_OP, operands, last.outputs, {**last.attributes, "body": body, "nodes": names}, last.name)


def _names(region: Node) -> tuple[str, ...]:
    names = region.attributes["nodes"]
    assert isinstance(names, tuple)
    return tuple(str(n) for n in names)
