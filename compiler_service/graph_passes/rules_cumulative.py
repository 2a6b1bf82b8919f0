"""Sums and products along an axis in one go over it, where the definition takes a triangle: each element the sum of all before it."""

from __future__ import annotations

from compiler_service.graph_passes.attributes import int_attribute
from compiler_service.graph_passes.operands import integer_operand
from compiler_service.graph_passes.rewrite import Replacement, Rule, Site, rule
from shared_ir.graph import Node

_SHORT = 8
"""A triangle over so few elements fuses with what is around it, and costs less than a launch."""


def _cumulative(node: Node, site: Site) -> Replacement:
    x, axes = node.operands[0], integer_operand(node, 1, site)
    if axes is None or len(axes) != 1 or site.array(x) is not None:
        return None
    (axis,) = axes
    extent = x.shape[axis]
    if isinstance(extent, int) and extent <= _SHORT:
        return None
    flags = {name: int_attribute(node, name) for name in ("exclusive", "reverse")}
    return site.node(
        "ingot.Cumulative", (x,), {"axis": axis % x.type.rank, "product": int(node.op == "CumProd"), **flags}
    )


CUMULATIVE_RULES: tuple[Rule, ...] = (rule("CumSum CumProd", _cumulative),)  # y[i] = y[i - 1] + x[i]
