"""Rules on quantised values: what is dequantized and quantized again in the same steps has not changed; the division by the
steps of a scaled product goes into its scale."""

from __future__ import annotations

import numpy as np

from compiler_service.compiler.graph_passes.rewriting.attributes import int_attribute
from compiler_service.compiler.graph_passes.rewriting.operands import with_constant
from compiler_service.compiler.graph_passes.rewriting.rewrite import Replacement, RewriteRule, Site, rule
from shared_ir.dtype import DType
from shared_ir.graph.ir import Node, Value

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


def _merged_steps(node: Node, site: Site) -> Replacement:
    """``QuantizeLinear(x * c, s, z) -> QuantizeLinear(x * (c / s), 1, z)`` for integers x, through ``+ b`` and ``Relu``"""
    x, scale, *zero = node.operands
    step = site.exact(scale)
    if step is None or step.size != 1 or not step.flat[0] > 0 or step.flat[0] == 1 or scale.dtype is not DType.FLOAT32:
        return None
    moved = _divided(x, step.reshape(()), site)
    if moved is None or node.attributes.get("block_size"):
        return None
    one = site.constant(np.ones(step.shape, np.float32), "one")
    return site.write("QuantizeLinear", (moved, one, *zero), node.attributes, title=node.name)


def _divided(x: Value, step: np.ndarray, site: Site) -> Value | None:
    """``x / step`` where that costs nothing, since ``x`` is scaled by a constant."""
    node = site.producer(x, "Mul", "Add", "Relu")
    if node is None or not site.only_user(x) or x.dtype is not DType.FLOAT32:
        return None
    if node.op == "Relu":
        inner = _divided(node.operands[0], step, site)
        return None if inner is None else site.node("Relu", inner)
    found = with_constant(node, site, exact=True)
    if found is None:
        return None
    inner = found[0]
    if node.op == "Add":
        less = _divided(inner, step, site)
        return None if less is None else site.node("Add", less, site.rounded(found[1] / step, x.dtype, "shift"))
    cast = site.producer(inner, "Cast")
    if cast is None or cast.operands[0].dtype is not DType.INT32:
        return None
    return site.node("Mul", inner, site.rounded(found[1] / step, x.dtype, "factor"))


def _still_integral(node: Node, site: Site) -> Replacement:
    """Floats that are integers are so without being held as such."""
    given = site.producer(node.operands[0], "Cast")
    if given is None or not int_attribute(given, "integral") or not node.results[0].dtype.is_float:
        return None
    return site.write("Cast", (given.operands[0],), node.attributes, title=node.name)


def quantized_rules(approximate: bool) -> tuple[RewriteRule, ...]:
    """The table; ``approximate`` admits rows that change the last bit of a float."""
    return (
        rule("QuantizeLinear", _same_steps),  # Q(DQ(x)) -> x
        rule("Cast", _still_integral),  # float(int32(x)) -> float(x) where x is integral
        *((rule("QuantizeLinear", _merged_steps),) if approximate else ()),  # Q(x * c, s) -> Q(x * (c / s), 1)
    )
