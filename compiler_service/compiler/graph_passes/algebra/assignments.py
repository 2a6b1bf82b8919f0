"""Assignments to a part of a tensor, which exporters write as scattering: what is not assigned to is kept, in one piece.

::

    x[..] = u           ScatterND(x, positions of x, u)         ->  Reshape(u)
    x[.., a:b] = u      ScatterND(x, positions of x[a:b], u)    ->  Concat(x[:a], u, x[b:]), x[a:b] with u where that is a part
    x[.., r::s] = u     ScatterND(x, positions of x[r::s], u)   ->  Concat(y[:r], u, y[r + 1:]),  y = Reshape(x, [n, s])
    Concat(.., y, ..)[a:b]                                      ->  y[c:d], where that is all; Concat(..) of whole parts

A loop over rows that is written out assigns to one row after the other: the parts of a concatenation are replaced, and with the last
row nothing is left of what was there first.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from compiler_service.compiler.graph_passes.algebra.movement import slice_of
from compiler_service.compiler.graph_passes.rewriting.attributes import int_attribute, text_attribute
from compiler_service.compiler.graph_passes.rewriting.rewrite import Replacement, RewriteRule, Site, rule
from shared_ir.dtype import DType
from shared_ir.expr.dim import Dim, numbers_of
from shared_ir.graph.ir import Node, Value

_MOST_PARTS = 64
"""Largest number of operands of a concatenation that is looked through: a long chain of them would take the square of its length."""
_MOST_PLACES = 1 << 24
"""Largest number of elements assigned to whose indices are looked at."""


def _places_of(columns: Sequence[np.ndarray], extents: Sequence[int]) -> tuple[range, ...] | None:
    """The places along each axis, all combinations of which ``columns``, the indices along each, name in order and once."""
    if columns[0].size > _MOST_PLACES:
        return None
    columns = [_counted_from_zero(c, extent) for c, extent in zip(columns, extents, strict=True)]
    ranges = tuple(_range_of(np.unique(_distinct(c))) for c in columns)
    shape = tuple(len(r) for r in ranges)
    if math.prod(shape) != columns[0].size or 0 in shape:
        return None
    for axis, (own, column, extent) in enumerate(zip(ranges, columns, extents, strict=True)):
        wanted = np.array(own).reshape([-1 if a == axis else 1 for a in range(len(shape))])
        if not 0 <= own[0] <= own[-1] < extent or (column.reshape(shape) != wanted).any():
            return None
    return ranges


def _counted_from_zero(column: np.ndarray, extent: int) -> np.ndarray:
    return np.where(column < 0, column + extent, column) if _distinct(column).min(initial=0) < 0 else column


def _distinct(array: np.ndarray) -> np.ndarray:
    """Without the axes along which a view repeats itself."""
    return array[tuple(slice(1 if step == 0 else None) for step in array.strides)]


def _range_of(numbers: np.ndarray) -> range:
    """The range with the ends and the first step of ascending ``numbers``."""
    if len(numbers) == 0:
        return range(0)
    step = int(numbers[1] - numbers[0]) if len(numbers) > 1 else 1
    return range(int(numbers[0]), int(numbers[-1]) + 1, step)


def _assigned(node: Node, site: Site) -> Replacement:
    data, indices, updates = node.operands
    if text_attribute(node, "reduction", "none") != "none" or "axis" in node.attributes or data.dtype is DType.STRING:
        return None
    columns = _columns(indices, site)
    extents = [d for d in data.shape[: len(columns)] if isinstance(d, int)]
    places = _places_of(columns, extents) if len(extents) == len(columns) > 0 else None
    view = None if places is None else _view(data.shape, places)
    if view is None:
        return None
    values = site.reshape(
        updates, tuple(d if p is None else len(p) for d, p in zip(view.shape, view.places, strict=True))
    )
    partial = [(axis, p) for axis, p in enumerate(view.places) if p is not None and len(p) != view.shape[axis]]
    if view.shape == data.shape:
        return _replaced(data, partial, values, site)
    return site.reshape(_replaced(site.reshape(data, view.shape), partial, values, site), data.shape)


def _columns(indices: Value, site: Site) -> Sequence[np.ndarray]:
    """``indices[.., k]`` along each axis, none where they are not constant; views, where elements are repeated: exporters name
    every element that an assignment goes to."""
    positions = site.array(indices)
    if positions is not None:
        return tuple(np.moveaxis(positions, -1, 0))
    joined = site.producer(indices, "Concat")
    if joined is None or int_attribute(joined, "axis") % indices.type.rank != indices.type.rank - 1:
        return ()
    columns = [_repeated(v, site) for v in joined.operands if v.shape[-1] == 1]
    found = [c[..., 0] for c in columns if c is not None]
    return found if len(found) == len(joined.operands) else ()


def _repeated(value: Value, site: Site) -> np.ndarray | None:
    """A constant, or what an ``Expand`` and a ``Reshape`` make of one."""
    shape = numbers_of(value.shape)
    array = site.array(value)
    if array is not None or shape is None:
        return array
    view = site.producer(value, "Reshape")
    repeated = site.producer(value if view is None else view.operands[0], "Expand")
    array = None if repeated is None else site.array(repeated.operands[0])
    if repeated is None or array is None:
        return None
    whole = numbers_of(repeated.results[0].shape)
    return None if whole is None else np.broadcast_to(array, whole).reshape(shape)


@dataclass(frozen=True)
class _View:
    """A tensor in which every ``s``-th place along an axis is one place along an axis of its own; ``places`` along each axis, None
    for all of an extent that may be unknown."""

    shape: tuple[Dim, ...]
    places: tuple[range | None, ...]


def _view(shape: Sequence[Dim], named: Sequence[range]) -> _View | None:
    extents: list[Dim] = []
    places: list[range | None] = []
    for extent, own in itertools.zip_longest(shape, named):
        step = 1 if own is None else own.step
        if step == 1:
            extents.append(extent)
            places.append(own)
            continue
        if own.start >= step or len(own) * step != extent:
            return None
        extents += (len(own), step)
        places += (range(len(own)), range(own.start, own.start + 1))
    return _View(tuple(extents), tuple(places))


def _replaced(data: Value, partial: Sequence[tuple[int, range]], values: Value, site: Site) -> Value:
    """``data`` with ``values`` at the places that ``partial`` names along some axes."""
    if not partial:
        return values
    (axis, places), *rest = partial
    parts, extent = _parts_of(data, axis, site), data.shape[axis]
    assert isinstance(extent, int)
    before, after = (_between(parts, a, b, axis, site) for a, b in ((0, places.start), (places.stop, extent)))
    if rest:
        own = _joined(_between(parts, places.start, places.stop, axis, site), axis, site)
        values = _replaced(own, rest, values, site)
    return _joined((*before, values, *after), axis, site)


def _joined(parts: Sequence[Value], axis: int, site: Site) -> Value:
    return parts[0] if len(parts) == 1 else site.node("Concat", *parts, axis=axis)


def _slice_of_parts(node: Node, site: Site) -> Replacement:
    """A slice of a concatenation along the same axis that is in one part, or has whole parts."""
    source, value = node.operands[0], node.results[0]
    cut = [a for a, d in enumerate(source.shape) if d != value.shape[a]]
    part = slice_of(node, cut[0], site) if len(cut) == 1 else None
    parts = () if part is None else _parts_of(source, cut[0], site)
    if part is None or len(parts) < 2 or not isinstance(part.stop, int) or part.start >= part.stop:
        return None
    found = _between(parts, part.start, part.stop, cut[0], site, whole=True)
    return _joined(found, cut[0], site) if found else None


def _parts_of(value: Value, axis: int, site: Site) -> tuple[Value, ...]:
    """What ``value`` is joined from along ``axis``, by numbers: itself where it is not."""
    node = site.producer(value, "Concat")
    if node is None or len(node.operands) > _MOST_PARTS or int_attribute(node, "axis") % value.type.rank != axis:
        return (value,)
    return node.operands if all(isinstance(v.shape[axis], int) for v in node.operands) else (value,)


def _between(
    parts: Sequence[Value], start: int, stop: int, axis: int, site: Site, *, whole: bool = False
) -> list[Value]:
    """``Concat(parts)[start:stop]`` in parts; nothing where ``whole`` and one of several would be cut."""
    found: list[Value] = []
    cuts = end = 0
    for part in parts:
        extent = part.shape[axis]
        assert isinstance(extent, int)
        begin, end = end, end + extent
        first, last = max(start, begin) - begin, min(stop, end) - begin
        if first < last:
            cuts += last - first < extent
            found.append(part if last - first == extent else site.slice(part, axis, first, last))
    return [] if whole and cuts and len(found) > 1 else found


ASSIGNMENT_RULES: tuple[RewriteRule, ...] = (
    rule("ScatterND ingot.Scattered", _assigned),
    rule("Slice", _slice_of_parts),
)
