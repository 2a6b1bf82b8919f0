"""Two artifacts in turns: how often each is run, whatever they take."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

import pytest

from ingot import pairs


@dataclass
class Turns:
    """Models that take some seconds of a clock that nothing else moves; an artifact is the seconds.

    Attributes:
        runs: of each model, by its seconds.
    """

    now: float = 0.0
    runs: dict[float, int] = field(default_factory=dict)

    def load(self, artifact: Any, threads: int) -> Any:
        assert threads == 1
        turns = self

        class Model:
            inputs = ()

            def run(self, inputs: Any) -> None:
                turns.now += artifact
                turns.runs[artifact] = turns.runs.get(artifact, 0) + 1

        return Model()

    def compared(self, monkeypatch: pytest.MonkeyPatch, default: Any, tuned: Any) -> pairs.Comparison:
        monkeypatch.setattr(pairs, "load", self.load)
        monkeypatch.setattr(time, "thread_time", lambda: self.now)
        found = pairs.compare_artifacts(default, tuned)
        assert found is not None
        return found


def test_a_much_slower_one_is_not_run_as_often_as_the_faster_one_could_be(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = Turns()
    found = turns.compared(monkeypatch, 1e-5, 1e-2)
    assert found.speedup == pytest.approx(1e-3)
    assert turns.runs[1e-2] <= 2 + 31 * 5
    assert turns.now < 3


def test_models_that_take_long_are_run_in_few_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = Turns()
    found = turns.compared(monkeypatch, 10.0, 9.0)
    assert found.speedup == pytest.approx(10 / 9)
    assert found.noise == pytest.approx(0.0)
    assert turns.runs == {10.0: 2 + 7, 9.0: 2 + 7}
