"""Windows of convolutions: what is padding for all of them need not be multiplied.

::

    Conv(Pad(x, 0), w)  ->  Conv(x, w)            with more pads
    Conv(x, w)          ->  Conv(x, w[a:b])       with fewer pads, where the taps before a and from b on meet only padding
    ConvTranspose(x, w) ->  Conv(x, w[::-1])      of stride 1
    ConvTranspose(x, w) ->  ConvTranspose(x, w')  with zeros behind a window narrower than its stride
    ConvTranspose(x, w) ->  Conv(x, w[r::s]) for each phase r of the outputs, interleaved, where some have fewer taps than others
"""

from __future__ import annotations

import math

import numpy as np

from compiler_service.compiler.graph_passes.algebra.transposed_windows import MOST_PHASES, Transposed
from compiler_service.compiler.graph_passes.rewriting.attributes import (
    int_attribute,
    ints_attribute,
    is_channels_first,
    text_attribute,
)
from compiler_service.compiler.graph_passes.rewriting.operands import integer_operand
from compiler_service.compiler.graph_passes.rewriting.rewrite import Replacement, RewriteRule, Site, rule
from compiler_service.compiler.tensor_expr.operators.window import Window, windows
from shared_ir.expr.dim import numbers_of
from shared_ir.graph.ir import Attribute, Node


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
    if any(begins[:2]) or any(ends[:2]) or min(amounts) < 0 or not _has_own_pads(node):
        return None
    spatial = rank - 2
    own = ints_attribute(node, "pads", (0,) * (2 * spatial))
    pads = tuple(a + b for a, b in zip(own, (*begins[2:], *ends[2:]), strict=True))
    return site.write("Conv", (x, *node.inputs[1:]), {**node.attributes, "pads": pads})


def _has_own_pads(node: Node) -> bool:
    """Whether ``pads`` says what is padded, of rows and columns behind the channels."""
    return text_attribute(node, "auto_pad", "NOTSET") == "NOTSET" and is_channels_first(node)


def _taps_in_padding(node: Node, site: Site) -> Replacement:
    """Taps at the ends of a window that meet only padding go: those of a dilation as large as the image, or of planes that a
    volume does not have."""
    x, weight, *bias = node.operands
    kernel = numbers_of(weight.shape[2:])
    if kernel is None or len(kernel) != x.type.rank - 2 or not node.attributes.get("pads") or not _has_own_pads(node):
        return None
    ones = (1,) * len(kernel)
    strides, dilations = (ints_attribute(node, name, ones) for name in ("strides", "dilations"))
    pads = ints_attribute(node, "pads", (0,) * (2 * len(kernel)))
    found = windows(x.shape[2:], kernel, auto_pad="NOTSET", strides=strides, dilations=dilations, pads=pads)
    taps = [_met_taps(window, size) for window, size in zip(found, kernel, strict=True)]
    if all(len(met) == window.kernel for met, window in zip(taps, found, strict=True)):
        return None
    for axis, met in enumerate(taps):
        if len(met) < kernel[axis]:
            weight = site.slice(weight, axis + 2, met.start, met.stop)
    begins = [pad - met.start * d for pad, met, d in zip(pads[: len(kernel)], taps, dilations, strict=True)]
    ends = [
        pad - (size - met.stop) * d
        for pad, met, size, d in zip(pads[len(kernel) :], taps, kernel, dilations, strict=True)
    ]
    attributes = {"pads": (*begins, *ends), "strides": strides, "dilations": dilations}
    return site.write("Conv", (x, weight, *bias), {**attributes, "group": int_attribute(node, "group", 1)})


