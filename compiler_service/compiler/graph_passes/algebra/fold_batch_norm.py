"""Fold batch normalisation, and scales and shifts per channel, into the weights of the neighbouring contraction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from compiler_service.compiler.graph_passes.algebra.branches import BRANCH_RULES
from compiler_service.compiler.graph_passes.rewriting.attributes import (
    float_attribute,
    int_attribute,
    is_channels_first,
)
from compiler_service.compiler.graph_passes.rewriting.facts import Facts, GraphFact
from compiler_service.compiler.graph_passes.rewriting.operands import is_float, with_constant
from compiler_service.compiler.graph_passes.rewriting.pass_manager import Pass
from compiler_service.compiler.graph_passes.rewriting.rewrite import Replacement, RewriteRule, Site, rewrite, rule
from shared_ir.graph.ir import Graph, Node, Value

CONVOLUTIONS = ("Conv", "ConvTranspose")
CONTRACTIONS = (*CONVOLUTIONS, "MatMul", "Gemm")


@dataclass(frozen=True)
class FoldBatchNorm(Pass):
    """``BatchNormalization`` becomes a scale and a shift per channel; both go into the weights and bias before them.

    What has no contraction before it stays an elementwise ``Mul`` and ``Add``, which layout and fusion know how to treat.
    A node that a layout has been chosen for stays as it is.
    ``branches``: parallel branches that add up become one convolution, with other rounding errors.
    """

    name: ClassVar[str] = "fold-batch-norm"
    level: ClassVar[int] = 2
    needs: ClassVar[Facts] = frozenset({GraphFact.CONSTANTS_FOLDED, GraphFact.ALGEBRA_SIMPLIFIED})
    forbids: ClassVar[Facts] = frozenset({GraphFact.CHANNELS_LAST, GraphFact.GROUPED})

    branches: bool = False

    def run(self, graph: Graph) -> Graph:
        return rewrite(graph, (*RULES, *BRANCH_RULES) if self.branches else RULES)


def _batch_normalization(node: Node, site: Site) -> Replacement:
    """y = (x - mean) / sqrt(variance + epsilon) * scale + bias"""
    x = node.operands[0]
    scale, bias, mean, variance = (site.exact(v) for v in node.inputs[1:5])
    if node.attributes.get("training_mode", 0) or any(v is not None for v in node.outputs[1:]) or x.type.rank < 2:
        return None
    if scale is None or bias is None or mean is None or variance is None or not is_float(x):
        return None
    if not is_channels_first(node):
        return None
    factor = scale / np.sqrt(variance + float_attribute(node, "epsilon", 1e-5))
    if not _are_finite(factor, mean * factor):
        return None
    scaled = site.node("Mul", x, _per_channel(factor, x, site, "scale"))
    return site.node("Add", scaled, _per_channel(bias - mean * factor, x, site, "shift"))


def _are_finite(*numbers: np.ndarray | None) -> bool:
    """Whether sums of products with ``numbers`` may be written otherwise: infinities that cancel out leave NaN."""
    return all(n is None or bool(np.isfinite(n).all()) for n in numbers)


def _per_channel(numbers: np.ndarray, x: Value, site: Site, name: str) -> Value:
    shape = (-1, *(1,) * (x.type.rank - 2))
    return site.rounded(numbers.reshape(shape), x.dtype, name)


def _scaled(node: Node, site: Site) -> Replacement:
    """Contraction(x, w, b) * c -> Contraction(x, w * c, b * c)"""
    found = with_constant(node, site, exact=True)
    contraction = None if found is None else _foldable(found[0], node, site)
    factor = None if found is None or contraction is None else _channels(contraction, found[1])
    if contraction is None or factor is None:
        return None
    x, weight, *bias = contraction.operands
    array = site.exact(weight)
    scaled = None if array is None else _scale_outputs(contraction, array, factor)
    biases = [site.exact(b) for b in bias]
    if scaled is None or any(b is None for b in biases) or not _are_finite(factor, scaled):
        return None
    inputs = [x, site.rounded(scaled, weight.dtype, "weight")]
    inputs += [site.rounded(b * _flat(factor), weight.dtype, "bias") for b in biases if b is not None]
    return site.write(contraction.op, inputs, contraction.attributes, title=contraction.name)


def _shifted(node: Node, site: Site) -> Replacement:
    """Convolution(x, w, b) + c -> Convolution(x, w, b + c)"""
    found = with_constant(node, site, exact=True)
    contraction = None if found is None else _foldable(found[0], node, site)
    if found is None or contraction is None or contraction.op not in CONVOLUTIONS:
        return None
    shift = _channels(contraction, found[1])
    bias = contraction.inputs[2] if len(contraction.inputs) > 2 else None
    own = None if bias is None else site.exact(bias)
    if shift is None or (bias is not None and own is None):
        return None
    count = contraction.results[0].shape[1]
    if not isinstance(count, int):
        return None
    total = np.broadcast_to(_flat(shift), (count,)) if own is None else own + _flat(shift)
    inputs = (*contraction.inputs[:2], site.rounded(total, node.results[0].dtype, "bias"))
    return site.write(contraction.op, inputs, contraction.attributes, title=contraction.name)


def _distributed(node: Node, site: Site) -> Replacement:
    """(x + c) * d -> x * d + c * d, so that scales meet scales and shifts meet shifts"""
    found = with_constant(node, site, exact=True)
    shift = None if found is None else site.producer(found[0], "Add")
    inner = None if shift is None else with_constant(shift, site, exact=True)
    if found is None or inner is None or not is_float(found[0]) or not site.only_user(found[0]):
        return None
    if found[0].type != node.results[0].type or inner[0].type != found[0].type:
        return None
    moved = np.asarray(inner[1] * found[1])
    if moved.size > max(inner[1].size, found[1].size):
        return None
    scaled = site.node("Mul", inner[0], site.rounded(found[1], found[0].dtype, "scale"))
    return site.node("Add", scaled, site.rounded(moved, found[0].dtype, "shift"))


def _scaled_input(node: Node, site: Site) -> Replacement:
    """Conv(x * c, w, b) -> Conv(x, w * c, b), for one number or one per input channel"""
    product = site.producer(node.inputs[0], "Mul")
    found = None if product is None else with_constant(product, site, exact=True)
    weight = None if found is None else site.exact(node.inputs[1])
    if found is None or weight is None or not site.only_user(node.inputs[0]):
        return None
    x, factor = found
    if x.type != node.operands[0].type or not is_float(x) or not is_channels_first(node):
        return None
    channels = _of_axis(factor, x.type.rank, 1)
    group = int_attribute(node, "group", 1)
    if channels is None:
        return None
    if channels.size > 1:  # output channel o reads the input channels of its group
        per_group = channels.reshape(group, -1)
        channels = np.repeat(per_group, weight.shape[0] // group, axis=0)
        channels = channels.reshape(weight.shape[0], weight.shape[1], *(1,) * (weight.ndim - 2))
    else:
        channels = channels.reshape(())
    if not _are_finite(channels, weight * channels):
        return None
    scaled = site.rounded(weight * channels, node.operands[1].dtype, "weight")
    return site.write("Conv", (x, scaled, *node.inputs[2:]), node.attributes)


def _foldable(value: Value, node: Node, site: Site) -> Node | None:
    """The contraction that computes ``value`` for ``node`` alone, if the type stays what it was."""
    contraction = site.producer(value, *CONTRACTIONS)
    if contraction is None or not site.only_user(value) or value.type != node.results[0].type or not is_float(value):
        return None
    plain = contraction.attributes.get("alpha", 1.0) == 1 and contraction.attributes.get("beta", 1.0) == 1
    return contraction if plain and is_channels_first(contraction) else None


def _channels(contraction: Node, constant: np.ndarray) -> np.ndarray | None:
    """``constant`` as one number per output channel (or one for all); ``None`` when it varies along another axis."""
    rank = contraction.results[0].type.rank
    axis = 1 if contraction.op in CONVOLUTIONS else rank - 1
    return _of_axis(constant, rank, axis)


def _of_axis(constant: np.ndarray, rank: int, axis: int) -> np.ndarray | None:
    shape = (1,) * (rank - constant.ndim) + constant.shape
    if len(shape) != rank or any(n != 1 for i, n in enumerate(shape) if i != axis):
        return None
    return constant.reshape(-1)


def _flat(numbers: np.ndarray) -> np.ndarray:
    return numbers.reshape(()) if numbers.size == 1 else numbers


def _scale_outputs(contraction: Node, weight: np.ndarray, factor: np.ndarray) -> np.ndarray | None:
    """The weight with each output channel multiplied by its factor."""
    if factor.size == 1:
        return np.asarray(weight * factor.reshape(()))
    match contraction.op:
        case "Conv":  # [M, C / group, ...]
            shaped = factor.reshape(-1, *(1,) * (weight.ndim - 1))
        case "ConvTranspose":  # [C, M / group, ...]
            group = int_attribute(contraction, "group", 1)
            rows = np.repeat(factor.reshape(group, -1), weight.shape[0] // group, axis=0)
            shaped = rows.reshape(*weight.shape[:2], *(1,) * (weight.ndim - 2))
        case "Gemm" if contraction.attributes.get("transB", 0):  # [N, K]
            shaped = factor.reshape(-1, 1)
        case _ if weight.ndim >= 2:  # [..., K, N]
            shaped = factor
        case _:
            return None
    return np.asarray(weight * shaped)


RULES: tuple[RewriteRule, ...] = (
    rule("BatchNormalization", _batch_normalization),  # BatchNormalization(x) -> x * a + b
    rule("Mul", _scaled),  # Conv(x, w, b) * c -> Conv(x, w * c, b * c)
    rule("Mul", _distributed),  # (x + c) * d -> x * d + c * d
    rule("Add", _shifted),  # Conv(x, w, b) + c -> Conv(x, w, b + c)
    rule("Conv", _scaled_input),  # Conv(x * c, w, b) -> Conv(x, w * c, b)
)
