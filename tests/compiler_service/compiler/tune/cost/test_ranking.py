"""Points are ranked by what was measured, once there is enough of it, within its time, and not at all without LightGBM."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator

import numpy as np
import pytest

from compiler_service.compiler.tune.cost.ranking import Ranking, TaskRanking
from compiler_service.compiler.tune.cost.values import MOST_SIZES, ValueEncoding, ValueSample
from compiler_service.compiler.tune.measuring.trial import OutcomeKind
from compiler_service.compiler.tune.records.record import TrialRecord, Workload
from compiler_service.compiler.tune.search.point import Point

ONE = Workload("1" * 64, "f" * 64, (64, 128), "MatMul")
OTHER = Workload("2" * 64, "f" * 64, (96, 256), "MatMul")
RULES = ("plain", "tiled", "winograd")


def points(count: int, seed: int = 0) -> Iterator[tuple[Point, float]]:
    """Points and their shares: the tile should be 32, the rule tiled, and the flag matters little."""
    chance = random.Random(seed)
    for _ in range(count):
        tile, rule, flag = chance.choice([8, 16, 32, 64, 128]), chance.choice(RULES), chance.random() < 0.5
        share = 2 ** abs(np.log2(tile) - 5) * (1 + RULES.index(rule) % 2 * -0.5) + 0.01 * flag
        values = {
            name: value for name, value in (("tile", tile), ("rule", rule), ("flag", flag)) if chance.random() < 0.9
        }
        yield Point.of(values), share if len(values) == 3 else 4.0


def taught(ranking: Ranking, workload: Workload, count: int, seed: int = 0) -> TaskRanking:
    found = ranking.of(workload)
    for point, share in points(count, seed):
        found.learn(point, share)
    return found


def order_found(rank: TaskRanking, seed: int = 7) -> float:
    """Share of the pairs of points that ``rank`` puts in the right order."""
    told = list(points(60, seed))
    costs = rank([point for point, _ in told])
    pairs = [(i, j) for i in range(60) for j in range(60) if told[i][1] < told[j][1]]
    return sum(costs[i] < costs[j] for i, j in pairs) / len(pairs)


def test_a_few_trials_rank_others_of_the_task() -> None:
    assert order_found(taught(Ranking(60.0), ONE, 48)) > 0.8


def test_too_few_trials_rank_nothing() -> None:
    rank = taught(Ranking(60.0), ONE, 15)
    assert not rank.is_ready
    assert set(rank([point for point, _ in points(5)])) == {1.0}


def test_other_tasks_say_something_before_the_first_trial() -> None:
    ranking = Ranking(60.0)
    taught(ranking, OTHER, 100)
    rank = ranking.of(ONE)
    assert rank.is_ready
    assert order_found(rank) > 0.7


def test_it_learns_again_when_there_is_half_as_much_more() -> None:
    ranking = Ranking(60.0)
    rank = taught(ranking, ONE, 20)
    assert rank.is_ready
    spent = ranking.spent
    for number, (point, share) in enumerate(points(10, seed=3), start=21):
        rank.learn(point, share)
        assert rank.is_ready
        assert (ranking.spent > spent) == (number >= 30)


def test_learning_ends_when_its_time_is_spent() -> None:
    ranking = Ranking(seconds=0.0)
    assert not taught(ranking, ONE, 48).is_ready
    assert ranking.spent == 0


def test_records_are_learned_from() -> None:
    ranking = Ranking(60.0)
    ranking.add(
        TrialRecord(
            OTHER.digest, OTHER.family, OTHER.sizes, OTHER.label, "target", "machine", "1", (), "tiled", point.values, (),
            OutcomeKind.MEASURED, seconds=share, default_seconds=1.0,
        )
        for point, share in points(100)
    )  # fmt: skip
    assert order_found(ranking.of(ONE)) > 0.7


def test_refused_candidates_teach_nothing() -> None:
    ranking = Ranking(60.0)
    ranking.add(
        TrialRecord(
            OTHER.digest, OTHER.family, (), "", "target", "machine", "1", (), "", point.values, (), OutcomeKind.CRASHED
        )
        for point, _ in points(100)
    )
    assert not ranking.of(ONE).is_ready


def test_without_the_library_nothing_is_ranked_and_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    ranking = Ranking(60.0)
    assert "ingot-ml[tune]" in ranking.why_not
    rank = taught(ranking, ONE, 48)
    assert not rank.is_ready
    assert set(rank([point for point, _ in points(5)])) == {1.0}


def test_equal_trials_rank_alike() -> None:
    one, other = (taught(Ranking(60.0), ONE, 48) for _ in range(2))
    told = [point for point, _ in points(40, seed=9)]
    assert one(told) == other(told)


def test_what_is_not_answered_is_no_number() -> None:
    samples = [
        ValueSample((4, 8), {"tile": 7, "flag": True}),
        ValueSample((4,), {"rule": "b", "order": (1, 0)}),
        ValueSample((), {"rule": "a", "flag": False}),
    ]
    encoding = ValueEncoding.of(samples)
    found = dict(zip(("size", "size 1", "flag", "order", "rule", "tile"), encoding.matrix(samples).T, strict=True))
    np.testing.assert_array_equal(found["flag"], [1, np.nan, 0])
    np.testing.assert_array_equal(found["tile"], [3, np.nan, np.nan])
    np.testing.assert_array_equal(found["rule"], [np.nan, 1, 0])
    np.testing.assert_array_equal(found["order"], [np.nan, 0, np.nan])
    np.testing.assert_allclose(found["size 1"], [np.log2(9), np.nan, np.nan])


def test_long_workloads_and_new_knobs_are_cut_to_what_is_known() -> None:
    encoding = ValueEncoding.of([ValueSample((1,) * 100, {"rule": "a"})])
    assert encoding.sizes == MOST_SIZES
    (row,) = encoding.matrix([ValueSample((3,) * 200, {"rule": "new", "new": 1})])
    assert row.shape == (MOST_SIZES + 1,)
    assert row[-1] == -1
