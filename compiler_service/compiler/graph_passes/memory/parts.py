"""Values that are made where they belong inside a larger one: the operands of a concatenation that runs no kernel.

A group with the attribute ``parts`` is a concatenation whose operands lie in the memory of its result, each in its place. Along an
axis that others precede (channels, where they come last) such a place has gaps: its strides are those of the whole.

A group with the attribute ``padding`` leaves so many elements free after each row of its result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from compiler_service.compiler.graph_passes.analysis.aliases import is_joined, is_view, memory_roots
from compiler_service.compiler.graph_passes.rewriting.attributes import int_attribute
from compiler_service.compiler.tensor_expr.strides import Strides, padded, reshaped, row_major, with_gaps
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.expr import lift
from shared_ir.expr.dim import Dim, product
from shared_ir.expr.simplify import simplify
from shared_ir.graph.ir import GROUP_OP, Graph, Node, Value


@dataclass(frozen=True, slots=True)
class StridedPart:
    """The first element of a value is number ``offset`` of the memory of ``whole``; its elements lie ``strides`` apart."""

    whole: Value
    offset: Dim
    strides: Strides


def find_parts(graph: Graph) -> Mapping[Value, StridedPart]:
    """The roots of memory of ``graph`` that lie in a larger value, by the concatenation that they are operands of.

    Raises:
        IngotError: COMPILER_FAULT, a part has no place in its whole.
    """
    joined = [n for n in graph.nodes if is_joined(n)]
    if not joined:
        return {}
    roots = memory_roots(graph)
    found: dict[Value, StridedPart] = {}
    for node in reversed(joined):
        (whole,) = node.results
        strides = found[whole].strides if whole in found else own_strides(node)
        for operand, offset in zip(node.operands, offsets(node.operands, _axis(node), strides), strict=True):
            root = roots[operand]
            own = reshaped(operand.shape, strides, root.shape)
            if own is None or root in found:
                raise IngotError(ErrorCode.COMPILER_FAULT, f"{operand} has no place in {whole}", node=str(node))
            found[root] = StridedPart(whole, offset, own)
    return found


def offsets(operands: Sequence[Value], axis: int, strides: Strides) -> tuple[Dim, ...]:
    """Of each operand of a concatenation, its first element in the result, whose strides are given."""
    found: list[Dim] = []
    start: Dim = 0
    for operand in operands:
        found.append(product((start, strides[axis])))
        start = start + operand.shape[axis]
    return tuple(found)


def _axis(joined: Node) -> int:
    (body,) = joined.subgraphs
    (concat,) = body.nodes
    return int_attribute(concat, "axis") % joined.results[0].type.rank


def own_strides(group: Node) -> Strides:
    """The strides of the result of ``group`` where it is no part of a larger one."""
    (result,) = group.results
    padding = int_attribute(group, "padding")
    return padded(result.shape, padding) if padding else row_major(result.shape)


def find_strides(graph: Graph) -> Mapping[Value, Strides]:
    """The strides of every value of ``graph`` that has gaps in memory, views included."""
    found = {v: p.strides for v, p in find_parts(graph).items()}
    for node in graph.nodes:
        if int_attribute(node, "padding"):
            found[node.results[0]] = own_strides(node)
        elif is_view(node) and node.operands[0] in found:
            strides = seen_through(node, found[node.operands[0]])
            if strides is not None:
                found[node.results[0]] = strides
    return {v: s for v, s in found.items() if with_gaps(v.shape, s) is not None}


def seen_through(view: Node, strides: Strides) -> Strides | None:
    """The strides of the result of a view whose operand has ``strides``; ``None`` where none say where its elements are."""
    source, (result,) = view.operands[0], view.results
    if len(view.operands) > 1:  # parts side by side
        return strides
    return reshaped(source.shape, strides, result.shape)


def readers(graph: Graph, value: Value, strides: Strides) -> tuple[Node, ...] | None:
    """The groups that read ``value``, through views too, if its elements lie ``strides`` apart; None where something reads it that
    knows no strides, or through a view that none express. Without gaps anything may read it."""
    consumers = graph.consumers.get(value, ())
    if with_gaps(value.shape, strides) is None:
        return tuple(n for n in consumers if n.op == GROUP_OP)
    if value in graph.outputs or any(n.op != GROUP_OP for n in consumers):
        return None
    found: list[Node] = []
    for node in consumers:
        if not is_view(node):
            found.append(node)
            continue
        through = seen_through(node, strides)
        further = None if through is None else readers(graph, node.results[0], through)
        if further is None:
            return None
        found += further
    return tuple(found)


def side_by_side(operands: Sequence[Value], parts: Mapping[Value, StridedPart], axis: int) -> bool:
    """Whether ``operands`` lie in one whole, each where the one before it ends along ``axis``."""
    found = [parts.get(v) for v in operands]
    first, expected = found[0], lift(0)
    for operand, part in zip(operands, found, strict=True):
        if first is None or part is None or part.whole != first.whole:
            return False
        if _differ(operand, part.strides, first.strides) or simplify(
            lift(part.offset) - first.offset - expected
        ) != lift(0):
            return False
        expected = expected + product((operand.shape[axis], first.strides[axis]))
    return True


def _differ(value: Value, strides: Strides, others: Strides) -> bool:
    return any(d != 1 and a != b for d, a, b in zip(value.shape, strides, others, strict=True))
