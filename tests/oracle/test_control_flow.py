"""Random control flow: what is compiled, what the passes make of it, and its plain meaning agree."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import hypothesis.strategies as st
import numpy as np
import onnxruntime
import pytest
from hypothesis import HealthCheck, given, settings

from tests.oracle.control_flow import LEVELS, check, check_passes, seeded
from tests.oracle.control_flow_graphs import drawn_model
from tests.oracle.control_flow_meaning import run_model

DRAWS = settings(deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


def chooser(data: st.DataObject) -> Callable[[Sequence[Any]], Any]:
    return lambda options: data.draw(st.sampled_from(options))


@pytest.mark.slow
@pytest.mark.parametrize("level", LEVELS)
@settings(DRAWS, max_examples=3)
@given(data=st.data())
def test_answers_are_those_of_the_plain_meaning(level: int, data: st.DataObject) -> None:
    check(*drawn_model(chooser(data)), level)


@pytest.mark.slow
@pytest.mark.parametrize("level", LEVELS)
@settings(DRAWS, max_examples=10)
@given(data=st.data())
def test_passes_keep_the_meaning_and_plans_hold(level: int, data: st.DataObject) -> None:
    check_passes(*drawn_model(chooser(data)), level)


def test_the_plain_meaning_is_that_of_onnxruntime() -> None:
    """Where ONNX Runtime takes a model and its iterations are not none: it has sizes of its own for rows that never were."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    agreed = 0
    for seed in range(24):
        model, requests = seeded(seed)
        try:
            session = onnxruntime.InferenceSession(model.SerializeToString(), options)
            found = [session.run(None, feeds) for feeds in requests]
        except Exception:  # outputs from outside of a body, and shapes that it infers to be one
            continue
        agreed += 1
        for feeds, arrays in zip(requests, found, strict=True):
            for one, other in zip(arrays, run_model(model, feeds), strict=True):
                if one.size or other.size:
                    np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)
    assert agreed >= 5
