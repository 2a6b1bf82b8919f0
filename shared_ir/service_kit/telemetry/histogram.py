"""How often values fell between bounds, for a scrape."""

from __future__ import annotations

from bisect import bisect_left


class Histogram:
    """Not safe to be used by several threads at once.

    Attributes:
        bounds: ascending; a value that equals one is below it, as Prometheus has it.
        counts: of values up to each bound, and beyond the last; not cumulative.
        sum: of all values.
    """

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def copy(self) -> Histogram:
        found = Histogram(self.bounds)
        found.counts, found.sum = self.counts.copy(), self.sum
        return found
