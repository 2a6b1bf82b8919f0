"""Channels-last layout: convolutions and pools work on NHWC, and so does everything between them.

Every operator is rebuilt in the layout in which its operands come. Transposes are only remembered; one is built where an
operator insists on a layout that its operand does not have: at graph inputs and outputs in NCHW, and at reshapes that
tear an axis apart.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from compiler_service.compiler.graph_passes.algebra.movement import MOVEMENT_RULES
from compiler_service.compiler.graph_passes.analysis.classify import OperatorKind, classify
from compiler_service.compiler.graph_passes.analysis.known import known_values
from compiler_service.compiler.graph_passes.layout.rules import ANCHORS, HANDLERS, elementwise, plain
from compiler_service.compiler.graph_passes.layout.state import LayoutState
from compiler_service.compiler.graph_passes.rewriting.builder import Builder
from compiler_service.compiler.graph_passes.rewriting.dead_code import eliminate_dead_code
from compiler_service.compiler.graph_passes.rewriting.facts import Facts, GraphFact
from compiler_service.compiler.graph_passes.rewriting.nested import Constants, map_graphs
from compiler_service.compiler.graph_passes.rewriting.pass_manager import Pass
from compiler_service.compiler.graph_passes.rewriting.rewrite import absorb_output_identities, rewrite
from shared_ir.graph.ir import Graph, Node, free_values, fresh_names


@dataclass(frozen=True)
class ChooseLayout(Pass):
    """Graphs without a convolution or pool are left alone."""

    name: ClassVar[str] = "choose-layout"
    level: ClassVar[int] = 3
    needs: ClassVar[Facts] = frozenset({GraphFact.SHAPES_FOLDED, GraphFact.ALGEBRA_SIMPLIFIED})
    gives: ClassVar[Facts] = frozenset({GraphFact.CHANNELS_LAST})
    forbids: ClassVar[Facts] = frozenset({GraphFact.GROUPED})

    def run(self, graph: Graph) -> Graph:
        fresh = fresh_names(graph)
        chosen = map_graphs(graph, lambda body, outer: _choose(body, outer, fresh))
        return chosen if chosen is graph else rewrite(chosen, MOVEMENT_RULES)


def _choose(graph: Graph, outer: Constants, fresh: Callable[[str], str]) -> Graph:
    if not any(n.op in ANCHORS and "layout" not in n.attributes for n in graph.nodes):
        return graph
    builder = Builder(fresh, {**outer, **graph.constants})
    state = LayoutState(builder, known_values(graph, outer))
    for node in graph.nodes:
        _rebuild(node, state)
    for value in graph.outputs:
        state.pin(value)
    constants = {**graph.constants, **builder.added}
    chosen = eliminate_dead_code(graph.with_(nodes=tuple(builder.nodes), constants=constants))
    return absorb_output_identities(chosen)


def _rebuild(node: Node, state: LayoutState) -> None:
    for value in free_values(node):
        state.pin(value)
    handler = HANDLERS.get(node.op)
    if handler is None and not node.subgraphs and _has_moved_operand(node, state):
        handler = elementwise if classify(node, state.known).kind is OperatorKind.ELEMENTWISE else None
    if "layout" in node.attributes or handler is None or not handler(node, state):
        plain(node, state)


def _has_moved_operand(node: Node, state: LayoutState) -> bool:
    return any(state.native(v) != tuple(range(v.type.rank)) for v in node.operands)
