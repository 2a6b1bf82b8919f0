"""Rules of data movement: transposes merge, everything that only renames axes becomes a Reshape."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from compiler_service.compiler.graph_passes.rewriting.attributes import int_attribute
from compiler_service.compiler.graph_passes.rewriting.operands import integer_operand, moves_nothing, permutation
from compiler_service.compiler.graph_passes.rewriting.rewrite import Replacement, RewriteRule, Site, rule
from shared_ir.expr.dim import Dim, product
from shared_ir.graph.ir import Node, Value


def _transpose(node: Node, site: Site) -> Replacement:
    (x,) = node.operands
    perm = permutation(node)
    if perm == tuple(range(len(perm))):
        return x
    inner = site.producer(x, "Transpose")
    if inner is not None:
        first = permutation(inner)
        return site.transpose(inner.operands[0], [first[p] for p in perm])
    if moves_nothing(x.shape, perm):
        return site.reshape(x, node.results[0].shape)
    return None


def _to_reshape(node: Node, site: Site) -> Replacement:
    return site.reshape(node.operands[0], node.results[0].shape)


def _reshape(node: Node, site: Site) -> Replacement:
    x = node.operands[0]
    if x.type == node.results[0].type:
        return x
    inner = site.producer(x, "Reshape")
    return None if inner is None else site.reshape(inner.operands[0], node.results[0].shape)


def _input_reshaped(node: Node, site: Site) -> Replacement:
    """A view of what comes from outside costs nothing, and what converts it can be calculated where it is read."""
    inner = site.producer(node.operands[0], "Cast")
    if inner is None or not site.only_user(node.operands[0]):
        return None
    before = site.producer(inner.operands[0], "Reshape")
    source = inner.operands[0] if before is None else before.operands[0]
    if site.producer(source) is not None:
        return None
    return site.write("Cast", (site.reshape(source, node.results[0].shape),), inner.attributes, title=inner.name)


def _reshape_around(node: Node, site: Site) -> Replacement:
    """Axes of extent 1 that come and go for the sake of a constant: it is reshaped instead."""
    inner = site.producer(node.operands[0], "Add", "Mul")
    if inner is None or not site.only_user(node.operands[0]) or len(inner.operands) != 2:
        return None
    for view, other in (inner.operands, inner.operands[::-1]):
        before, array = site.producer(view, "Reshape"), site.array(other)
        if before is None or array is None or not site.only_user(view) or view.type != inner.results[0].type:
            continue
        x = before.operands[0]
        shape = _without_units(array.shape, view.shape, x.shape)
        if shape is not None and x.type == node.results[0].type:
            return site.node(inner.op, x, site.constant(array.reshape(shape), other.name))
    return None


def _without_units(shape: Sequence[int], view: Sequence[Dim], plain: Sequence[Dim]) -> tuple[int, ...] | None:
    """``shape``, which broadcasts to ``view``, as it broadcasts to ``plain``, which has other axes of extent 1."""
    own = (*(1,) * (len(view) - len(shape)), *shape)
    found: list[int] = []
    left = list(plain)
    for extent, size in zip(view, own, strict=True):
        while left and left[0] == 1 and extent != 1:
            found.append(1)
            left.pop(0)
        if left and left[0] == extent:
            found.append(size)
            left.pop(0)
        elif extent != 1:
            return None
    return (*found, *(1,) * len(left)) if all(d == 1 for d in left) else None


def _same_type(node: Node, site: Site) -> Replacement:
    x = node.operands[0]
    return x if x.type == node.results[0].type else None


def _whole_slice(node: Node, site: Site) -> Replacement:
    forward = len(node.inputs) < 5 or node.inputs[4] is None or min(integer_operand(node, 4, site) or (-1,)) > 0
    return _same_type(node, site) if forward else None


def _no_padding(node: Node, site: Site) -> Replacement:
    amounts = integer_operand(node, 1, site)
    return _same_type(node, site) if amounts is not None and not any(amounts) else None


def _concat(node: Node, site: Site) -> Replacement:
    return node.operands[0] if len(node.operands) == 1 else None


def _concat_of_slices(node: Node, site: Site) -> Replacement:
    """Slices that follow each other in one value are one slice of it."""
    axis = int_attribute(node, "axis") % node.results[0].type.rank
    joined: list[Slice] = []
    for value in node.operands:
        part = _slice_along(value, axis, site)
        if joined and joined[-1].source == part.source and joined[-1].stop == part.start:
            joined[-1] = Slice(None, part.source, joined[-1].start, part.stop)
        else:
            joined.append(part)
    if len(joined) == len(node.operands):
        return None
    operands = [s.value or _sliced(s, axis, site) for s in joined]
    return operands[0] if len(operands) == 1 else site.write("Concat", operands, node.attributes)


class Slice(NamedTuple):
    """``source[start:stop]`` along an axis; ``value`` where a value of the graph is that."""

    value: Value | None
    source: Value
    start: int
    stop: Dim


def _slice_along(value: Value, axis: int, site: Site) -> Slice:
    """``value`` as a slice along ``axis`` alone; the whole of itself where it is none."""
    node = site.producer(value, "Slice")
    found = None if node is None else slice_of(node, axis, site)
    return found or Slice(value, value, 0, value.shape[axis])


def slice_of(node: Node, axis: int, site: Site) -> Slice | None:
    """What the ``Slice`` ``node`` takes, if that is along ``axis`` alone, between numbers."""
    numbers = [integer_operand(node, i, site) for i in range(1, len(node.inputs))]
    source, value = node.operands[0], node.results[0]
    extent = source.shape[axis]
    if len(numbers) < 3 or not isinstance(extent, int) or any(n is None or len(n) != 1 for n in numbers):
        return None
    start, stop, along, *step = (n[0] for n in numbers if n is not None)
    if along % value.type.rank != axis or any(s != 1 for s in step):
        return None
    start, stop, _ = slice(start, stop).indices(extent)
    return Slice(value, source, start, max(start, stop))


def _sliced(part: Slice, axis: int, site: Site) -> Value:
    is_whole = part.start == 0 and part.stop == part.source.shape[axis]
    return part.source if is_whole else site.slice(part.source, axis, part.start, part.stop)


def _split_behind(node: Node, site: Site) -> Replacement:
    """What splits axes after a transpose splits them before it: often they merged just for that, as those of batched products."""
    moved = site.producer(node.operands[0], "Transpose")
    view = None if moved is None else site.producer(moved.operands[0], "Reshape")
    if moved is None or view is None or not site.only_user(node.operands[0]):
        return None
    shape, perm = node.results[0].shape, permutation(moved)
    groups = _merged_axes(shape, moved.results[0].shape)
    if groups is None:
        return None
    before = [axis for p in range(len(perm)) for axis in groups[perm.index(p)]]
    split = site.reshape(view.operands[0], [shape[axis] for axis in before])
    return site.transpose(split, [before.index(axis) for axis in range(len(shape))])


def _merged_axes(shape: Sequence[Dim], merged: Sequence[Dim]) -> list[list[int]] | None:
    """For each extent of ``merged`` the axes of ``shape`` that it is the product of, None where axes are cut."""
    groups: list[list[int]] = []
    axis = 0
    for extent in merged:
        group: list[int] = []
        while axis < len(shape) and (not group or product(shape[a] for a in group) != extent):
            group.append(axis)
            axis += 1
        if not group or product(shape[a] for a in group) != extent:
            return None
        groups.append(group)
    return groups if axis == len(shape) else None


def _slice_reshaped(node: Node, site: Site) -> Replacement:
    """The sliced axis is split in pieces none of which is cut: whoever reads the slice finds it by an offset."""
    value, shape = node.operands[0], node.results[0].shape
    inner = site.producer(value, "Slice")
    cut = () if inner is None else [a for a, n in enumerate(inner.operands[0].shape) if n != value.shape[a]]
    if len(cut) != 1 or len(shape) <= value.type.rank or not site.only_user(value):
        return None
    axis, behind = cut[0], len(shape) - value.type.rank + cut[0] + 1
    piece = [d for d in shape[axis + 1 : behind] if isinstance(d, int)]
    if shape[:axis] != value.shape[:axis] or shape[behind:] != value.shape[axis + 1 :]:
        return None
    part, size = _slice_along(value, axis, site), math.prod(piece)
    extent = part.source.shape[axis]
    if part.source == value or not isinstance(extent, int) or len(piece) != behind - axis - 1:
        return None
    if size == 0 or any(n % size for n in (extent, part.start, part.stop)):
        return None
    split = site.reshape(part.source, (*shape[:axis], extent // size, *shape[axis + 1 :]))
    return site.slice(split, axis, part.start // size, part.stop // size)


def _split(node: Node, site: Site) -> Replacement:
    """Parts of equal or given size become slices, which fuse into whoever reads them."""
    x = node.operands[0]
    axis = int_attribute(node, "axis") % x.type.rank
    start: Dim = 0
    parts: list[Value | None] = []
    for value in node.outputs:
        if value is None:
            return None
        stop = start + value.shape[axis]
        parts.append(site.slice(x, axis, start, stop))
        start = stop
    return tuple(parts)


def _tiled(node: Node, site: Site) -> Replacement:
    """Tile(x) of extents that only the run knows: whole copies, where each element would be divided by the extent."""
    x, counts = node.operands[0], site.array(node.operands[1])
    if counts is None or all(n == 1 or isinstance(d, int) for n, d in zip(counts, x.shape, strict=True)):
        return None
    axes = [(int(n), d) for n, d in zip(counts, x.shape, strict=True)]
    narrow = [e for n, d in axes for e in ((1, d) if n != 1 else (d,))]
    wide = [e for n, d in axes for e in ((n, d) if n != 1 else (d,))]
    copies = site.node("Expand", site.reshape(x, narrow), site.dims(wide), title=node.name)
    return site.reshape(copies, node.results[0].shape)


MOVEMENT_RULES: tuple[RewriteRule, ...] = (
    rule("Transpose", _transpose),  # T(T(x, p), q) -> T(x, p∘q); T(x, identity) -> x; only unit axes move -> Reshape
    rule("Squeeze Unsqueeze Flatten", _to_reshape),  # Squeeze(x) -> Reshape(x, shape)
    rule("Reshape", _reshape),  # Reshape(Reshape(x)) -> Reshape(x); Reshape(x, its own shape) -> x
    rule("Reshape", _input_reshaped),  # Reshape(Cast(input)) -> Cast(Reshape(input))
    rule("Reshape", _reshape_around),  # Reshape(Reshape(x) + c) -> x + Reshape(c) where only unit axes come and go
    rule("Reshape", _split_behind),  # Reshape(Transpose(Reshape(x))) -> Transpose(Reshape(x)) where axes split
    rule("Reshape", _slice_reshaped),  # Reshape(x[a * n:b * n], [b - a, n]) -> Reshape(x, [m, n])[a:b]
    rule("Expand Tile", _same_type),  # Expand(x, its own shape) -> x
    rule("Tile", _tiled),  # Tile(x, n) -> Reshape(Expand(Reshape(x, [1, d]), [n, d]), [n * d])
    rule("Slice", _whole_slice),  # Slice(x, all of it) -> x
    rule("Pad", _no_padding),  # Pad(x, 0) -> x
    rule("Concat", _concat),  # Concat(x) -> x
    rule("Concat", _concat_of_slices),  # Concat(x[:a], x[a:b], y) -> Concat(x[:b], y)
)

SPLIT_RULES: tuple[RewriteRule, ...] = (
    rule("Split", _split),  # Split(x) -> Slice(x), Slice(x), ...
)
