"""Rules that find an operator which an exporter has spelled out: activations, softmax, normalisation of layers."""

from __future__ import annotations

import math

import numpy as np

from compiler_service.compiler.graph_passes.rewriting.operands import (
    close,
    is_float,
    product_of,
    reduced_axes,
    with_constant,
    with_scalar,
)
from compiler_service.compiler.graph_passes.rewriting.rewrite import Replacement, RewriteRule, Site, rule
from shared_ir.arrays import storage_dtype
from shared_ir.graph.ir import Node, Value

SQRT_HALF = math.sqrt(0.5)
SQRT_2_OVER_PI = math.sqrt(2 / math.pi)


def _activation(node: Node, site: Site) -> Replacement:
    """Products of ``x`` with a gate computed from ``x``."""
    values, number = product_of(node, site)
    if len(values) != 2 or not is_float(values[0]):
        return None
    for x, gate in (values, values[::-1]):
        if x.type != node.results[0].type or gate.type != x.type:
            continue
        found = _gelu(x, gate, number, site) or _swish(x, gate, number, site) or _hard_swish(x, gate, number, site)
        if found is not None:
            return found
    return None


def _gelu(x: Value, gate: Value, number: float, site: Site) -> Value | None:
    """Gelu, exact: 0.5 * x * (1 + Erf(x / sqrt 2)); tanh: 0.5 * x * (1 + Tanh(sqrt(2 / pi) * (x + 0.044715 * x ** 3)))"""
    one_plus = with_scalar(site.producer(gate, "Add"), site)
    if not close(number, 0.5) or one_plus is None or not close(one_plus[1], 1):
        return None
    inner = site.producer(one_plus[0], "Erf", "Tanh")
    argument = None if inner is None else site.producer(inner.inputs[0], "Mul")
    scaled = with_scalar(argument, site)
    if inner is None or scaled is None:
        return None
    if inner.op == "Erf":
        return site.node("Gelu", x) if scaled[0] == x and close(scaled[1], SQRT_HALF) else None
    if close(scaled[1], SQRT_2_OVER_PI) and _is_cubic(scaled[0], x, site):
        return site.node("Gelu", x, approximate="tanh")
    return None


def _is_cubic(value: Value, x: Value, site: Site) -> bool:
    """Whether ``value`` is ``x + 0.044715 * x ** 3``."""
    node = site.producer(value, "Add")
    if node is None or x not in node.operands:
        return False
    a, b = node.operands
    product = site.producer(b if a == x else a, "Mul")
    if product is None:
        return False
    values, number = product_of(product, site)
    if not close(number, 0.044715):
        return False
    if len(values) == 1:
        power = site.producer(values[0], "Pow")
        return power is not None and power.inputs[0] == x and site.scalar(power.inputs[1]) == 3
    expanded = [f for v in values for f in _squares(v, site)]
    return expanded == [x, x, x]


def _squares(value: Value, site: Site) -> tuple[Value, ...]:
    """``(x, x)`` when ``value`` is ``x * x``, else ``(value,)``."""
    node = site.producer(value, "Mul")
    return node.operands if node is not None and node.operands[0] == node.operands[1] else (value,)


def _swish(x: Value, gate: Value, number: float, site: Site) -> Value | None:
    """Swish: x * Sigmoid(alpha * x)"""
    sigmoid = site.producer(gate, "Sigmoid")
    if sigmoid is None or not close(number, 1):
        return None
    argument = sigmoid.operands[0]
    if argument == x:
        return site.node("Swish", x)
    scaled = with_scalar(site.producer(argument, "Mul"), site)
    return site.node("Swish", x, alpha=scaled[1]) if scaled is not None and scaled[0] == x else None


def _hard_swish(x: Value, gate: Value, number: float, site: Site) -> Value | None:
    """HardSwish: x * Clip(x + 3, 0, 6) / 6, or x * HardSigmoid(x, 1 / 6, 0.5)"""
    hard = site.producer(gate, "HardSigmoid")
    if hard is not None and hard.inputs[0] == x and close(number, 1) and _is_sixth(hard):
        return site.node("HardSwish", x)
    if _is_shifted_clip(gate, x, site) and close(number, 1 / 6):
        return site.node("HardSwish", x)
    return None


