"""Decision trees as the records that ``ingot.TreeLeaves`` walks along.

Every test becomes "not above a number": the others have their children exchanged, the number before theirs, or a second test.
Nodes follow level by level, tree by tree, two children side by side. What two nodes lead to is kept once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from compiler_service.compiler.tensor_expr.operators.sequential import RECORD

MODES = ("LEQ", "LT", "GTE", "GT", "EQ", "NEQ")
DEEPEST = 512

_TREES_TOGETHER = 8
_INVERSE = {"GT": "LEQ", "GTE": "LT", "NEQ": "EQ"}

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Forest:
    """Binary trees in arrays of nodes.

    Attributes:
        roots: int64 [trees].
        children: int64 [nodes, 2]: where to go where the test fails, and where it holds; leaves go to themselves.
        features: int64 [nodes]: the columns that are tested.
        thresholds: [nodes], what they are compared with, of their element type.
        modes: int8 [nodes], positions in :data:`MODES`.
        missing: bool [nodes], whether NaN passes, whatever the comparison says.
    """

    roots: Array
    children: Array
    features: Array
    thresholds: Array
    modes: Array
    missing: Array

    @property
    def is_leaf(self) -> Array:
        return np.asarray((self.children == np.arange(len(self.children))[:, None]).all(1))

    def among(self, *modes: str) -> Array:
        """Whether the test of each node is one of ``modes``."""
        return np.isin(self.modes, [MODES.index(m) for m in modes])


@dataclass(frozen=True)
class PackedNodes:
    """Operands and attributes of ``ingot.TreeLeaves``; ``leaves`` are the nodes of a forest by the numbers that it gives them."""

    roots: Array
    words: Array
    steps: Array
    leaves: Array
    is_missing_tested: bool


def packed(forest: Forest) -> PackedNodes | None:
    """None where a path does not end within :data:`DEEPEST` levels."""
    forest = _as_bounds(forest)
    levels = _deepest_levels(forest)
    if levels is None:
        return None
    placed = _place(forest, levels)
    positions = np.argsort(np.argsort(placed.trees, kind="stable"), kind="stable")
    leaves = np.flatnonzero(forest.is_leaf)
    words = np.empty((len(positions), RECORD), _word(forest.thresholds))
    words[positions] = _words(forest, placed, positions, leaves)
    roots, steps = _in_groups(positions[: len(forest.roots)] * RECORD, placed.heights[: len(forest.roots)])
    return PackedNodes(roots, words.reshape(-1), steps, leaves, bool(forest.missing.any()))


# -- tests


def _as_bounds(forest: Forest) -> Forest:
    """The same trees with tests of LEQ alone.

    ``x > t`` is not ``x <= t``, and NaN passes the one where it does not pass the other; ``x < t`` is ``x <= t'`` with the number ``t'``
    before ``t``; ``x == t`` is ``x <= t`` and not ``x <= t'``. NaN differs from every number.
    """
    forest = _without_limits(forest)
    inverted = forest.among(*_INVERSE)
    modes = forest.modes.copy()
    for mode, inverse in _INVERSE.items():
        modes[forest.among(mode)] = MODES.index(inverse)
    missing = np.where(inverted, ~forest.missing & ~forest.among("NEQ"), forest.missing)
    children = np.where(inverted[:, None], forest.children[:, ::-1], forest.children)
    forest = replace(forest, modes=modes, missing=missing, children=children)
    thresholds = np.where(forest.among("LT"), _before(forest.thresholds), forest.thresholds)
    return _without_equality(replace(forest, thresholds=thresholds))


def _without_limits(forest: Forest) -> Forest:
    """Leaves test column 0 for NaN, which nothing is at most; nor is anything more or less than NaN."""
    leaf, thresholds = forest.is_leaf, forest.thresholds
    nothing = leaf | (np.isnan(thresholds) & ~forest.among("NEQ"))
    return replace(
        forest,
        features=np.where(leaf, 0, forest.features),
        thresholds=np.where(nothing, np.array(np.nan, thresholds.dtype), thresholds),
        modes=np.where(nothing, np.int8(MODES.index("LEQ")), forest.modes),
        missing=forest.missing & ~leaf,
    )


def _without_equality(forest: Forest) -> Forest:
    tests = np.flatnonzero(forest.among("EQ"))
    second = len(forest.children) + np.arange(len(tests))
    children = forest.children.copy()
    fails, holds = children[tests].T
    children[tests, 1] = second
    thresholds = forest.thresholds[tests]
    return replace(
        forest,
        children=np.concatenate([children, np.stack([holds, fails], 1)]),
        features=np.concatenate([forest.features, forest.features[tests]]),
        thresholds=np.concatenate([forest.thresholds, _before(thresholds)]),
        modes=np.zeros(len(children) + len(tests), np.int8),
        missing=np.concatenate([forest.missing, np.zeros(len(tests), bool)]),
    )


def _before(numbers: Array) -> Array:
    """The next number below each; NaN below minus infinity."""
    below = np.nextafter(numbers, numbers.dtype.type(-np.inf))
    return np.where(np.isneginf(numbers), np.array(np.nan, numbers.dtype), below)


# -- places


@dataclass(frozen=True)
class _Level:
    """Records of one level: their slots, the nodes that they stand for, which of them are those nodes, and not on the way there."""

    slots: Array
    nodes: Array
    trees: Array
    is_real: Array


@dataclass(frozen=True)
class _Placed:
    """By slot: the node, the slot that follows where the test fails, whether it is that node, the tree, steps to its deepest leaf."""

    nodes: Array
    following: Array
    is_real: Array
    trees: Array
    heights: Array


def _deepest_levels(forest: Forest) -> Array | None:
    """The length of the longest path from a root to each node, -1 for those that none leads to."""
    levels, leaf = np.full(len(forest.children), -1), forest.is_leaf
    reached = np.unique(forest.roots)
    for level in range(DEEPEST + 1):
        levels[reached] = level
        reached = np.unique(forest.children[reached[~leaf[reached]]])
        if not len(reached):
            return levels
    return None


def _place(forest: Forest, levels: Array) -> _Placed:
    """A slot for each root, then for both children of each inner node. A node has its record where it is met last; where it is met
    before, or beside, a record leads there."""
    leaf, trees = forest.is_leaf, np.arange(len(forest.roots))
    rows: list[_Level] = []
    slots, nodes, count = trees, forest.roots, len(trees)
    pair_of, slot_of = np.zeros(len(leaf), np.int64), np.zeros(len(leaf), np.int64)
    while len(nodes):
        is_real = (levels[nodes] == len(rows)) & _is_first(nodes)
        rows.append(_Level(slots, nodes, trees, is_real))
        slot_of[nodes[is_real]] = slots[is_real]
        inner = is_real & ~leaf[nodes]
        slots = count + np.arange(2 * int(inner.sum()))
        pair_of[nodes[inner]] = slots[::2]
        count += len(slots)
        nodes, trees = forest.children[nodes[inner]].reshape(-1), np.repeat(trees[inner], 2)
    node, tree = (np.concatenate([getattr(r, name) for r in rows]) for name in ("nodes", "trees"))
    real = np.concatenate([r.is_real for r in rows])
    following = np.where(real & ~leaf[node], pair_of[node], slot_of[node])
    return _Placed(node, following, real, tree, _heights(rows, following, leaf))


def _is_first(values: Array) -> Array:
    first = np.zeros(len(values), bool)
    first[np.unique(values, return_index=True)[1]] = True
    return first


def _heights(rows: Sequence[_Level], following: Array, leaf: Array) -> Array:
    heights = np.zeros(len(following), np.int64)
    for row in reversed(rows):
        inner = row.slots[row.is_real & ~leaf[row.nodes]]
        pairs = following[inner]
        heights[inner] = 1 + np.maximum(heights[pairs], heights[pairs + 1]) if len(inner) else 0
        ways = row.slots[~row.is_real]
        heights[ways] = 1 + heights[following[ways]]
    return heights


# -- words


def _word(thresholds: Array) -> np.dtype[Any]:
    return np.dtype(f"i{thresholds.dtype.itemsize}")


def _words(forest: Forest, placed: _Placed, positions: Array, leaves: Array) -> Array:
    word, nodes, real = _word(forest.thresholds), placed.nodes, placed.is_real
    features = np.where(real, forest.features[nodes], 0)
    if forest.missing.any():
        features = features * 2 + (forest.missing[nodes] & real)
    nothing = np.array(np.nan, forest.thresholds.dtype)
    thresholds = np.where(real, forest.thresholds[nodes], nothing).view(word)
    numbers = np.zeros(len(forest.children), np.int64)
    numbers[leaves] = np.arange(len(leaves))
    return np.stack([features, thresholds, positions[placed.following] * RECORD, numbers[nodes]], 1).astype(word)


def _in_groups(roots: Array, heights: Array) -> tuple[Array, Array]:
    """Roots of trees that are walked together, the last repeated to fill its group; the most steps of each group."""
    together = min(_TREES_TOGETHER, 1 << (len(roots).bit_length() - 1))
    rest = -len(roots) % together
    roots, heights = (np.concatenate([a, np.repeat(a[-1:], rest)]).astype(np.int32) for a in (roots, heights))
    return roots, heights.reshape(-1, together).max(1)
