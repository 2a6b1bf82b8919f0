"""Dilated convolutions as convolutions without dilation, of the phases of an image."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from compiler_service.compiler.graph_passes.rewriting.attributes import (
    int_attribute,
    ints_attribute,
    is_channels_first,
    text_attribute,
)
from compiler_service.compiler.graph_passes.rewriting.facts import Facts, GraphFact
from compiler_service.compiler.graph_passes.rewriting.pass_manager import Pass
from compiler_service.compiler.graph_passes.rewriting.rewrite import Replacement, Site, rewrite, rule
from compiler_service.compiler.tensor_expr.operators.window import Window, windows
from shared_ir.dtype import DType
from shared_ir.expr import lift
from shared_ir.expr.dim import Dim, as_dim
from shared_ir.graph.ir import Attribute, Graph, Node, Value

_KERNEL_EXTENT = 3
_TILES = (4, 2)
"""Outputs of a tile along an axis that filtering computes together, with ``_KERNEL_EXTENT - 1`` more products."""
_MOST_PART_OF_TAPS_MET = 0.6
"""Of the direct method's products, as many may be left: transforms and copies come on top."""


@dataclass(frozen=True)
class SeparatePhases(Pass):
    """``conv(x, dilation d)[u * d + r] = conv(x[:, r::d])[u]``: so that Winograd's filtering applies, which needs neighbours.

    The outputs at distance ``d`` from one another and all that they read are one phase of both. Where tiles of filtering fit their
    rows, phases are images of a batch; else they lie side by side in one image, as far apart as the zeros around them are wide,
    which neighbours share, and tiles need not end where a phase does. Where an image is not a whole number of phases it is padded,
    and the result cut off.
    """

    name: ClassVar[str] = "separate-phases"
    level: ClassVar[int] = 3
    needs: ClassVar[Facts] = frozenset({GraphFact.CONSTANTS_FOLDED})
    forbids: ClassVar[Facts] = frozenset({GraphFact.CHANNELS_LAST, GraphFact.GROUPED})

    def run(self, graph: Graph) -> Graph:
        return rewrite(graph, (rule("Conv", _separated),))


