"""Statistics of latencies."""

from __future__ import annotations

import math

import pytest

from bench.timing import Slice, geometric_mean, quantile, summarize, typical


def test_median_is_over_rounds_so_that_one_disturbed_round_does_not_count() -> None:
    calm = [Slice((1.0, 1.1, 1.2)) for _ in range(4)]
    timing = summarize([*calm, Slice((50.0, 60.0, 70.0), preempted=3)])
    assert timing.median == 1.1
    assert timing.best == 1.0
    assert timing.runs == 15
    assert timing.preempted == 3


def test_spread_is_the_distance_of_the_quartiles() -> None:
    timing = summarize([Slice((t,)) for t in (1.0, 2.0, 3.0, 4.0, 5.0)])
    assert (timing.low, timing.median, timing.high) == (2.0, 3.0, 4.0)
    assert timing.spread == pytest.approx(2 / 3)


def test_runs_of_two_kinds_count_both() -> None:
    assert typical([Slice((1.0, 1.0, 4.0)), Slice((1.0, 1.0, 1.0)), Slice((2.0, 4.0, 9.0))]) == 2.0


def test_quantile_interpolates() -> None:
    assert quantile([0.0, 10.0], 0.25) == 2.5
    assert quantile([7.0], 0.75) == 7.0


def test_no_rounds() -> None:
    with pytest.raises(ValueError, match="no round"):
        summarize([])


def test_geometric_mean_of_opposites_is_one() -> None:
    assert geometric_mean([2.0, 0.5]) == pytest.approx(1.0)
    assert geometric_mean([1.0, 8.0]) == pytest.approx(math.sqrt(8))
    assert geometric_mean([]) is None