def _met_taps(window: Window, kernel: int) -> range:
    """The taps between the first and the last that meet data in some window; all of them where that is not known, or where pads
    would have to be negative."""
    extent, count, before, after = window.extent, window.count, window.before, window.after
    every = range(kernel)
    if not (isinstance(extent, int) and isinstance(count, int) and isinstance(before, int) and isinstance(after, int)):
        return every
    met = [tap for tap in every if _meets(tap * window.dilation - before, window.stride, count, extent)]
    first = min(met[0] if met else 0, before // window.dilation)
    spare = min(kernel - 1 - met[-1] if met else 0, after // window.dilation)
    return range(first, kernel - spare)


def _meets(first: int, stride: int, count: int, extent: int) -> bool:
    """Whether one of ``count`` places from ``first`` on lies in an axis of ``extent`` elements."""
    skipped = max(0, -(first // stride))
    return skipped < count and first + skipped * stride < extent


def _transposed(node: Node, site: Site) -> Transposed | None:
    return Transposed.of(node, site) if is_channels_first(node) else None


def _transposed_of_stride_one(node: Node, site: Site) -> Replacement:
    """Every output sees the window back to front."""
    found = _transposed(node, site)
    if found is None or max(found.strides) > 1:
        return None
    reach = [(k - 1) * d for k, d in zip(found.kernel, found.dilations, strict=True)]
    before = tuple(r - p for r, p in zip(reach, found.begins, strict=True))
    after = tuple(r - p + m for r, p, m in zip(reach, found.ends, found.more, strict=True))
    if min(*before, *after) < 0:
        return None
    weight = np.flip(_of_convolution(found.weight, found.group), tuple(range(2, 2 + len(reach))))
    attributes: dict[str, Attribute] = {"pads": (*before, *after), "dilations": found.dilations, "group": found.group}
    x, _, *bias = node.operands
    return site.write("Conv", (x, site.constant(np.ascontiguousarray(weight)), *bias), attributes)


def _narrow_transposed(node: Node, site: Site) -> Replacement:
    """A window narrower than its stride leaves outputs to the bias alone; with zeros behind it all are computed alike."""
    found = _transposed(node, site)
    if found is None or max(found.dilations) > 1:
        return None
    missing = tuple(max(0, s - k) for k, s in zip(found.kernel, found.strides, strict=True))
    if not any(missing) or math.prod(found.strides) > MOST_PHASES:
        return None
    weight = np.pad(found.weight, ((0, 0), (0, 0), *((0, n) for n in missing)))
    x, _, *bias = node.operands
    attributes: dict[str, Attribute] = {**node.attributes, "kernel_shape": weight.shape[2:]}
    result = site.write("ConvTranspose", (x, site.constant(weight), *bias), attributes)
    for axis, more in enumerate(missing, start=2):
        if more:
            result = site.slice(result, axis, 0, node.results[0].shape[axis])
    return result


def _phases_of_transposed(node: Node, site: Site) -> Replacement:
    """Outputs at distance ``stride`` from one another see the same taps; a window that is no multiple of the stride has fewer for
    some of them than for others, and zeros in their place would be multiplied."""
    window = _transposed(node, site)
    if window is None or max(window.dilations) > 1:
        return None
    kernel, strides, group = window.kernel, window.strides, window.group
    uneven = any(k % s for k, s in zip(kernel, strides, strict=True))
    if not uneven or any(k < s for k, s in zip(kernel, strides, strict=True)):
        return None
    found = window.phases()
    if found is None:
        return None
    x, _, *bias = node.operands
    turned = _of_convolution(window.weight, group)
    parts = []
    for phase in found:
        attributes: dict[str, Attribute] = {"pads": phase.pads, "group": group}
        parts.append(site.write("Conv", (x, site.constant(phase.of(turned)), *bias), attributes))
    return window.interleaved(parts, node.results[0].shape, site)


def _of_convolution(weight: np.ndarray, group: int) -> np.ndarray:
    """``[ic, oc / group, ..]`` as the weights ``[oc, ic / group, ..]`` of a convolution."""
    channels, outputs, *kernel = weight.shape
    apart = weight.reshape(group, channels // group, outputs, *kernel).swapaxes(1, 2)
    return np.ascontiguousarray(apart).reshape(group * outputs, channels // group, *kernel)


WINDOW_RULES: tuple[RewriteRule, ...] = (
    rule("Conv", _padded_convolution),
    rule("Conv", _taps_in_padding),
    rule("ConvTranspose", _transposed_of_stride_one),
    rule("ConvTranspose", _narrow_transposed),
    rule("ConvTranspose", _phases_of_transposed),
)