def _is_sixth(hard: Node) -> bool:
    alpha, beta = hard.attributes.get("alpha", 0.2), hard.attributes.get("beta", 0.5)
    return isinstance(alpha, float) and isinstance(beta, float) and close(alpha, 1 / 6) and close(beta, 0.5)


def _is_shifted_clip(gate: Value, x: Value, site: Site) -> bool:
    clip = site.producer(gate, "Clip")
    if clip is None or len(clip.operands) != 3 or site.scalar(clip.inputs[1]) != 0 or site.scalar(clip.inputs[2]) != 6:
        return False
    shifted = with_scalar(site.producer(clip.inputs[0], "Add"), site)
    return shifted is not None and shifted[0] == x and shifted[1] == 3


def _hard_sigmoid(node: Node, site: Site) -> Replacement:
    """HardSigmoid(1 / 6, 0.5): Clip(x + 3, 0, 6) / 6"""
    scaled = with_scalar(node, site)
    clip = None if scaled is None else site.producer(scaled[0], "Clip")
    shifted = None if clip is None else with_scalar(site.producer(clip.inputs[0], "Add"), site)
    if (
        scaled is None
        or clip is None
        or shifted is None
        or not close(scaled[1], 1 / 6)
        or not site.only_user(scaled[0])
    ):
        return None
    if not _is_shifted_clip(scaled[0], shifted[0], site):
        return None
    return site.node("HardSigmoid", shifted[0], alpha=1 / 6, beta=0.5)


def _softmax(node: Node, site: Site) -> Replacement:
    """Softmax: Exp(x - ReduceMax(x)) / ReduceSum(Exp(x - ReduceMax(x)))"""
    top, bottom = node.operands
    exponent, total = site.producer(top, "Exp"), site.producer(bottom, "ReduceSum")
    axes = None if total is None else reduced_axes(total, site)
    if exponent is None or total is None or total.inputs[0] != top or axes is None or len(axes) != 1:
        return None
    shifted = site.producer(exponent.inputs[0], "Sub")
    if shifted is None:
        return None
    x, largest = shifted.operands
    maximum = site.producer(largest, "ReduceMax")
    if maximum is None or maximum.inputs[0] != x or reduced_axes(maximum, site) != axes:
        return None
    return site.node("Softmax", x, axis=axes[0])


def _safe_softmax(node: Node, site: Site) -> Replacement:
    """SafeSoftmax: Where(IsNaN(Softmax(x)), 0, Softmax(x)), by which attention to no key is nothing"""
    condition, instead, weights = node.operands
    asked, softmax = site.producer(condition, "IsNaN"), site.producer(weights, "Softmax")
    if asked is None or softmax is None or asked.operands != (weights,) or site.scalar(instead) != 0:
        return None
    if node.results[0].type != weights.type:
        return None
    return site.write("ingot.SafeSoftmax", softmax.inputs, softmax.attributes)


def _layer_normalization(node: Node, site: Site) -> Replacement:
    """LayerNormalization: d / Sqrt(ReduceMean(d ** 2) + epsilon) with d = x - ReduceMean(x), over the last axes"""
    centred, deviation = node.operands
    centring, root = site.producer(centred, "Sub"), site.producer(deviation, "Sqrt")
    shifted = None if root is None else site.producer(root.inputs[0], "Add")
    variance = with_scalar(shifted, site)
    spread = None if variance is None else site.producer(variance[0], "ReduceMean")
    if centring is None or variance is None or spread is None or not _is_square(spread.inputs[0], centred, site):
        return None
    x, mean = centring.operands
    average = site.producer(mean, "ReduceMean")
    if average is None or average.inputs[0] != x or not is_float(x):
        return None
    if reduced_axes(average, site) != reduced_axes(spread, site):
        return None
    return _normalization("LayerNormalization", x, reduced_axes(average, site), variance[1], site)


def _normalization(op: str, x: Value, axes: tuple[int, ...] | None, epsilon: float, site: Site) -> Value | None:
    """``op`` over ``axes``, which must be the last ones and of known sizes, with a scale of one."""
    rank = x.type.rank
    if axes is None or axes != tuple(range(axes[0], rank)):
        return None
    shape = tuple(d for d in x.shape[axes[0] :] if isinstance(d, int))
    if len(shape) != len(axes):
        return None
    ones = site.constant(np.broadcast_to(np.ones((), storage_dtype(x.dtype)), shape), "ones")
    return site.node(op, x, ones, axis=axes[0] - rank, epsilon=epsilon)


