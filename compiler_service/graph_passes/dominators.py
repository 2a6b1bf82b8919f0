"""Post-dominators of a graph's nodes: where everything that a node computes comes together again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class PostDominators:
    """Immediate post-dominators of nodes numbered in topological order; ``None`` is the end of the graph."""

    immediate: Sequence[int | None]
    consumers: Sequence[Sequence[int]]

    def between(self, start: int, end: int) -> tuple[int, ...]:
        """The nodes on every path from ``start`` (excluded) to its post-dominator ``end`` (included), in order."""
        found: set[int] = {end}
        stack = list(self.consumers[start])
        while stack:
            node = stack.pop()
            if node not in found:
                found.add(node)
                stack.extend(self.consumers[node])
        return tuple(sorted(found))


def post_dominators(consumers: Sequence[Sequence[int]], ends: Mapping[int, bool]) -> PostDominators:
    """Post-dominators from the ``consumers`` of each node; ``ends[i]`` when a result of ``i`` leaves the graph."""
    immediate: list[int | None] = [None] * len(consumers)
    depth = [0] * len(consumers)
    for node in reversed(range(len(consumers))):
        if ends.get(node, False) or not consumers[node]:
            continue
        first, *others = consumers[node]
        common: int | None = first
        for other in others:
            common = _common(common, other, immediate, depth)
        immediate[node] = common
        depth[node] = 0 if common is None else depth[common] + 1
    return PostDominators(tuple(immediate), consumers)


def _common(a: int | None, b: int | None, immediate: Sequence[int | None], depth: Sequence[int]) -> int | None:
    while a != b:
        if a is None or b is None:
            return None
        if depth[a] > depth[b] or (depth[a] == depth[b] and a < b):
            a = immediate[a]
        else:
            b = immediate[b]
    return a
