"""Assignments to a part of a tensor, which exporters write as scattering: what is not assigned to is kept, in one piece.

::

    x[..] = u           ScatterND(x, positions of x, u)         ->  Reshape(u)
    x[.., a:b] = u      ScatterND(x, positions of x[a:b], u)    ->  Concat(x[:a], u, x[b:])
    x[.., r::s] = u     ScatterND(x, positions of x[r::s], u)   ->  Concat(y[:r], u, y[r + 1:]),  y = Reshape(x, [n, s])
    Concat(.., y, ..)[a:b]                                      ->  y[c:d], where that is all; Concat(..) of whole parts

A loop over rows that is written out assigns to one row after the other: the parts of a concatenation are replaced, and with the last
row nothing is left of what was there first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from compiler_service.graph_passes.attributes import int_attribute, text_attribute
from compiler_service.graph_passes.rewrite import Replacement, Rule, Site, rule
from compiler_service.graph_passes.rules_movement import slice_of
from shared_ir.graph import Node, Value

_MOST_PARTS = 64
"""Of a concatenation that is looked through: a long chain of them would take the square of its length."""


@dataclass(frozen=True)
class _Box:
    """The places ``ranges`` along the first axes, and all along the others."""

    ranges: tuple[range, ...]

    @staticmethod
    def of(positions: np.ndarray, extents: Sequence[int]) -> _Box | None:
        """That which ``positions [.., k]`` name in order, each once."""
        rows = positions.reshape(-1, len(extents))
        rows = np.where(rows < 0, rows + np.array(extents, rows.dtype), rows)
        ranges = tuple(_range_of(np.unique(column)) for column in rows.T)
        lengths = tuple(len(r) for r in ranges)
        if np.prod(lengths, dtype=np.int64) != len(rows) or any(
            r and not 0 <= r[0] <= r[-1] < extent for r, extent in zip(ranges, extents, strict=True)
        ):
            return None
        wanted = np.stack(np.meshgrid(*(np.array(r, rows.dtype) for r in ranges), indexing="ij"), axis=-1)
        return _Box(ranges) if np.array_equal(wanted.reshape(rows.shape), rows) else None

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(len(r) for r in self.ranges)


def _range_of(numbers: np.ndarray) -> range:
    """The range with the ends and the first step of ascending ``numbers``."""
    if len(numbers) == 0:
        return range(0)
    step = int(numbers[1] - numbers[0]) if len(numbers) > 1 else 1
    return range(int(numbers[0]), int(numbers[-1]) + 1, step)


def _assigned(node: Node, site: Site) -> Replacement:
    data, indices, updates = node.operands
    positions = site.array(indices)
    if positions is None or positions.size == 0 or text_attribute(node, "reduction", "none") != "none":
        return None
    count = positions.shape[-1]
    extents = [d for d in data.shape[:count] if isinstance(d, int)]
    box = _Box.of(positions, extents) if len(extents) == count else None
    if box is None:
        return None
    values = site.reshape(updates, (*box.shape, *data.shape[count:]))
    partial = [axis for axis, extent in enumerate(extents) if box.shape[axis] < extent]
    if not partial:
        return values
    return _with_part(data, partial[0], box.ranges[partial[0]], values, site) if len(partial) == 1 else None


def _with_part(data: Value, axis: int, places: range, values: Value, site: Site) -> Replacement:
    """``data`` with ``values`` at ``places`` along ``axis``."""
    if places.step == 1:
        return _replaced(data, axis, places.start, places.stop, values, site)
    extent, shape = data.shape[axis], data.shape
    assert isinstance(extent, int)
    if extent % places.step or places.start >= places.step or len(places) * places.step != extent:
        return None
    apart = site.reshape(data, (*shape[:axis], len(places), places.step, *shape[axis + 1 :]))
    single = site.reshape(values, (*shape[:axis], len(places), 1, *shape[axis + 1 :]))
    return site.reshape(_replaced(apart, axis + 1, places.start, places.start + 1, single, site), shape)


def _replaced(data: Value, axis: int, start: int, stop: int, values: Value, site: Site) -> Value:
    parts, extent = _parts_of(data, axis, site), data.shape[axis]
    assert isinstance(extent, int)
    before, after = (_between(parts, a, b, axis, site) for a, b in ((0, start), (stop, extent)))
    return site.node("Concat", (*before, values, *after), {"axis": axis})


def _slice_of_parts(node: Node, site: Site) -> Replacement:
    """A slice of a concatenation along the same axis that is in one part, or has whole parts."""
    source, value = node.operands[0], node.results[0]
    cut = [a for a, d in enumerate(source.shape) if d != value.shape[a]]
    part = slice_of(node, cut[0], site) if len(cut) == 1 else None
    parts = () if part is None else _parts_of(source, cut[0], site)
    if part is None or len(parts) < 2 or not isinstance(part.stop, int) or part.start >= part.stop:
        return None
    found = _between(parts, part.start, part.stop, cut[0], site, whole=True)
    if len(found) > 1:
        return site.node("Concat", found, {"axis": cut[0]})
    return found[0] if found else None


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


ASSIGNMENT_RULES: tuple[Rule, ...] = (
    rule("ScatterND", _assigned),
    rule("Slice", _slice_of_parts),
)
