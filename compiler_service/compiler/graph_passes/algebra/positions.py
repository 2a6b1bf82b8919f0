"""Positions that follow a rule: what they name is moved in one piece.

Positions that are the same all along the other axes move whole slices, not elements. Graph networks say so with an expanded
index: ``y[i[e], f] += u[e, f]``, for every edge ``e`` and all features ``f``. Positions that count upwards name a slice;
exported masks are full of them.
"""

from __future__ import annotations

import numpy as np

from compiler_service.compiler.graph_passes.rewriting.attributes import int_attribute, text_attribute
from compiler_service.compiler.graph_passes.rewriting.rewrite import Replacement, RewriteRule, Site, rule
from shared_ir.graph.ir import Node, Value


def _counted(node: Node, site: Site) -> Replacement:
    x, indices = node.operands
    axis = int_attribute(node, "axis") % x.type.rank
    numbers, extent = site.array(indices), x.shape[axis]
    if numbers is None or numbers.size < 2 or not isinstance(extent, int):
        return None
    places = np.where(numbers < 0, numbers + extent, numbers).reshape(-1)
    start, stop = int(places[0]), int(places[0]) + places.size
    if start < 0 or stop > extent or (places != np.arange(start, stop)).any():
        return None
    return site.reshape(site.slice(x, axis, start, stop), node.results[0].shape)


def _gathered_slices(node: Node, site: Site) -> Replacement:
    x, indices = node.operands
    axis = int_attribute(node, "axis") % x.type.rank
    positions = _of_slices(indices, x, axis, site)
    return None if positions is None else site.node("Gather", x, positions, axis=axis)


def _scattered_slices(node: Node, site: Site) -> Replacement:
    data, indices, updates = node.operands
    axis = int_attribute(node, "axis") % data.type.rank
    positions = _of_slices(indices, data, axis, site)
    if positions is None or axis > 0 or updates.shape != indices.shape:
        return None
    rows = site.reshape(positions, (indices.shape[0], 1))
    return site.node("ScatterND", data, rows, updates, reduction=text_attribute(node, "reduction", "none"))


def _of_slices(indices: Value, data: Value, axis: int, site: Site) -> Value | None:
    """The positions along ``axis``, a vector, where ``indices`` repeats them all along the other axes of ``data``."""
    expanded = site.producer(indices, "Expand")
    if expanded is None or indices.type.rank != data.type.rank:
        return None
    source = expanded.operands[0]
    own = (1,) * (indices.type.rank - source.type.rank) + source.shape
    others = [a for a in range(data.type.rank) if a != axis]
    whole = all(own[a] == 1 and indices.shape[a] == data.shape[a] for a in others)
    if not whole or own[axis] != indices.shape[axis]:
        return None
    return site.reshape(source, (indices.shape[axis],))


POSITION_RULES: tuple[RewriteRule, ...] = (
    rule("Gather", _counted),  # y[i, j] = x[c + n i + j] -> Reshape(x[c : c + m n])
    rule("GatherElements", _gathered_slices),  # y[e, f] = x[i[e], f]
    rule("ScatterElements", _scattered_slices),  # y = x; y[i[e], f] = u[e, f]
)
