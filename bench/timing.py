"""Statistics of latencies: what a round measured, what all rounds of an engine say, and means of ratios."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Slice:
    """One engine's turn in one round: seconds of each run, and how often the scheduler took the CPU away meanwhile."""

    times: tuple[float, ...]
    preempted: int = 0

    @property
    def median(self) -> float:
        return statistics.median(self.times)


@dataclass(frozen=True)
class Timing:
    """Latency of one engine on one model.

    Attributes:
        median: seconds; the median over rounds of the rounds' medians.
        low, high: seconds; quartiles of the rounds' medians.
        best: seconds; the fastest run of all.
        runs: number of timed runs.
        preempted: involuntary context switches while timing; many of them mean that the machine was not idle.
    """

    median: float
    low: float
    high: float
    best: float
    runs: int
    preempted: int = 0

    @property
    def spread(self) -> float:
        """Distance between the quartiles, relative to the median."""
        return (self.high - self.low) / self.median if self.median else 0.0


def summarize(slices: Sequence[Slice]) -> Timing:
    """The timing that the rounds of one engine amount to.

    Raises:
        ValueError: there is no round.
    """
    if not slices:
        raise ValueError("no round was measured")
    medians = sorted(s.median for s in slices)
    return Timing(
        median=statistics.median(medians),
        low=quantile(medians, 0.25),
        high=quantile(medians, 0.75),
        best=min(min(s.times) for s in slices),
        runs=sum(len(s.times) for s in slices),
        preempted=sum(s.preempted for s in slices),
    )


def typical(slices: Sequence[Slice]) -> float:
    """Seconds: the median over rounds of the rounds' means. Raises ValueError: there is no round."""
    return statistics.median(statistics.fmean(each.times) for each in slices)


def quantile(ordered: Sequence[float], fraction: float) -> float:
    """The value at ``fraction`` of an ascending sequence, interpolated between neighbours."""
    position = fraction * (len(ordered) - 1)
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


def geometric_mean(ratios: Sequence[float]) -> float | None:
    """The mean that treats 2x and 0.5x as equal and opposite; None of nothing."""
    return math.exp(statistics.fmean(math.log(r) for r in ratios)) if ratios else None
