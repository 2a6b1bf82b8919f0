"""The cost model learns what samples say, the same from the same samples, and says so where it cannot."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from compiler_service.compiler.tune.cost.model import CostModel, missing, speeds
from shared_ir.errors import ErrorCode, IngotError


def law(n: int, seed: int) -> tuple[np.ndarray, np.ndarray, list[int]]:
    """Candidates of four workloads whose time depends on three of ten features, and on the workload."""
    random = np.random.default_rng(seed)
    features = random.uniform(0, 8, (n, 10)).astype(np.float32)
    groups = random.integers(0, 4, n)
    seconds = np.exp2(0.4 * features[:, 0] - 0.3 * features[:, 1] + np.abs(features[:, 2] - 4)) * 10.0**-groups
    return features, seconds, groups.tolist()


def ranks(values: np.ndarray) -> np.ndarray:
    return np.argsort(np.argsort(values)).astype(float)


def test_it_learns_a_law() -> None:
    model = CostModel.fit(*law(600, seed=0))
    features, seconds, groups = law(400, seed=1)
    predicted = model.predict(features)
    for group in range(4):
        own = np.array(groups) == group
        assert np.corrcoef(ranks(predicted[own]), ranks(-seconds[own]))[0, 1] > 0.9
    assert model.samples == 600
    assert ((predicted > 0) & (predicted < 1.5)).all()


def test_equal_samples_give_equal_models() -> None:
    one, other = (CostModel.fit(*law(200, seed=0)) for _ in range(2))
    features, *_ = law(100, seed=1)
    np.testing.assert_array_equal(one.predict(features), other.predict(features))


def test_what_is_not_asked_is_no_number_and_may_be() -> None:
    features, seconds, groups = law(200, seed=0)
    features[::2, 1] = np.nan
    assert np.isfinite(CostModel.fit(features, seconds, groups).predict(features)).all()


def test_speeds_are_relative_to_the_best_of_the_workload() -> None:
    found = speeds(np.array([1.0, 2.0, 30.0, 15.0, 4000.0]), ["a", "a", "b", "b", "b"])
    np.testing.assert_allclose(found, [0, -1, -1, 0, -4])


def test_a_few_samples_are_enough_to_begin() -> None:
    features, seconds, groups = law(9, seed=0)
    assert np.isfinite(CostModel.fit(features, seconds, groups).predict(features)).all()


def test_without_the_library_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    assert missing() == ""
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    sentence = missing()
    assert "\n" not in sentence
    assert "pip install 'ingot-ml[tune]'" in sentence
    with pytest.raises(IngotError) as caught:
        CostModel.fit(*law(20, seed=0))
    assert caught.value.code is ErrorCode.UNAVAILABLE
