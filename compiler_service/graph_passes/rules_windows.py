"""Windows of convolutions: what is padding for all of them need not be multiplied.

::

    Conv(Pad(x, 0), w)  ->  Conv(x, w)            with more pads
    Conv(x, w)          ->  Conv(x, w[a:b])       with fewer pads, where the taps before a and from b on meet only padding
"""

from __future__ import annotations

from compiler_service.graph_passes.attributes import int_attribute, ints_attribute, text_attribute
from compiler_service.graph_passes.operands import integer_operand
from compiler_service.graph_passes.rewrite import Replacement, Rule, Site, rule
from compiler_service.tensor_expr.window import Window, windows
from shared_ir.graph import Node


def _padded_convolution(node: Node, site: Site) -> Replacement:
    """Zero padding of the spatial axes moves into the convolution."""
    pad = site.producer(node.inputs[0], "Pad")
    if pad is None or not site.only_user(node.inputs[0]) or pad.attributes.get("mode", "constant") != "constant":
        return None
    x, amounts = pad.operands[0], integer_operand(pad, 1, site)
    fill = pad.inputs[2] if len(pad.inputs) > 2 else None
    if amounts is None or len(pad.inputs) > 3 or (fill is not None and site.scalar(fill) != 0):
        return None
    rank = x.type.rank
    begins, ends = amounts[:rank], amounts[rank:]
    if any(begins[:2]) or any(ends[:2]) or min(amounts) < 0 or node.attributes.get("auto_pad", "NOTSET") != "NOTSET":
        return None
    spatial = rank - 2
    own = ints_attribute(node, "pads", (0,) * (2 * spatial))
    pads = tuple(a + b for a, b in zip(own, (*begins[2:], *ends[2:]), strict=True))
    return site.node("Conv", (x, *node.inputs[1:]), {**node.attributes, "pads": pads})


def _taps_in_padding(node: Node, site: Site) -> Replacement:
    """Taps at the ends of a window that meet only padding go: those of a dilation as large as the image, or of planes that a
    volume does not have."""
    x, weight, *bias = node.operands
    kernel = tuple(d for d in weight.shape[2:] if isinstance(d, int))
    if len(kernel) != x.type.rank - 2 or not node.attributes.get("pads"):
        return None
    ones = (1,) * len(kernel)
    strides, dilations = (ints_attribute(node, name, ones) for name in ("strides", "dilations"))
    pads = ints_attribute(node, "pads", (0,) * (2 * len(kernel)))
    auto_pad = text_attribute(node, "auto_pad", "NOTSET")
    found = windows(x.shape[2:], kernel, auto_pad=auto_pad, strides=strides, dilations=dilations, pads=pads)
    taps = [_met_taps(window) for window in found]
    if all(len(met) == window.kernel for met, window in zip(taps, found, strict=True)):
        return None
    for axis, met in enumerate(taps):
        if len(met) < kernel[axis]:
            weight = site.slice(weight, axis + 2, met.start, met.stop)
    begins = [pad - met.start * d for pad, met, d in zip(pads, taps, dilations, strict=False)]
    ends = [
        pad - (size - met.stop) * d
        for pad, met, size, d in zip(pads[len(kernel) :], taps, kernel, dilations, strict=True)
    ]
    attributes = {"pads": (*begins, *ends), "strides": strides, "dilations": dilations}
    return site.node("Conv", (x, weight, *bias), {**attributes, "group": int_attribute(node, "group", 1)})


def _met_taps(window: Window) -> range:
    """The taps between the first and the last that meet data in some window; all of them where that is not known, or where pads
    would have to be negative."""
    extent, count, before, after = window.extent, window.count, window.before, window.after
    every = range(window.kernel)
    if not (isinstance(extent, int) and isinstance(count, int) and isinstance(before, int) and isinstance(after, int)):
        return every
    met = [tap for tap in every if _meets(tap * window.dilation - before, window.stride, count, extent)]
    first = min(met[0] if met else 0, before // window.dilation)
    spare = min(window.kernel - 1 - met[-1] if met else 0, after // window.dilation)
    return range(first, window.kernel - spare)


def _meets(first: int, stride: int, count: int, extent: int) -> bool:
    """Whether one of ``count`` places from ``first`` on lies in an axis of ``extent`` elements."""
    skipped = max(0, -(first // stride))
    return skipped < count and first + skipped * stride < extent


WINDOW_RULES: tuple[Rule, ...] = (
    rule("Conv", _padded_convolution),
    rule("Conv", _taps_in_padding),
)
