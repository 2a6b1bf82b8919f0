"""The cost of a call from Python."""

from __future__ import annotations

from bench.calls import INPUTS, seconds_per_call, sum_model


def test_a_call_is_timed() -> None:
    assert len(sum_model().graph.input) == len(INPUTS) == 3
    least, median = seconds_per_call(calls=5, rounds=3)
    assert 0 < least <= median < 1
