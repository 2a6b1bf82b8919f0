"""How rankings are compared: correlation of ranks, recall of the best, trials until the best."""

from __future__ import annotations

import numpy as np
import pytest

from bench.ranking import FeatureSet, by_chance, correlation, recall, report, trials_to_best

SHARES = np.array([1.0, 0.9, 0.8, 0.7, 0.6, 1.1, 1.2, 1.3, 1.4, 1.5] * 2) + np.arange(20) / 1000


def test_ranks_agree_where_the_order_is_the_same() -> None:
    assert correlation(-SHARES, -(SHARES**3)) == pytest.approx(1)
    assert correlation(-SHARES, SHARES) == pytest.approx(-1)
    assert correlation(np.array([1.0, 1.0, 2.0]), np.array([1.0, 1.0, 2.0])) == pytest.approx(1)  # ties


def test_recall_counts_the_best_tenth() -> None:
    assert recall(-SHARES, SHARES) == 1
    assert recall(SHARES, SHARES) == 0
    swapped = -SHARES.copy()
    swapped[[4, 3]] = swapped[[3, 4]]
    assert recall(swapped, SHARES) == 0.5


def test_trials_are_counted_to_what_is_near_the_best() -> None:
    assert trials_to_best(SHARES, range(4), lambda _, left: left) == 5
    assert trials_to_best(SHARES, [5, 6], lambda _, left: sorted(left, key=lambda i: SHARES[i])) == 3
    assert trials_to_best(SHARES, [5, 6], lambda _, left: sorted(left, key=lambda i: -SHARES[i])) > 16


def test_a_feature_that_says_it_all_needs_fewer_trials_than_chance() -> None:
    random = np.random.default_rng(0)
    shares = random.permutation(np.linspace(0.5, 2, 160))
    groups = ["a"] * 80 + ["b"] * 80
    line = report(FeatureSet("all", shares[:, None].astype(np.float32), 0.001), shares, groups, repeats=2)
    assert line.startswith("all: 1.00 ms a candidate; rank correlation 0.9")
    assert int(line.split(" trials")[0].split()[-1]) < int(by_chance(shares, groups, 2).split(" trials")[0].split()[-1])
