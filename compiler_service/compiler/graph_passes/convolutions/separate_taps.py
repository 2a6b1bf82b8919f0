"""Convolutions of few results as one product for all taps of the window, whose results are added up where they meet."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from compiler_service.compiler.graph_passes.algebra.movement import MOVEMENT_RULES
from compiler_service.compiler.graph_passes.algebra.transposed_windows import Transposed
from compiler_service.compiler.graph_passes.layout.rules import CHANNELS_LAST
from compiler_service.compiler.graph_passes.rewriting.attributes import int_attribute, ints_attribute, text_attribute
from compiler_service.compiler.graph_passes.rewriting.facts import Facts, GraphFact
from compiler_service.compiler.graph_passes.rewriting.limits import at_least
from compiler_service.compiler.graph_passes.rewriting.pass_manager import Pass
from compiler_service.compiler.graph_passes.rewriting.rewrite import Replacement, Site, rewrite, rule
from shared_ir.dtype import DType
from shared_ir.expr.dim import product
from shared_ir.graph.ir import Attribute, Graph, Node, Value


@dataclass(frozen=True)
class SeparateTaps(Pass):
    """A convolution whose results are fewer than lanes, as the last of a segmentation or of a picture is, fills a part of its vectors::

        y[p, o] = sum over t, c of x[p + t, c] * w[o, c, t]

        z[t, o, p] = sum over c of w[o, c, t] * x[p, c],   y[p, o] = sum over t of z[t, o, p + t]

    Vectors lie along the pixels instead, and every element of ``x`` is read once for all taps. Comes behind layout, which it leaves
    as it is: results that are few are turned for nothing.

    Attributes:
        lanes: of a vector of the target.
        filled: of the lanes; more results than that do as well in vectors of their own.
        least_channels: of the data, less than which are no product to speak of.
        growth: of the memory that a pixel takes, from data to products.
    """

    name: ClassVar[str] = "separate-taps"
    level: ClassVar[int] = 3
    needs: ClassVar[Facts] = frozenset({GraphFact.CONSTANTS_FOLDED, GraphFact.CHANNELS_LAST})
    forbids: ClassVar[Facts] = frozenset({GraphFact.GROUPED})

    lanes: int = field(default=16, metadata=at_least(1))
    filled: float = field(default=0.75, metadata=at_least(0))
    least_channels: int = field(default=8, metadata=at_least(1))
    growth: int = field(default=4, metadata=at_least(0))

    def run(self, graph: Graph) -> Graph:
        table = (rule("Conv", self._separated), rule("ConvTranspose", self._phase_by_phase), *MOVEMENT_RULES)
        return rewrite(graph, table)

    def _separated(self, node: Node, site: Site) -> Replacement:
        weight = site.array(node.operands[1])
        if weight is None or not self._is_worth(node, *weight.shape) or not _is_dense(node):
            return None
        rank = weight.ndim - 2
        each = _products(node, weight.reshape(*weight.shape[:2], -1).transpose(2, 0, 1), site)
        ones, none = (1,) * rank, (0,) * (2 * rank)
        pads, dilations = ints_attribute(node, "pads", none), ints_attribute(node, "dilations", ones)
        return _finished(_summed(each, weight.shape[2:], pads, dilations, site), node, site)

    def _phase_by_phase(self, node: Node, site: Site) -> Replacement:
        """Each phase of the outputs adds up taps of its own."""
        window = Transposed.of(node, site)
        if window is None or window.group != 1 or text_attribute(node, "layout", "") != CHANNELS_LAST:
            return None
        channels, outputs, *kernel = window.weight.shape
        even = all(k % s == 0 for k, s in zip(kernel, window.strides, strict=True))
        phases = window.phases() if even and set(window.dilations) == {1} else None
        if phases is None or not self._is_worth(node, outputs, channels, *kernel):
            return None
        taps = [phase.of(window.weight).reshape(channels, outputs, -1) for phase in phases]
        count, ones = taps[0].shape[-1], (1,) * len(kernel)
        each = _products(node, np.concatenate(taps, axis=-1).transpose(2, 1, 0), site)
        parts = []
        for number, phase in enumerate(phases):
            own = site.slice(each, 1, number * count, (number + 1) * count)
            parts.append(_summed(own, phase.taps, phase.pads, ones, site))
        batch, *spatial, _ = node.results[0].shape
        return _finished(window.interleaved(parts, (batch, outputs, *spatial), site), node, site)

    def _is_worth(self, node: Node, outputs: int, channels: int, *taps: int) -> bool:
        results = outputs * math.prod(taps)
        fits = self.least_channels <= channels and outputs < results <= self.growth * channels
        return fits and outputs <= self.filled * self.lanes and node.operands[0].dtype is DType.FLOAT32


def _products(node: Node, weight: np.ndarray, site: Site) -> Value:
    """``[n, t, o, ..] = sum over c of weight[t, o, c] * x[n, .., c]`` for the data ``x`` of ``node``, in whichever layout."""
    x, (count, outputs, channels) = node.operands[0], weight.shape
    is_last = text_attribute(node, "data_layout", text_attribute(node, "layout", "")) == CHANNELS_LAST
    batch, spatial = x.shape[0], x.shape[1:-1] if is_last else x.shape[2:]
    pixels = (product(spatial), channels) if is_last else (channels, product(spatial))
    operands = (site.constant(np.ascontiguousarray(weight), "taps"), site.reshape(x, (batch, *pixels)))
    equation = "toc,npc->ntop" if is_last else "toc,ncp->ntop"
    each = site.node("Einsum", *operands, equation=equation, title=node.name)
    return site.reshape(each, (batch, count, outputs, *spatial))


def _summed(each: Value, taps: tuple[int, ...], pads: tuple[int, ...], dilations: tuple[int, ...], site: Site) -> Value:
    """``[n, o, ..]``"""
    attributes: dict[str, Attribute] = {"kernel_shape": taps, "dilations": dilations, "pads": pads}
    return site.write("ingot.SumTaps", (each,), attributes)


def _finished(total: Value, node: Node, site: Site) -> Value:
    """Channels last, with the bias of ``node``."""
    last = site.transpose(total, (0, *range(2, total.type.rank), 1))
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    return last if bias is None else site.node("Add", last, bias)


def _is_dense(node: Node) -> bool:
    """Whether there is a result for each place of the window, and all channels go into it."""
    strides = ints_attribute(node, "strides", (1,))
    plain = int_attribute(node, "group", 1) == 1 and text_attribute(node, "auto_pad", "NOTSET") == "NOTSET"
    return plain and set(strides) == {1} and text_attribute(node, "layout", "") == CHANNELS_LAST
