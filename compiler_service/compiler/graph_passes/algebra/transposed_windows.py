"""Transposed convolutions, phase by phase: outputs at distance ``stride`` from one another see the same taps."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from compiler_service.compiler.graph_passes.rewriting.attributes import int_attribute, ints_attribute, text_attribute
from compiler_service.compiler.graph_passes.rewriting.operands import is_float
from compiler_service.compiler.graph_passes.rewriting.rewrite import Site
from shared_ir.expr import lift
from shared_ir.expr.dim import Dim, as_dim
from shared_ir.graph.ir import Node, Value

MOST_PHASES = 1 << 10
"""Where strides multiply to more, neither phases nor the zeros between them are written out."""


@dataclass(frozen=True)
class _Line:
    """The outputs ``q * stride + r`` along one axis, a convolution of stride 1.

    Attributes:
        taps: of the weights, in the order in which they meet the data.
        before, after: padding of the data.
    """

    taps: range
    before: int
    after: int

    @staticmethod
    def of(kernel: int, stride: int, crop: int, r: int, count: int) -> _Line:
        """``y[q * stride + r] = sum over j of x[q + (r + crop) // stride - j] * w[(r + crop) % stride + j * stride]`` for as many
        ``q`` as the data has elements and ``count`` more."""
        ahead, first = divmod(r + crop, stride)
        taps = range(first, kernel, stride)[::-1]
        before = len(taps) - 1 - ahead
        return _Line(taps, before, count + len(taps) - 1 - before)


@dataclass(frozen=True)
class WindowPhase:
    """One phase of every spatial axis."""

    lines: tuple[_Line, ...]

    @property
    def pads(self) -> tuple[int, ...]:
        """Padding of the data, in the order of ONNX."""
        return (*(line.before for line in self.lines), *(line.after for line in self.lines))

    @property
    def taps(self) -> tuple[int, ...]:
        return tuple(len(line.taps) for line in self.lines)

    def of(self, weight: np.ndarray) -> np.ndarray:
        """The taps of ``weight``, whose first two axes are channels."""
        for axis, line in enumerate(self.lines, start=2):
            weight = weight.take(list(line.taps), axis)
        return weight


@dataclass(frozen=True)
class Transposed:
    """What a transposed convolution by constant weights ``[ic, oc / group, ..]`` says of its windows."""

    weight: np.ndarray
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    begins: tuple[int, ...]
    ends: tuple[int, ...]
    more: tuple[int, ...]
    group: int

    @staticmethod
    def of(node: Node, site: Site) -> Transposed | None:
        x, weight, *_ = node.operands
        array, rank = site.array(weight), x.type.rank - 2
        if array is None or not is_float(x) or "output_shape" in node.attributes:
            return None
        if text_attribute(node, "auto_pad", "NOTSET") != "NOTSET":
            return None
        ones, none = (1,) * rank, (0,) * rank
        strides, dilations = (ints_attribute(node, name, ones) for name in ("strides", "dilations"))
        pads, more = ints_attribute(node, "pads", none * 2), ints_attribute(node, "output_padding", none)
        group = int_attribute(node, "group", 1)
        return Transposed(array, array.shape[2:], strides, dilations, pads[:rank], pads[rank:], more, group)

    @property
    def _behind(self) -> list[int]:
        """Outputs along each axis beyond ``stride`` for each element of the data."""
        axes = zip(self.kernel, self.strides, self.more, self.begins, self.ends, strict=True)
        return [k - s + more - begin - end for k, s, more, begin, end in axes]

    def phases(self) -> list[WindowPhase] | None:
        """All phases of undilated windows, the last axis first to change; None where one would begin or end within the data, or
        they are too many to be written out."""
        if math.prod(self.strides) > MOST_PHASES:
            return None
        axes = zip(self.kernel, self.strides, self.begins, self._behind, strict=True)
        lines = [[_Line.of(k, s, crop, r, -(-rest // s)) for r in range(s)] for k, s, crop, rest in axes]
        if min(min(line.before, line.after) for axis in lines for line in axis) < 0:
            return None
        return [WindowPhase(own) for own in itertools.product(*lines)]

    def interleaved(self, parts: Sequence[Value], shape: Sequence[Dim], site: Site) -> Value:
        """``parts[r][n, c, q..] -> y[n, c, q * stride + r..]`` of the shape ``shape``, which cuts off what is no whole stride."""
        images, channels, *extents = parts[0].shape
        rank = len(extents)
        whole = site.node("Concat", *parts, axis=1)
        apart = site.reshape(whole, (images, *self.strides, channels, *extents))
        places = (i for axis in range(rank) for i in (rank + 2 + axis, 1 + axis))
        joined = site.transpose(apart, (0, rank + 1, *places))
        sizes = [as_dim(lift(d) * s) for d, s in zip(extents, self.strides, strict=True)]
        result = site.reshape(joined, (images, channels, *sizes))
        for axis, (rest, stride) in enumerate(zip(self._behind, self.strides, strict=True), start=2):
            if rest % stride:
                result = site.slice(result, axis, 0, shape[axis])
        return result
