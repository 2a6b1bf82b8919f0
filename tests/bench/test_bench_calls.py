"""The cost of a call from Python."""

from __future__ import annotations

from bench.calls import INPUTS, sum_model, time_call


def test_a_call_is_timed() -> None:
    assert len(sum_model().graph.input) == len(INPUTS) == 3
    timing = time_call(calls=5, rounds=3)
    assert 0 < timing.best <= timing.median < 1
    assert timing.runs == 3
