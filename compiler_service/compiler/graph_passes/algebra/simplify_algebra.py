"""Algebraic simplification: the rule tables of arithmetic, data movement, windows and spelled-out operators, applied together."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from compiler_service.compiler.graph_passes.algebra.arithmetic import arithmetic_rules
from compiler_service.compiler.graph_passes.algebra.assignments import ASSIGNMENT_RULES
from compiler_service.compiler.graph_passes.algebra.broadcast import BROADCAST_RULES
from compiler_service.compiler.graph_passes.algebra.movement import MOVEMENT_RULES, SPLIT_RULES
from compiler_service.compiler.graph_passes.algebra.patterns import PATTERN_RULES
from compiler_service.compiler.graph_passes.algebra.positions import POSITION_RULES
from compiler_service.compiler.graph_passes.algebra.product import product_rules
from compiler_service.compiler.graph_passes.algebra.sequential import SEQUENTIAL_RULES
from compiler_service.compiler.graph_passes.algebra.windows import WINDOW_RULES
from compiler_service.compiler.graph_passes.precision.integer_products import integer_product_rules
from compiler_service.compiler.graph_passes.precision.kept_weights import KEPT_WEIGHT_RULES
from compiler_service.compiler.graph_passes.precision.quantized import quantized_rules
from compiler_service.compiler.graph_passes.rewriting.facts import Facts, GraphFact
from compiler_service.compiler.graph_passes.rewriting.limits import among
from compiler_service.compiler.graph_passes.rewriting.pass_manager import Pass
from compiler_service.compiler.graph_passes.rewriting.rewrite import rewrite
from shared_ir.dtype import DType
from shared_ir.graph.ir import Graph


@dataclass(frozen=True)
class SimplifyAlgebra(Pass):
    """Applies the rules until none applies.

    ``approximate`` admits rules that change the last bit of a float; ``split`` turns ``Split`` into slices, which fuse;
    ``dots``: products of data of this type are left to the target, which has instructions for them.
    """

    name: ClassVar[str] = "simplify-algebra"
    level: ClassVar[int] = 2
    gives: ClassVar[Facts] = frozenset({GraphFact.ALGEBRA_SIMPLIFIED})
    forbids: ClassVar[Facts] = frozenset({GraphFact.GROUPED})

    approximate: bool = True
    split: bool = True
    dots: DType | None = field(default=None, metadata=among(DType.UINT8, DType.INT8, None))

    def run(self, graph: Graph) -> Graph:
        rules = (
            *arithmetic_rules(self.approximate),
            *BROADCAST_RULES,
            *MOVEMENT_RULES,
            *WINDOW_RULES,
            *PATTERN_RULES,
            *POSITION_RULES,
            *ASSIGNMENT_RULES,
            *SEQUENTIAL_RULES,
            *KEPT_WEIGHT_RULES,
            *quantized_rules(self.approximate),
            *integer_product_rules(self.dots),
            *product_rules(self.approximate),
        )
        return rewrite(graph, (*rules, *SPLIT_RULES) if self.split else rules)
