"""By which scale each element of a result is compared: where results hold numbers of very different magnitudes, such as scores and the
-1e9 of a mask, what is right for the large ones says nothing of the small ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

_EMPTY_BINARY_ORDERS = 10
"""Powers of two between two clusters in which no element lies: results of one sum are dense in theirs."""
_FEWEST = 8
"""Elements of a cluster; fewer are what happened to cancel out, or stand out."""
_TIGHT = 1e-3
"""Largest distance of the elements of a cluster, relative to them, that are one constant, of a mask, with something added to it."""
_LENIENCY = 10.0
"""How many times as far elements of smaller clusters may be apart: what is rounded before they come about is larger than they are."""
_ZERO = -(1 << 14)
"""In place of the binary order of 0."""


@dataclass(frozen=True)
class _Cluster:
    """Elements of binary orders from ``low`` to ``high``, both included."""

    low: int
    high: int
    count: int
    least: float
    most: float

    @property
    def is_tight(self) -> bool:
        return self.most - self.least <= _TIGHT * self.most


def scales(magnitudes: np.ndarray, tolerance: float, rounding: float) -> np.ndarray:
    """What the difference of each element is measured by, an array like ``magnitudes``, which are finite.

    Elements belong to the largest one, or to that of their own cluster: one of at least a few elements, and far from the one above it.
    A cluster that may be rounding of the one above it, since sums of its terms come to 0, belongs to that one; what lies under a mask
    does not.

    Args:
        tolerance: largest difference of two orders of adding up, relative to the largest element.
        rounding: the distance of 1 from the next number of the type.
    """
    orders = np.where(magnitudes > 0, np.frexp(magnitudes)[1], _ZERO)
    found = np.zeros(magnitudes.shape)
    above: _Cluster | None = None
    scale = 0.0
    for cluster in _clusters(magnitudes, orders):
        if above is None or (cluster.count >= _FEWEST and _stands_alone(cluster, above, tolerance, rounding)):
            scale, above = cluster.most * (1.0 if above is None else _LENIENCY), cluster
        found[(orders >= cluster.low) & (orders <= cluster.high)] = scale
    is_zero = orders == _ZERO
    # Nothing that cancels out is left of a constant alone: beside one 0 is a number like those that are drawn.
    found[is_zero] = min(scale, 1.0) if above is not None and above.is_tight else scale
    return found


def _stands_alone(cluster: _Cluster, above: _Cluster, tolerance: float, rounding: float) -> bool:
    share = cluster.most / above.most
    return above.is_tight or share > tolerance or share < rounding / (1 << _EMPTY_BINARY_ORDERS)


def _clusters(magnitudes: np.ndarray, orders: np.ndarray) -> Iterator[_Cluster]:
    """Those of the largest elements first."""
    present, counts = np.unique(orders[orders != _ZERO], return_counts=True)
    ends = np.flatnonzero(np.diff(present) > _EMPTY_BINARY_ORDERS)
    for own, count in reversed(list(zip(np.split(present, ends + 1), np.split(counts, ends + 1), strict=True))):
        if own.size:
            low, high = int(own[0]), int(own[-1])
            inside = magnitudes[(orders >= low) & (orders <= high)]
            yield _Cluster(low, high, int(count.sum()), float(inside.min()), float(inside.max()))
