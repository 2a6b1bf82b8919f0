"""Operators that are graphs of others at every level: recurrent ones, and MaxUnpool, whose elements may go to other images."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from compiler_service.compiler.graph_passes.algebra.sequential import UNPOOLED
from compiler_service.compiler.graph_passes.analysis.symbols import fresh_symbols
from compiler_service.compiler.graph_passes.normal_form.expand_recurrent import recurrent_rules
from compiler_service.compiler.graph_passes.rewriting.facts import Facts, GraphFact
from compiler_service.compiler.graph_passes.rewriting.pass_manager import Pass
from compiler_service.compiler.graph_passes.rewriting.rewrite import rewrite
from shared_ir.graph.ir import Graph, walk_graphs


@dataclass(frozen=True)
class ExpandOperators(Pass):
    name: ClassVar[str] = "expand-operators"
    level: ClassVar[int] = 0
    gives: ClassVar[Facts] = frozenset({GraphFact.OPERATORS_EXPANDED})
    forbids: ClassVar[Facts] = frozenset({GraphFact.CHANNELS_LAST, GraphFact.GROUPED})

    def run(self, graph: Graph) -> Graph:
        rules = (*recurrent_rules(fresh_symbols(graph)), UNPOOLED)
        expanded = {op for r in rules for op in r.ops}
        if not any(n.op in expanded for g in walk_graphs(graph) for n in g.nodes):
            return graph
        return rewrite(graph, rules)
