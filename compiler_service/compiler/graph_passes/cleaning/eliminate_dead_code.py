"""Remove nodes and constants that no output depends on. Operators have no side effects."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from compiler_service.compiler.graph_passes.rewriting.dead_code import eliminate_dead_code
from compiler_service.compiler.graph_passes.rewriting.pass_manager import Pass
from shared_ir.graph.ir import Graph


@dataclass(frozen=True)
class EliminateDeadCode(Pass):
    """Keeps what the outputs need; an unused optional output of a kept node becomes absent."""

    name: ClassVar[str] = "eliminate-dead-code"
    level: ClassVar[int] = 1

    def run(self, graph: Graph) -> Graph:
        return eliminate_dead_code(graph)