def _rms_normalization(node: Node, site: Site) -> Replacement:
    """RMSNormalization: x / Sqrt(ReduceMean(x ** 2) + epsilon), or x times the reciprocal, over the last axes"""
    for x, other in (node.operands, node.operands[::-1]) if node.op == "Mul" else (node.operands,):
        root = site.producer(other if node.op == "Div" else _inverted(other, site), "Sqrt")
        mean = with_scalar(None if root is None else site.producer(root.inputs[0], "Add"), site)
        spread = None if mean is None else site.producer(mean[0], "ReduceMean")
        if mean is None or spread is None or x.type != node.results[0].type or not is_float(x):
            continue
        if _is_square(spread.inputs[0], x, site):
            return _normalization("RMSNormalization", x, reduced_axes(spread, site), mean[1], site)
    return None


def _inverted(value: Value, site: Site) -> Value | None:
    """``v`` where ``value`` is ``1 / v``."""
    node = site.producer(value, "Div", "Reciprocal")
    if node is None:
        return None
    if node.op == "Reciprocal":
        return node.operands[0]
    return node.operands[1] if site.scalar(node.operands[0]) == 1 else None


def _is_square(value: Value | None, x: Value, site: Site) -> bool:
    node = site.producer(value, "Mul", "Pow")
    if node is None:
        return False
    return node.operands == (x, x) if node.op == "Mul" else node.operands[0] == x and site.scalar(node.operands[1]) == 2


def _normalization_scale(node: Node, site: Site) -> Replacement:
    """LayerNormalization(x, 1) * c -> LayerNormalization(x, c), also of RMSNormalization"""
    found = with_constant(node, site)
    inner = None if found is None else site.producer(found[0], "LayerNormalization", "RMSNormalization")
    if found is None or inner is None or not site.only_user(found[0]) or site.scalar(inner.inputs[1]) != 1:
        return None
    scale = inner.operands[1]
    if len(inner.operands) != 2 or found[1].shape != scale.shape or node.results[0].type != found[0].type:
        return None
    return site.write(inner.op, (inner.inputs[0], site.constant(found[1], "scale")), inner.attributes)


def _normalization_bias(node: Node, site: Site) -> Replacement:
    """LayerNormalization(x, c) + d -> LayerNormalization(x, c, d)"""
    found = with_constant(node, site)
    inner = None if found is None else site.producer(found[0], "LayerNormalization")
    if found is None or inner is None or not site.only_user(found[0]) or len(inner.operands) != 2:
        return None
    if found[1].shape != inner.operands[1].shape or node.results[0].type != found[0].type:
        return None
    return site.write("LayerNormalization", (*inner.operands, site.constant(found[1], "bias")), inner.attributes)


PATTERN_RULES: tuple[RewriteRule, ...] = (
    rule("Mul", _activation),  # x * gate(x) -> Gelu, Swish, HardSwish
    rule("Mul", _hard_sigmoid),  # Clip(x + 3, 0, 6) * (1 / 6) -> HardSigmoid(x)
    rule("Div", _softmax),  # Exp(x - max) / ReduceSum(Exp(x - max)) -> Softmax(x)
    rule("Where", _safe_softmax),  # Where(IsNaN(Softmax(x)), 0, Softmax(x)) -> SafeSoftmax(x)
    rule("Div", _layer_normalization),  # (x - mean) / Sqrt(variance + epsilon) -> LayerNormalization(x, 1)
    rule("Mul", _rms_normalization),  # x * (1 / Sqrt(mean of squares + epsilon)) -> RMSNormalization(x, 1)
    rule("Div", _rms_normalization),  # x / Sqrt(mean of squares + epsilon) -> RMSNormalization(x, 1)
    rule("Mul", _normalization_scale),  # LayerNormalization(x, 1) * c -> LayerNormalization(x, c)
    rule("Add", _normalization_bias),  # LayerNormalization(x, c) + d -> LayerNormalization(x, c, d)
)
