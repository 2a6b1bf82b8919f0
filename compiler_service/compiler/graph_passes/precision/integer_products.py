"""Products of 8-bit integers on the units for floats, which are exact as long as no sum leaves the digits of a float.

Every partial sum of ``(a - zero) * (b - zero)`` is an integer. Float32 holds those below ``2**24`` and float64 those below
``2**53``, so the result is that of integer arithmetic, in any order of summation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from compiler_service.compiler.graph_passes.precision.byte_products import (
    EXACT_FLOAT32,
    MOST_BYTE_DIFFERENCE,
    Bytes,
    byte_product,
    is_byte_product,
)
from compiler_service.compiler.graph_passes.rewriting.attributes import is_channels_first
from compiler_service.compiler.graph_passes.rewriting.operands import as_number, is_single
from compiler_service.compiler.graph_passes.rewriting.rewrite import Replacement, RewriteRule, Site, rule
from shared_ir.dtype import DType
from shared_ir.graph.ir import Attribute, Node, Value


@dataclass(frozen=True)
class IntegerProduct:
    """The operands of a product: data and its zero point, weights and theirs, and the axis that scales of weights run along."""

    data: Value
    data_zero: Value | None
    weight: Value
    weight_zero: Value | None
    columns: int

    def emit(self, site: Site, op: str, attributes: dict[str, Attribute], *, dots: DType | None) -> Value | None:
        """The int32 product; None where zero points vary along another axis. ``dots``: of such bytes, if they fit."""
        array = site.array(self.weight)
        centred = None if array is None else self._centred(site, array)
        if dots is not None and centred is not None:
            found = byte_product(site, op, Bytes(self.data, self.data_zero), centred, attributes, dots)
            if found is not None:
                return found
        return None if array is not None and centred is None else self._of_floats(site, op, attributes, centred)

    def _of_floats(
        self, site: Site, op: str, attributes: dict[str, Attribute], centred: np.ndarray | None
    ) -> Value | None:
        """The product on the units for floats; ``centred`` are the weights, where they are constant."""
        if not is_single(self.data_zero) or not (is_single(self.weight_zero) or centred is not None):
            return None
        kind = self._kind(op, centred)
        data = _shifted(site, self.data, self.data_zero, kind)
        if centred is None:
            other = _shifted(site, self.weight, self.weight_zero, kind)
        else:
            other = site.constant(centred.astype(kind.numpy), f"{self.weight.name}_centred")
        if op == "Conv":
            total = site.write("ingot.ExactConv", (data, other), attributes)
            return site.node("Cast", total, to=DType.INT32, integral=1)
        return site.node("Cast", site.write(op, (data, other), attributes), to=DType.INT32)

    def _centred(self, site: Site, weight: np.ndarray) -> np.ndarray | None:
        """int32 weights less their zero points."""
        if self.weight_zero is None:
            return weight.astype(np.int32)
        zero = site.array(self.weight_zero)
        if zero is None or zero.ndim > 1:
            return None
        shape = [1] * weight.ndim
        if zero.size > 1:
            shape[self.columns] = zero.size
        return weight.astype(np.int32) - zero.astype(np.int32).reshape(shape)

    def _kind(self, op: str, centred: np.ndarray | None) -> DType:
        """The narrowest float that holds every sum."""
        if centred is not None:
            axes = tuple(a for a in range(centred.ndim) if a != self.columns % centred.ndim)
            if op == "MatMul":
                axes = (centred.ndim - 2,) if centred.ndim > 1 else (0,)
            largest = int(np.abs(centred.astype(np.int64)).sum(axis=axes).max(initial=0)) * MOST_BYTE_DIFFERENCE
        else:
            depth = self.data.shape[-1] if op == "MatMul" else math.inf
            largest = depth * MOST_BYTE_DIFFERENCE * MOST_BYTE_DIFFERENCE if isinstance(depth, int) else EXACT_FLOAT32
        return DType.FLOAT64 if largest >= EXACT_FLOAT32 else DType.FLOAT32


def _shifted(site: Site, x: Value, zero: Value | None, kind: DType) -> Value:
    wide = site.node("Cast", x, to=kind)
    if zero is None:
        return wide
    return site.node("Sub", wide, as_number(site, site.node("Cast", zero, to=kind)))


def _integer(node: Node, site: Site, dots: DType | None) -> Replacement:
    """MatMulInteger, ConvInteger"""
    if dots is not None and is_byte_product(node, dots) and site.array(node.inputs[1]) is not None:
        return None
    a, b, a_zero, b_zero = (*node.inputs, None, None)[:4]
    if a is None or b is None or not is_channels_first(node):
        return None
    is_conv = node.op == "ConvInteger"
    product = IntegerProduct(a, a_zero, b, b_zero, 0 if is_conv else b.type.rank - 1)
    return product.emit(site, "Conv" if is_conv else "MatMul", dict(node.attributes), dots=dots)


def _requantized(node: Node, site: Site, dots: DType | None) -> Replacement:
    """QLinearMatMul, QLinearConv: the sums, the bias in int32, the factor, and rounding as QuantizeLinear does it."""
    x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero = node.operands[:8]
    bias = (*node.inputs, None)[8]
    is_conv = node.op == "QLinearConv"
    if not all(map(is_single, (x_scale, y_scale, y_zero))) or x_scale.dtype is not DType.FLOAT32:
        return None
    if w_scale.type.rank > 1:
        return None
    product = IntegerProduct(x, x_zero, w, w_zero, 0 if is_conv else w.type.rank - 1)
    total = product.emit(site, "Conv" if is_conv else "MatMul", dict(node.attributes), dots=dots)
    if total is None:
        return None
    tail = (1,) * (x.type.rank - 2) if is_conv else ()
    if bias is not None:
        total = site.node("Add", total, _column(site, bias, tail))
    factor = site.node("Mul", as_number(site, x_scale), _column(site, w_scale, tail))
    factor = site.node("Div", factor, as_number(site, y_scale))
    scaled = site.node("Mul", site.node("Cast", total, to=DType.FLOAT32), factor)
    return site.node("QuantizeLinear", scaled, site.constant(np.array(1, np.float32)), as_number(site, y_zero))


def _column(site: Site, value: Value, tail: Sequence[int]) -> Value:
    """A vector along the channels, which ``tail`` follow."""
    if is_single(value):
        return as_number(site, value)
    return site.reshape(value, (*value.shape, *tail)) if tail else value


def integer_product_rules(dots: DType | None) -> tuple[RewriteRule, ...]:
    """The table; ``dots``: products of such bytes are left to the target, which has instructions for them."""
    return (
        rule("MatMulInteger ConvInteger", lambda node, site: _integer(node, site, dots)),
        rule("QLinearMatMul QLinearConv", lambda node, site: _requantized(node, site, dots)),
    )
