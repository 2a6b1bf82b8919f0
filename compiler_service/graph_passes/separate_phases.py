"""Dilated convolutions as convolutions without dilation, of each phase of the image."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from compiler_service.graph_passes.attributes import int_attribute, ints_attribute, text_attribute
from compiler_service.graph_passes.operands import is_float
from compiler_service.graph_passes.pass_manager import Pass
from compiler_service.graph_passes.rewrite import Replacement, Site, rewrite, rule
from compiler_service.tensor_expr.window import Window, windows
from shared_ir.graph import Attribute, Graph, Node, Value

_KERNEL = 3
_TILES = (4, 2)
_GAIN = 0.6
"""Of the direct method's products, as many may be left: transforms and copies come on top."""


@dataclass(frozen=True)
class SeparatePhases(Pass):
    """``conv(x, dilation d)[u * d + r] = conv(x[:, r::d])[u]``: so that Winograd's filtering applies, which needs neighbours.

    The outputs at distance ``d`` from one another and all that they read are one phase of both; phases are images of a batch
    ("space to batch", Yu and Koltun, "Multi-Scale Context Aggregation by Dilated Convolutions", 2016, read backwards). Where an
    image is not a whole number of phases it is padded, and the result cut off.

    Attributes:
        least_image: rows and columns of a phase; smaller ones have too few tiles for a register block.
    """

    name: ClassVar[str] = "separate-phases"
    level: ClassVar[int] = 3

    least_image: int = 6

    def run(self, graph: Graph) -> Graph:
        return rewrite(graph, (rule("Conv", self._separated),))

    def _separated(self, node: Node, site: Site) -> Replacement:
        x, weight, *bias = node.operands
        phases = ints_attribute(node, "dilations", ())
        if max(phases, default=1) == 1 or not self._applies(node, site):
            return None
        found = windows(
            x.shape[2:],
            (_KERNEL, _KERNEL),
            auto_pad=text_attribute(node, "auto_pad", "NOTSET"),
            strides=None,
            dilations=phases,
            pads=ints_attribute(node, "pads", (0,) * 4),
        )
        axes = [axis for window in found if (axis := _axis(window)) is not None]
        if len(axes) < 2 or min(a.rows for a in axes) < self.least_image or not _pays(axes):
            return None
        attributes: dict[str, Attribute] = {
            "pads": (*(a.before for a in axes), *(a.after for a in axes)),
            "group": int_attribute(node, "group", 1),
        }
        batch = _to_batch(x, axes, site)
        return _from_batch(site.node("Conv", (batch, weight, *bias), attributes), x, axes, site)

    def _applies(self, node: Node, site: Site) -> bool:
        x, weight = node.operands[:2]
        steps = ints_attribute(node, "strides", (1, 1))
        known = site.array(weight) is not None and is_float(x) and weight.shape[2:] == (_KERNEL, _KERNEL)
        return known and set(steps) == {1} and weight.shape[1] != 1 and "layout" not in node.attributes


@dataclass(frozen=True)
class _Axis:
    """One axis of the image in phases.

    Attributes:
        phases: their number, the dilation.
        size: of the output.
        rows: of a phase of the output.
        lead, tail: zeros around the data, which make it ``phases`` times as many rows.
        before, after: rows of padding of a phase.
    """

    phases: int
    size: int
    rows: int
    lead: int
    tail: int
    before: int
    after: int


def _axis(window: Window) -> _Axis | None:
    """None where an extent is not known."""
    extent, before, count, phases = window.extent, window.before, window.count, window.dilation
    if not (isinstance(extent, int) and isinstance(before, int) and isinstance(count, int)) or count < 1:
        return None
    rows = -(-count // phases)
    lead = before % phases
    own = -(-(lead + extent) // phases)
    after = rows + _KERNEL - 1 - before // phases - own
    return _Axis(phases, count, rows, lead, own * phases - lead - extent, before // phases, after)


def _pays(axes: Sequence[_Axis]) -> bool:
    """Whether filtering of the phases, in whole tiles, takes few enough products."""
    least = min(math.prod(-(-a.rows // m) * (m + _KERNEL - 1) * a.phases for a in axes) for m in _TILES)
    return least <= _GAIN * math.prod(_KERNEL * a.size for a in axes)


def _to_batch(x: Value, axes: Sequence[_Axis], site: Site) -> Value:
    """``[n, c, h * p, w * q] -> [n * p * q, c, h, w]``"""
    images, channels = x.shape[:2]
    (p, q), (top, left) = ([getattr(a, name) for a in axes] for name in ("phases", "lead"))
    if any(a.lead or a.tail for a in axes):
        amounts = (0, 0, top, left, 0, 0, *(a.tail for a in axes))
        x = site.node("Pad", (x, site.integers(amounts, "pads")))
    h, w = (d // a.phases for d, a in zip(x.shape[2:], axes, strict=True))
    parts = site.transpose(site.reshape(x, (images, channels, h, p, w, q)), (0, 3, 5, 1, 2, 4))
    return site.reshape(parts, (images * p * q, channels, h, w))


def _from_batch(y: Value, x: Value, axes: Sequence[_Axis], site: Site) -> Value:
    """``[n * p * q, c, h, w] -> [n, c, h * p, w * q]``, cut off behind the end of the output."""
    images, channels, p, q = x.shape[0], y.shape[1], *(a.phases for a in axes)
    h, w = y.shape[2:]
    parts = site.transpose(site.reshape(y, (images, p, q, channels, h, w)), (0, 3, 4, 1, 5, 2))
    whole = site.reshape(parts, (images, channels, h * p, w * q))
    for axis, own in enumerate(axes, start=2):
        if own.rows * own.phases > own.size:
            whole = site.slice(whole, axis, 0, own.size)
    return whole
