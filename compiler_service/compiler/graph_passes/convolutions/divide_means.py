"""Means over an image as means of its parts, so that each core reads the part that it made itself."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar

from compiler_service.compiler.graph_passes.rewriting.attributes import text_attribute
from compiler_service.compiler.graph_passes.rewriting.facts import Facts, GraphFact
from compiler_service.compiler.graph_passes.rewriting.limits import at_least
from compiler_service.compiler.graph_passes.rewriting.operands import is_float, reduced_axes
from compiler_service.compiler.graph_passes.rewriting.pass_manager import Pass
from compiler_service.compiler.graph_passes.rewriting.rewrite import Replacement, Site, rewrite, rule
from shared_ir.expr.dim import numbers_of
from shared_ir.graph.ir import Graph, Node

_LEAST_BITS = 32
"""The means of the parts of shorter floats would be rounded once more."""


@dataclass(frozen=True)
class DivideMeans(Pass):
    """``mean(x[h, w, c] over h, w) -> mean over p of mean(x[p, h / p, w, c] over h / p, w)``, and sums alike.

    A mean has no rows to divide among cores, and its columns lie on all of them: one core alone read the whole image from the
    caches of the others, which then had to fetch it back to write to it (squeeze-and-excite: a fifth of efficientnet's time on two
    threads of a Xeon). Parts are as many as divide the lines of the image among the cores evenly, as the kernel before does; the
    second mean is over ``p`` rows. Comes behind layout, which decides what lies in lines.

    Attributes:
        cores: that a schedule is planned for.
        least_bytes: of an image whose parts are worth a second launch.
    """

    name: ClassVar[str] = "divide-means"
    level: ClassVar[int] = 3
    needs: ClassVar[Facts] = frozenset({GraphFact.CHANNELS_LAST})
    forbids: ClassVar[Facts] = frozenset({GraphFact.GROUPED})

    cores: int = field(default=2, metadata=at_least(1))
    least_bytes: int = field(default=1 << 18, metadata=at_least(0))

    def run(self, graph: Graph) -> Graph:
        return rewrite(graph, (rule("ReduceMean ReduceSum GlobalAveragePool", self._divided),))

    def _divided(self, node: Node, site: Site) -> Replacement:
        x, axes = node.operands[0], _axes(node, site)
        extents = numbers_of(x.shape)
        if axes is None or extents is None or not is_float(x) or x.dtype.bits < _LEAST_BITS:
            return None
        first, last = axes[0], axes[-1]
        is_image = axes == tuple(range(first, last + 1)) and last == x.type.rank - 2
        if not is_image or max(extents[:first], default=1) > 1:
            return None
        if math.prod(extents) * x.dtype.itemsize < self.least_bytes:
            return None
        parts = _parts(extents[first], self.cores)
        if parts == 1:
            return None
        lines = site.reshape(x, (*extents[:first], parts, extents[first] // parts, *extents[first + 1 :]))
        op = "ReduceMean" if node.op == "GlobalAveragePool" else node.op
        within = site.integers(*range(first + 1, last + 2), name="axes")
        partial = site.node(op, lines, within, keepdims=1, title=node.name, output=f"{x.name}_parts")
        across = site.integers(first, name="axes")
        whole = site.node(op, partial, across, keepdims=1, title=node.name)
        return site.reshape(whole, node.results[0].shape)


def _axes(node: Node, site: Site) -> tuple[int, ...] | None:
    """The reduced axes in order, if there are any."""
    if node.op != "GlobalAveragePool":
        return reduced_axes(node, site, kept=False)
    rank = node.operands[0].type.rank
    return tuple(range(1, rank - 1)) if text_attribute(node, "layout", "") == "NHWC" and rank > 2 else None


def _parts(lines: int, cores: int) -> int:
    """The fewest equal parts of ``lines`` that are shared evenly among ``cores``; each line is one where there are none."""
    return cores if lines % cores == 0 else lines
