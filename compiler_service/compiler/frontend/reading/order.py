"""The nodes of a graph in an order in which every value is defined before it is used."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heapify, heappop, heappush

import onnx

from shared_ir.errors import ErrorCode, IngotError


def reads(node: onnx.NodeProto) -> list[str]:
    """Names that a node reads, those that its nested graphs take from outside included."""
    names = [n for n in node.input if n]
    for attribute in node.attribute:
        for graph in (*((attribute.g,) if attribute.HasField("g") else ()), *attribute.graphs):
            names.extend(free_names(graph))
    return list(dict.fromkeys(names))


def free_names(graph: onnx.GraphProto) -> list[str]:
    """Names that a graph reads but does not define."""
    defined = {i.name for i in graph.input} | {t.name for t in graph.initializer}
    defined |= {s.values.name for s in graph.sparse_initializer} | {o for n in graph.node for o in n.output}
    used = dict.fromkeys(name for node in graph.node for name in reads(node))
    used |= dict.fromkeys(o.name for o in graph.output)
    return [name for name in used if name not in defined]


def in_order(nodes: Sequence[onnx.NodeProto], is_defined: Callable[[str], bool]) -> list[onnx.NodeProto]:
    """``nodes`` sorted so that each comes after those it reads from; the given order where it already serves.

    Args:
        is_defined: whether a name is known outside: an input, a constant, a value of an enclosing graph.

    Raises:
        IngotError: INVALID_MODEL for a value defined twice, a value that nothing defines, or a cycle.
    """
    producer: dict[str, int] = {}
    for index, node in enumerate(nodes):
        for name in filter(None, node.output):
            if name in producer or is_defined(name):
                raise _invalid("a value is defined twice", node, name, "one definition of each name", "two")
            producer[name] = index
    needs = [_producers_needed(node, producer, is_defined) for node in nodes]
    if all(index > max(needed, default=-1) for index, needed in enumerate(needs)):
        return list(nodes)
    return _sorted(nodes, needs)


def _producers_needed(node: onnx.NodeProto, producer: dict[str, int], is_defined: Callable[[str], bool]) -> set[int]:
    needed = set()
    for name in reads(node):
        if name in producer:
            needed.add(producer[name])
        elif not is_defined(name):
            raise _invalid("a node reads a value that nothing defines", node, name, "a value of the graph", "none")
    return needed


def _sorted(nodes: Sequence[onnx.NodeProto], needs: list[set[int]]) -> list[onnx.NodeProto]:
    waiting = [len(n) for n in needs]
    readers: list[list[int]] = [[] for _ in nodes]
    for index, needed in enumerate(needs):
        for producer in needed:
            readers[producer].append(index)
    ready = [i for i, count in enumerate(waiting) if count == 0]
    heapify(ready)
    order: list[int] = []
    while ready:
        index = heappop(ready)
        order.append(index)
        for reader in readers[index]:
            waiting[reader] -= 1
            if waiting[reader] == 0:
                heappush(ready, reader)
    if len(order) < len(nodes):
        raise _cycle(nodes, needs, set(range(len(nodes))) - set(order))
    return [nodes[i] for i in order]


def _cycle(nodes: Sequence[onnx.NodeProto], needs: list[set[int]], left: set[int]) -> IngotError:
    """The error that names one cycle: follow needs inside what cannot be ordered until a node comes again."""
    positions: dict[int, int] = {}
    node = min(left)
    while node not in positions:
        positions[node] = len(positions)
        node = min(needs[node] & left)
    cycle = [n for n, position in positions.items() if position >= positions[node]][::-1]
    first = cycle.index(min(cycle))
    cycle = cycle[first:] + cycle[:first]
    names = " -> ".join(describe(nodes[i]) for i in [*cycle[:8], cycle[0]])
    return _invalid("the graph has a cycle", nodes[cycle[0]], "", "an acyclic graph", names)


def describe(node: onnx.NodeProto) -> str:
    """``name (Op)``, the first output standing in for a missing name."""
    return f"{node.name or next(filter(None, node.output), '(unnamed)')} ({node.op_type})"


def _invalid(message: str, node: onnx.NodeProto, tensor: str, expected: str, received: str) -> IngotError:
    return IngotError(
        ErrorCode.INVALID_MODEL,
        message,
        node=describe(node),
        tensor=tensor,
        expected=expected,
        received=received,
        remedy="Export the model again; this graph is not valid ONNX.",
    )
