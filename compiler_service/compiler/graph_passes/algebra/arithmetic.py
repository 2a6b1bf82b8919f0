"""Rules of elementwise arithmetic. Each row states its algebra; ``c`` is a constant."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from compiler_service.compiler.graph_passes.algebra.broadcast import expanded
from compiler_service.compiler.graph_passes.rewriting.operands import is_float, with_constant
from compiler_service.compiler.graph_passes.rewriting.rewrite import Replacement, RewriteRule, Site, rule
from shared_ir.arrays import storage_dtype
from shared_ir.expr.dim import product
from shared_ir.graph.ir import Node, Value


def _first(node: Node, site: Site) -> Replacement:
    return node.inputs[0]


def _single_operand(node: Node, site: Site) -> Replacement:
    return node.inputs[0] if len(node.inputs) == 1 else None


def _neutral(number: float, *, either_side: bool) -> Callable[[Node, Site], Replacement]:
    """``x op number -> x`` (and ``number op x -> x``), repeated where the other operand widens the result."""
    return _without(lambda c, site: site.scalar(c) == number, either_side=either_side)


def _without(is_neutral: Callable[[Value, Site], bool], *, either_side: bool) -> Callable[[Node, Site], Replacement]:
    def apply(node: Node, site: Site) -> Replacement:
        a, b = node.operands
        for x, c in ((a, b), (b, a))[: 2 if either_side else 1]:
            if is_neutral(c, site) and x.dtype is node.results[0].dtype:
                return expanded(x, node.results[0], site)
        return None

    return apply


@dataclass(frozen=True)
class Zero:
    """Whether adding (``negative``) or subtracting zeros changes nothing: ``-0 + 0`` is 0, and ``-0 + -0`` is -0. Of many zeros, a
    mask that masks nothing, the sign does not count if ``approximate``: they are read for nothing."""

    negative: bool
    approximate: bool

    def __call__(self, c: Value, site: Site) -> bool:
        array = site.array(c)
        if array is None or site.scalar(c) != 0:
            return False
        if not is_float(c) or (self.approximate and array.size > 1):
            return True
        return bool((np.signbit(array.astype(np.float64)) == self.negative).all())


def _twice(node: Node, site: Site) -> Replacement:
    inner = site.producer(node.inputs[0], node.op)
    return None if inner is None else inner.inputs[0]


def _again(node: Node, site: Site) -> Replacement:
    return node.inputs[0] if site.producer(node.inputs[0], node.op) else None


def _same_cast(node: Node, site: Site) -> Replacement:
    return node.inputs[0] if node.operands[0].type == node.results[0].type else None


def _dropout(node: Node, site: Site) -> Replacement:
    if any(v is not None for v in node.outputs[1:]):
        return None
    training = node.inputs[2] if len(node.inputs) > 2 else None
    return node.inputs[0] if training is None or site.scalar(training) == 0 else None


def _power(node: Node, site: Site) -> Replacement:
    x, exponent = node.operands
    number = site.scalar(exponent)
    if number is None or not is_float(x) or x.type != node.results[0].type:
        return None
    match number:
        case 1:
            return x
        case 2:
            return site.node("Mul", x, x)
        case 0.5:
            return site.node("Sqrt", x)
        case -1:
            return site.node("Reciprocal", x)
    return None


def _sum_of_two(node: Node, site: Site) -> Replacement:
    return site.node("Add", *node.inputs) if len(node.inputs) == 2 else None


def _subtract_constant(node: Node, site: Site) -> Replacement:
    x, c = node.operands
    array = site.array(c)
    if array is None or not is_float(x) or site.array(x) is not None:
        return None
    return site.node("Add", x, site.constant(-array, c.name))


def _merge_constants(combine: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> Callable[[Node, Site], Replacement]:
    """``(x op c) op d -> x op (c op d)`` for floats."""

    def apply(node: Node, site: Site) -> Replacement:
        outer = with_constant(node, site, exact=True)
        inner_node = None if outer is None else site.producer(outer[0], node.op)
        inner = None if inner_node is None else with_constant(inner_node, site, exact=True)
        if outer is None or inner is None or not is_float(outer[0]) or not site.only_user(outer[0]):
            return None
        merged = combine(inner[1], outer[1])
        if merged.size > max(inner[1].size, outer[1].size):
            return None
        return site.node(node.op, inner[0], site.rounded(merged, node.results[0].dtype, "merged"))

    return apply


def _is_positive_zero(value: Value | None, site: Site) -> bool:
    number = site.scalar(value)
    return number == 0 and math.copysign(1, number) > 0


def _relu(node: Node, site: Site) -> Replacement:
    a, b = node.operands if len(node.operands) == 2 else (None, None)
    for x, c in ((a, b), (b, a)):
        if x is not None and is_float(x) and _is_positive_zero(c, site) and x.type == node.results[0].type:
            return site.node("Relu", x)
    return None


def _log_softmax(node: Node, site: Site) -> Replacement:
    inner = site.producer(node.inputs[0], "Softmax")
    if inner is None or not site.only_user(node.inputs[0]):
        return None
    return site.write("LogSoftmax", inner.inputs, inner.attributes)


@dataclass(frozen=True)
class Reciprocal:
    """``x / c -> x * (1 / c)``; where that rounds, only if ``approximate``, and only of what is more than a number: one division more
    costs nothing, and a scale that is off by its last bit moves every element that is quantized by it."""

    approximate: bool

    def __call__(self, node: Node, site: Site) -> Replacement:
        x, c = node.operands
        divisor = site.exact(c)
        if divisor is None or not is_float(x) or site.array(x) is not None:
            return None
        with np.errstate(all="ignore"):
            inverse = 1.0 / divisor
            rounded = np.asarray(inverse.astype(storage_dtype(c.dtype)))
        mantissa, _ = np.frexp(divisor)
        exact = bool((np.abs(mantissa) == 0.5).all())
        worth = self.approximate and product(node.results[0].shape) != 1
        if not (exact or worth) or not np.isfinite(rounded).all() or (rounded == 0).any():
            return None
        return site.node("Mul", x, site.rounded(inverse, c.dtype, c.name))


def arithmetic_rules(approximate: bool) -> tuple[RewriteRule, ...]:
    """The table; ``approximate`` admits rows that change the last bit of a float."""
    return (
        rule("Identity", _first),  # Identity(x) -> x
        rule("Dropout", _dropout),  # Dropout(x) -> x at inference
        rule("Add", _without(Zero(True, approximate), either_side=True)),  # x + -0 -> x, -0 + x -> x; integers: 0
        rule("Sub", _without(Zero(False, approximate), either_side=False)),  # x - 0 -> x
        rule("Mul", _neutral(1, either_side=True)),  # x * 1 -> x, 1 * x -> x
        rule("Div", _neutral(1, either_side=False)),  # x / 1 -> x
        rule("And", _neutral(1, either_side=True)),  # x and true -> x
        rule("Or", _neutral(0, either_side=True)),  # x or false -> x
        rule("Sum Max Min Mean", _single_operand),  # Sum(x) -> x
        rule("Neg Not Reciprocal", _twice),  # -(-x) -> x
        rule("Relu Abs Floor Ceil Round Sign", _again),  # Relu(Relu(x)) -> Relu(x)
        rule("Cast", _same_cast),  # Cast(x: t, to=t) -> x
        rule("Pow", _power),  # x ** 1 -> x, x ** 2 -> x * x, x ** 0.5 -> Sqrt(x), x ** -1 -> Reciprocal(x)
        rule("Sum", _sum_of_two),  # Sum(a, b) -> a + b
        rule("Max", _relu),  # Max(x, 0) -> Relu(x)
        rule("Sub", _subtract_constant),  # x - c -> x + (-c)
        rule("Div", Reciprocal(approximate)),  # x / c -> x * (1 / c)
        rule("Log", _log_softmax),  # Log(Softmax(x)) -> LogSoftmax(x)
        *((rule("Add", _merge_constants(np.add)),) if approximate else ()),  # (x + c) + d -> x + (c + d)
        *((rule("Mul", _merge_constants(np.multiply)),) if approximate else ()),  # (x * c) * d -> x * (c * d)
    )
