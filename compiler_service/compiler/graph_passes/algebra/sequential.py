"""What is computed in order where the definition asks every element about all others: each row's loop function takes as many steps
as there are elements, the definition as many as there are pairs of them."""

from __future__ import annotations

import numpy as np

from compiler_service.compiler.graph_passes.rewriting.attributes import int_attribute, text_attribute
from compiler_service.compiler.graph_passes.rewriting.operands import integer_operand
from compiler_service.compiler.graph_passes.rewriting.rewrite import Replacement, RewriteRule, Site, rule
from shared_ir.arrays import storage_dtype
from shared_ir.dtype import DType
from shared_ir.expr.dim import Dim, product
from shared_ir.graph.ir import Node

_FEW_ELEMENTS = 8
"""Pairs with so few elements fuse with what is around them, and cost less than a launch."""


def _cumulative(node: Node, site: Site) -> Replacement:
    x, axes = node.operands[0], integer_operand(node, 1, site)
    if axes is None or len(axes) != 1 or site.array(x) is not None:
        return None
    axis = axes[0] % x.type.rank
    if _is_few(x.shape[axis]):
        return None
    flags = {name: int_attribute(node, name) for name in ("exclusive", "reverse")}
    return site.write("ingot.Cumulative", (x,), {"axis": axis, "product": int(node.op == "CumProd"), **flags})


def _scatter_elements(node: Node, site: Site) -> Replacement:
    data, indices = node.operands[:2]
    axis = int_attribute(node, "axis") % data.type.rank
    if data.dtype is DType.STRING or _is_few(indices.shape[axis]):
        return None
    return site.node("ingot.Scattered", *node.operands, axis=axis, reduction=text_attribute(node, "reduction", "none"))


def _scatter_slices(node: Node, site: Site) -> Replacement:
    data, indices = node.operands[:2]
    *over, depth = indices.shape
    if data.dtype is DType.STRING or not isinstance(depth, int) or _is_few(product(over)):
        return None
    return site.node("ingot.Scattered", *node.operands, reduction=text_attribute(node, "reduction", "none"))


def _unpool(node: Node, site: Site) -> Replacement:
    """Positions are those in the whole batch of images, which must not be larger than the window implies."""
    if len(node.inputs) > 2 and node.inputs[2] is not None:
        return None
    x, indices = node.operands[:2]
    (result,) = node.results
    count, size = product(x.shape), product(result.shape)
    zeros = site.node("Expand", site.constant(np.zeros((), storage_dtype(x.dtype)), "zero"), site.dims([size]))
    operands = (zeros, site.reshape(indices, (count, 1)), site.reshape(x, (count,)))
    return site.reshape(site.node("ingot.Scattered", *operands, reduction="none"), result.shape)


def _is_few(count: Dim) -> bool:
    return isinstance(count, int) and count <= _FEW_ELEMENTS


SEQUENTIAL_RULES: tuple[RewriteRule, ...] = (
    rule("CumSum CumProd", _cumulative),  # y[i] = y[i - 1] + x[i]
    rule("ScatterElements", _scatter_elements),  # y = x; y[.., i[.., k, ..], ..] = u[.., k, ..] for each k
    rule("ScatterND", _scatter_slices),  # y = x; y[i[k]] = u[k] for each k
)

UNPOOLED = rule("MaxUnpool", _unpool)  # ScatterND(0, i, x)
