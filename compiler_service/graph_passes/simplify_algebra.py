"""Algebraic simplification: the rule tables of arithmetic, data movement, windows and spelled-out operators, applied together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from compiler_service.graph_passes.pass_manager import Pass
from compiler_service.graph_passes.rewrite import rewrite
from compiler_service.graph_passes.rules_arithmetic import arithmetic_rules
from compiler_service.graph_passes.rules_assignments import ASSIGNMENT_RULES
from compiler_service.graph_passes.rules_broadcast import BROADCAST_RULES
from compiler_service.graph_passes.rules_integer_products import integer_product_rules
from compiler_service.graph_passes.rules_kept_weights import KEPT_WEIGHT_RULES
from compiler_service.graph_passes.rules_movement import MOVEMENT_RULES, SPLIT_RULES
from compiler_service.graph_passes.rules_patterns import PATTERN_RULES
from compiler_service.graph_passes.rules_positions import POSITION_RULES
from compiler_service.graph_passes.rules_product import product_rules
from compiler_service.graph_passes.rules_quantized import quantized_rules
from compiler_service.graph_passes.rules_sequential import SEQUENTIAL_RULES
from compiler_service.graph_passes.rules_windows import WINDOW_RULES
from shared_ir.dtype import DType
from shared_ir.graph import Graph


@dataclass(frozen=True)
class SimplifyAlgebra(Pass):
    """Applies the rules until none applies.

    ``approximate`` admits rules that change the last bit of a float; ``split`` turns ``Split`` into slices, which fuse;
    ``dots``: products of data of this type are left to the target, which has instructions for them.
    """

    name: ClassVar[str] = "simplify-algebra"
    level: ClassVar[int] = 2

    approximate: bool = True
    split: bool = True
    dots: DType | None = None

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
