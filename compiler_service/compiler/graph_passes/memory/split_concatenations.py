"""A concatenation of many operands, where it is a kernel, becomes one of concatenations.

A kernel asks for every element which operand it comes from, and vector code loads from all of them: the code grows with the
operands, and the time that LLVM takes for it with their square. Writing a part twice costs less than loading everything many times.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import ClassVar

from compiler_service.compiler.graph_passes.rewriting.attributes import int_attribute
from compiler_service.compiler.graph_passes.rewriting.facts import Facts, GraphFact
from compiler_service.compiler.graph_passes.rewriting.limits import at_least
from compiler_service.compiler.graph_passes.rewriting.nested import map_graphs
from compiler_service.compiler.graph_passes.rewriting.pass_manager import Pass
from shared_ir.expr.dim import sum_of
from shared_ir.graph.ir import GROUP_OP, Graph, Node, Value, fresh_names
from shared_ir.types import TensorType


@dataclass(frozen=True)
class SplitConcatenations(Pass):
    """Comes behind :class:`PlaceParts`, whose concatenations run no kernel however many operands they have."""

    name: ClassVar[str] = "split-concatenations"
    level: ClassVar[int] = 0
    needs: ClassVar[Facts] = frozenset({GraphFact.GROUPED, GraphFact.PARTS_PLACED})
    gives: ClassVar[Facts] = frozenset({GraphFact.CONCATENATIONS_SPLIT})
    forbids: ClassVar[Facts] = frozenset({GraphFact.ROWS_PADDED})

    most: int = field(default=32, metadata=at_least(2))

    def run(self, graph: Graph) -> Graph:
        if not any(self._is_wide(n) for n in graph.nodes) and not any(n.op != GROUP_OP for n in graph.nodes):
            return graph
        fresh = fresh_names(graph)
        return map_graphs(graph, lambda nested, _: self._split(nested, fresh))

    def _split(self, graph: Graph, fresh: Callable[[str], str]) -> Graph:
        if not any(self._is_wide(n) for n in graph.nodes):
            return graph
        nodes = [part for n in graph.nodes for part in (self._parts(n, fresh) if self._is_wide(n) else (n,))]
        return graph.with_(nodes=tuple(nodes))

    def _is_wide(self, group: Node) -> bool:
        if group.op != GROUP_OP or int_attribute(group, "parts") or int_attribute(group, "view"):
            return False
        (body,) = group.subgraphs
        return len(body.nodes) == 1 and body.nodes[0].op == "Concat" and len(body.nodes[0].operands) > self.most

    def _parts(self, group: Node, fresh: Callable[[str], str]) -> list[Node]:
        (body,) = group.subgraphs
        (concat,) = body.nodes
        (result,) = concat.results
        axis = int_attribute(concat, "axis") % result.type.rank
        found: list[Node] = []
        operands = concat.operands
        while len(operands) > self.most:
            joined: list[Value] = []
            for first in range(0, len(operands), self.most):
                own = operands[first : first + self.most]
                extent = sum_of(v.shape[axis] for v in own)
                shape = (*result.shape[:axis], extent, *result.shape[axis + 1 :])
                joined.append(Value(fresh(f"{result.name}_part"), TensorType(result.dtype, shape)))
                found.append(_group(group, body, own, joined[-1]))
            operands = tuple(joined)
        return [*found, _group(group, body, operands, result)]


def _group(group: Node, body: Graph, operands: tuple[Value, ...], result: Value) -> Node:
    """The group that concatenates some operands of ``body``, or parts of its result."""
    (concat,) = body.nodes
    constants = {v: body.constants[v] for v in operands if v in body.constants}
    inputs = tuple(dict.fromkeys(v for v in operands if v not in constants))
    own = Graph(body.name, inputs, (result,), (replace(concat, inputs=operands, outputs=(result,)),), constants)
    return replace(group, inputs=inputs, outputs=(result,), attributes={**group.attributes, "body": own})
