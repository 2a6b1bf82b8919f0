"""Convolutions of few results as one product for all taps of the window, whose results are added up where they meet."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from compiler_service.graph_passes.attributes import int_attribute, ints_attribute, text_attribute
from compiler_service.graph_passes.layout_rules import CHANNELS_LAST
from compiler_service.graph_passes.pass_manager import Pass
from compiler_service.graph_passes.rewrite import Replacement, Site, rewrite, rule
from compiler_service.graph_passes.rules_movement import MOVEMENT_RULES
from shared_ir.dim import product
from shared_ir.dtype import DType
from shared_ir.graph import Graph, Node


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

    lanes: int = 16
    filled: float = 0.75
    least_channels: int = 8
    growth: int = 4

    def run(self, graph: Graph) -> Graph:
        return rewrite(graph, (rule("Conv", self._separated), *MOVEMENT_RULES))

    def _separated(self, node: Node, site: Site) -> Replacement:
        weight = site.array(node.operands[1])
        if weight is None or not self._is_worth(node, *weight.shape) or not _is_dense(node):
            return None
        x, (outputs, channels, *taps) = node.operands[0], weight.shape
        rank, count = len(taps), math.prod(taps)
        is_last = text_attribute(node, "data_layout", text_attribute(node, "layout", "")) == CHANNELS_LAST
        batch, spatial = x.shape[0], x.shape[1:-1] if is_last else x.shape[2:]
        pixels = (product(spatial), channels) if is_last else (channels, product(spatial))
        matrix = site.constant(weight.reshape(outputs, channels, count).transpose(2, 0, 1).copy(), "taps")
        equation = "toc,npc->ntop" if is_last else "toc,ncp->ntop"
        data = site.reshape(x, (batch, *pixels))
        each = site.node("Einsum", (matrix, data), {"equation": equation}, name=node.name)
        each = site.reshape(each, (batch, count, outputs, *spatial))
        ones = (1,) * rank
        kind = {
            "kernel_shape": tuple(taps),
            "dilations": ints_attribute(node, "dilations", ones),
            "pads": ints_attribute(node, "pads", (0,) * (2 * rank)),
        }
        total = site.transpose(site.node("ingot.SumTaps", (each,), kind), (0, *range(2, rank + 2), 1))
        return site.node("Add", (total, node.inputs[2])) if len(node.inputs) > 2 and node.inputs[2] else total

    def _is_worth(self, node: Node, outputs: int, channels: int, *taps: int) -> bool:
        results = outputs * math.prod(taps)
        fits = self.least_channels <= channels and outputs < results <= self.growth * channels
        return fits and outputs <= self.filled * self.lanes and node.operands[0].dtype is DType.FLOAT32


def _is_dense(node: Node) -> bool:
    """Whether there is a result for each place of the window, and all channels go into it."""
    strides = ints_attribute(node, "strides", (1,))
    plain = int_attribute(node, "group", 1) == 1 and text_attribute(node, "auto_pad", "NOTSET") == "NOTSET"
    return plain and set(strides) == {1} and text_attribute(node, "layout", "") == CHANNELS_LAST
