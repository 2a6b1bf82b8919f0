"""Post-dominators of a graph's nodes: where everything that a node computes comes together again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class PostDominators:
    """Immediate post-dominators of nodes numbered in topological order; ``None`` is the end of the graph."""

    immediate: Sequence[int | None]
    consumers: Sequence[Sequence[int]]

    def between(self, start: int, end: int, most: int) -> tuple[int, ...] | None:
        """The nodes on every path from ``start`` (excluded) to its post-dominator ``end`` (included), in order; None where
        they are more than ``most``."""
        found: set[int] = {end}
        stack = list(self.consumers[start])
        while stack:
            if len(found) > most:
                return None
            node = stack.pop()
            if node not in found:
                found.add(node)
                stack.extend(self.consumers[node])
        return tuple(sorted(found)) if len(found) <= most else None


def post_dominators(consumers: Sequence[Sequence[int]], ends: Mapping[int, bool]) -> PostDominators:
    """Post-dominators from the ``consumers`` of each node; ``ends[i]`` when a result of ``i`` leaves the graph."""
    tree = _Tree(len(consumers))
    for node in reversed(range(len(consumers))):
        if ends.get(node, False) or not consumers[node]:
            tree.add(node, tree.root)
            continue
        first, *others = consumers[node]
        common = first
        for other in others:
            common = tree.common(common, other)
        tree.add(node, common)
    return PostDominators(tuple([None if p == tree.root else p for p in tree.parents[:-1]]), consumers)


class _Tree:
    """Nodes under the nodes that post-dominate them, and in the end under ``root``. Each knows an ancestor further up
    (Myers, "An applicative random-access stack", 1983), so that no way is longer than the logarithm of its depth."""

    def __init__(self, count: int) -> None:
        self.root = count
        self.parents = [count] * (count + 1)
        self._jumps = [count] * (count + 1)
        self._depths = [0] * (count + 1)

    def add(self, node: int, parent: int) -> None:
        depths, jump = self._depths, self._jumps[parent]
        self.parents[node] = parent
        depths[node] = depths[parent] + 1
        even = depths[parent] - depths[jump] == depths[jump] - depths[self._jumps[jump]]
        self._jumps[node] = self._jumps[jump] if even else parent

    def common(self, a: int, b: int) -> int:
        """The lowest that ``a`` and ``b`` have in common."""
        depths, jumps, parents = self._depths, self._jumps, self.parents
        if depths[a] < depths[b]:
            a, b = b, a
        while depths[a] > depths[b]:
            a = jumps[a] if depths[jumps[a]] >= depths[b] else parents[a]
        while a != b:
            a, b = (jumps[a], jumps[b]) if jumps[a] != jumps[b] else (parents[a], parents[b])
        return a
