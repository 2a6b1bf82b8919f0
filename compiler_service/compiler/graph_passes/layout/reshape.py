"""``Reshape`` in a permuted layout: possible when every group of axes that it merges or splits stays together, in order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from compiler_service.compiler.graph_passes.layout.state import LayoutState, Perm, permuted
from shared_ir.expr.dim import Dim, product
from shared_ir.graph.ir import Node


@dataclass(frozen=True)
class AxisGroup:
    """Input axes ``sources`` hold the same elements, in the same order, as output axes ``targets``."""

    sources: tuple[int, ...]
    targets: tuple[int, ...]


def reshape(node: Node, state: LayoutState) -> bool:
    """Compute the reshape in the operand's layout, after mending that layout where it tears a group of axes apart."""
    x, result = node.operands[0], node.results[0]
    groups = axis_groups(x.shape, result.shape)
    if groups is None:
        return False
    ordered = _by_place(groups, state.native(x), x.shape)
    perm = _mended(ordered, state.native(x), x.shape)
    target = tuple(axis for g in ordered for axis in g.targets)
    shape = state.builder.dims(permuted(result.shape, target))
    state.define(node, [target], [state.get(x, perm), shape], {"allowzero": 1})
    return True


def axis_groups(source: Sequence[Dim], target: Sequence[Dim]) -> tuple[AxisGroup, ...] | None:
    """The finest groups of adjacent axes with equal products; ``None`` when the extents cannot be compared."""
    groups: list[AxisGroup] = []
    i = j = 0
    while i < len(source) and j < len(target):
        found = _shortest(source, target, i, j)
        if found is None:
            return None
        m, n = found
        groups.append(AxisGroup(tuple(range(i, i + m)), tuple(range(j, j + n))))
        i, j = i + m, j + n
    if product(source[i:]) != 1 or product(target[j:]) != 1:
        return None
    if i < len(source) or j < len(target):
        groups.append(AxisGroup(tuple(range(i, len(source))), tuple(range(j, len(target)))))
    return tuple(groups)


def _shortest(source: Sequence[Dim], target: Sequence[Dim], i: int, j: int) -> tuple[int, int] | None:
    """The least number of axes from ``i`` and from ``j`` on whose products are equal."""
    sizes = ((m, n) for m in range(1, len(source) - i + 1) for n in range(1, len(target) - j + 1))
    for m, n in sorted(sizes, key=sum):
        if product(source[i : i + m]) == product(target[j : j + n]):
            return m, n
    return None


def _by_place(groups: Sequence[AxisGroup], perm: Perm, shape: Sequence[Dim]) -> list[AxisGroup]:
    """Groups in the order in which ``perm`` meets the first of their axes that matters."""

    def place(group: AxisGroup) -> tuple[int, int]:
        wide = [perm.index(a) for a in group.sources if shape[a] != 1] or [perm.index(a) for a in group.sources]
        return min(wide, default=len(perm)), min(group.targets, default=0)

    return sorted(groups, key=place)


def _mended(ordered: Sequence[AxisGroup], perm: Perm, shape: Sequence[Dim]) -> Perm:
    """``perm`` itself when its wide axes come group by group and in order, else the layout in which they do."""
    wanted = tuple(axis for g in ordered for axis in g.sources)
    wide = [a for a in wanted if shape[a] != 1]
    return perm if [a for a in perm if shape[a] != 1] == wide else wanted
