"""Graphs that hypothesis draws from the operator table, and shrinks: unoptimised equals optimised equals the reference."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from tests.random_models.generate import drawn_model
from tests.random_models.vote import check

SETTINGS = settings(deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


@pytest.mark.slow
@pytest.mark.parametrize("draws", [20, pytest.param(60, marks=pytest.mark.long)])
def test_levels_and_reference_agree(draws: int) -> None:
    settings(SETTINGS, max_examples=draws)(given(data=st.data())(agree))()


def agree(data: st.DataObject) -> None:
    random = np.random.default_rng(data.draw(st.integers(0, 2**16), label="weights"))
    model, feeds = drawn_model(lambda options: data.draw(st.sampled_from(options)), random)
    if model.graph.node:
        check(model, feeds)
