"""Rules on quantised values: what is dequantized and quantized again in the same steps has not changed."""

from __future__ import annotations

import numpy as np

from compiler_service.graph_passes.rewrite import Replacement, Rule, Site, rule
from shared_ir.graph import Node, Value

_MOST_BITS = 16
"""Differences of integers of so many bits are exact in float32, so ``round((x - z) * s / s) + z`` is ``x``."""


def _same_steps(node: Node, site: Site) -> Replacement:
    """``QuantizeLinear(DequantizeLinear(x, s, z), s, z)``"""
    given = site.producer(node.operands[0], "DequantizeLinear")
    if given is None:
        return None
    x = given.operands[0]
    if x.type != node.results[0].type or x.dtype.bits > _MOST_BITS or not x.dtype.is_integer:
        return None
    keys = ("axis", "block_size", "output_dtype", "precision")
    if any(given.attributes.get(k) != node.attributes.get(k) for k in keys[:2]):
        return None
    if any(n.attributes.get(k) for n in (given, node) for k in keys[2:]):
        return None
    pairs = zip(_parameters(given), _parameters(node), strict=True)
    return x if all(_equal(a, b, site) for a, b in pairs) else None


def _parameters(node: Node) -> tuple[Value | None, Value | None]:
    operands = (*node.inputs, None)
    return operands[1], operands[2]


def _equal(a: Value | None, b: Value | None, site: Site) -> bool:
    if a == b:
        return True
    left, right = site.array(a), site.array(b)
    return left is not None and right is not None and left.dtype == right.dtype and np.array_equal(left, right)


QUANTIZED_RULES: tuple[Rule, ...] = (
    rule("QuantizeLinear", _same_steps),  # Q(DQ(x)) -> x
)