@dataclass(frozen=True)
class _Axis:
    """One axis of the image.

    Attributes:
        phases: their number, the dilation.
        size: of the output.
        lead, tail: zeros around the data, which make it ``phases`` times ``own`` rows.
        own: rows of a phase of the data.
        before, after: zeros that the first and the last window of a phase read.
        rows: of a phase of the output.
        met: taps of all outputs that meet data.
    """

    phases: int
    size: int
    lead: int
    tail: int
    own: int
    before: int
    after: int
    rows: int
    met: int

    @property
    def gap(self) -> int:
        """Zeros between phases that lie side by side."""
        return max(self.before, self.after)

    def _tiles(self, tile: int) -> tuple[int, int]:
        """Tiles of ``tile`` outputs along this axis: with phases side by side, with each an image of its own."""
        return -(-self.phases * (self.own + self.gap) // tile), self.phases * -(-self.rows // tile)

    def products(self, tile: int) -> int:
        """Of the fewest tiles of ``tile`` outputs along this axis."""
        return min(self._tiles(tile)) * (tile + _KERNEL_EXTENT - 1)

    @property
    def is_beside(self) -> bool:
        """Whether phases lie side by side; they are images of a batch where that has no more tiles."""
        beside, stacked = self._tiles(_TILES[0])
        return beside < stacked

    @property
    def pitch(self) -> int:
        """Rows from one phase of the data to the next."""
        return self.own + (self.gap if self.is_beside else 0)

    @property
    def pads(self) -> tuple[int, int]:
        """Of the image: where phases lie side by side, its output has their pitch too."""
        return self.before, _KERNEL_EXTENT - 1 - self.before if self.is_beside else self.after


def _separated(node: Node, site: Site) -> Replacement:
    x, weight, *bias = node.operands
    phases = ints_attribute(node, "dilations", ())
    if max(phases, default=1) == 1 or not _applies(node, site):
        return None
    auto_pad, pads = text_attribute(node, "auto_pad", "NOTSET"), ints_attribute(node, "pads", (0,) * 4)
    kernel = (_KERNEL_EXTENT, _KERNEL_EXTENT)
    found = windows(x.shape[2:], kernel, auto_pad=auto_pad, strides=None, dilations=phases, pads=pads)
    axes = [axis for window in found if (axis := _axis(window)) is not None]
    if len(axes) < len(kernel) or not _pays(axes):
        return None
    first, last = zip(*(a.pads for a in axes), strict=True)
    attributes: dict[str, Attribute] = {"pads": (*first, *last), "group": int_attribute(node, "group", 1)}
    return _together(site.write("Conv", (_apart(x, axes, site), weight, *bias), attributes), x.shape[0], axes, site)


def _applies(node: Node, site: Site) -> bool:
    x, weight = node.operands[:2]
    steps = ints_attribute(node, "strides", (1, 1))
    known = (
        site.array(weight) is not None
        and x.dtype is DType.FLOAT32
        and weight.shape[2:] == (_KERNEL_EXTENT, _KERNEL_EXTENT)
    )
    return known and set(steps) == {1} and weight.shape[1] != 1 and is_channels_first(node)


def _axis(window: Window) -> _Axis | None:
    """None where an extent is not known, or more zeros lie before or after the data than a window reads."""
    extent, before, size, phases = window.extent, window.before, window.count, window.dilation
    if not (isinstance(extent, int) and isinstance(before, int) and isinstance(size, int)) or size < 1:
        return None
    rows, lead = -(-size // phases), before % phases
    own = -(-(lead + extent) // phases)
    first = before // phases
    after = rows + _KERNEL_EXTENT - 1 - first - own
    if max(first, after) >= _KERNEL_EXTENT:
        return None
    places = (range(tap * phases - before, tap * phases - before + size) for tap in range(_KERNEL_EXTENT))
    met = sum(len(range(max(p.start, 0), min(p.stop, extent))) for p in places)
    return _Axis(phases, size, lead, own * phases - lead - extent, own, first, after, rows, met)


def _pays(axes: Sequence[_Axis]) -> bool:
    """Whether filtering, in whole tiles, takes few enough of the products that meet data."""
    least = min(math.prod(a.products(tile) for a in axes) for tile in _TILES)
    return least <= _MOST_PART_OF_TAPS_MET * math.prod(a.met for a in axes)


def _order(axes: Sequence[_Axis]) -> tuple[int, ...]:
    """``[n, c, h, p, w, q]`` with phases before the channels, or before their rows where they lie side by side."""
    places = [(2 + 2 * i, 3 + 2 * i, a.is_beside) for i, a in enumerate(axes)]
    batch = [phase for _, phase, beside in places if not beside]
    return (0, *batch, 1, *(i for row, phase, beside in places for i in ((phase, row) if beside else (row,))))


def _apart(x: Value, axes: Sequence[_Axis], site: Site) -> Value:
    """``[n, c, h * p, w * q]`` as images of phases."""
    images, channels = x.shape[:2]
    x = _padded(x, [(a.lead, a.tail) for a in axes], site)
    x = site.reshape(x, (images, channels, *(d for a in axes for d in (a.own, a.phases))))
    x = _padded(x, [pair for a in axes for pair in ((0, a.pitch - a.own), (0, 0))], site)
    stacked = math.prod(a.phases for a in axes if not a.is_beside)
    extents = (a.phases * a.pitch if a.is_beside else a.pitch for a in axes)
    return site.reshape(site.transpose(x, _order(axes)), (as_dim(lift(images) * stacked), channels, *extents))


def _together(y: Value, images: Dim, axes: Sequence[_Axis], site: Site) -> Value:
    """Images of phases as ``[n, c, h * p, w * q]``, cut off behind the end of the output."""
    channels, order = y.shape[1], _order(axes)
    rows = (a.pitch if a.is_beside else a.rows for a in axes)
    parts = (images, channels, *(d for own, a in zip(rows, axes, strict=True) for d in (own, a.phases)))
    y = site.transpose(site.reshape(y, [parts[i] for i in order]), [order.index(i) for i in range(len(order))])
    for i, axis in enumerate(axes):
        y = _cut(y, 2 + 2 * i, axis.rows, site)
    y = site.reshape(y, (images, channels, *(a.rows * a.phases for a in axes)))
    for i, axis in enumerate(axes):
        y = _cut(y, 2 + i, axis.size, site)
    return y


def _padded(x: Value, pads: Sequence[tuple[int, int]], site: Site) -> Value:
    """``x`` with zeros around all axes but the first two."""
    before, after = zip(*pads, strict=True)
    amounts = (0, 0, *before, 0, 0, *after)
    return site.node("Pad", x, site.integers(*amounts, name="pads")) if any(amounts) else x


def _cut(x: Value, axis: int, size: int, site: Site) -> Value:
    return x if x.shape[axis] == size else site.slice(x, axis, 0, size)
