"""Random control flow: what is compiled, what the passes make of it, and its plain meaning agree."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import hypothesis.strategies as st
import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import HealthCheck, given, settings
from onnxruntime.capi.onnxruntime_pybind11_state import Fail, InvalidGraph, RuntimeException
from onnxruntime.capi.onnxruntime_pybind11_state import NotImplemented as NoKernel

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
    """Of rows that never were, ONNX Runtime has sizes of its own; a body that hands on what it was given leaves it memory that
    nobody wrote to."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    models = [seeded(seed) for seed in range(60)]
    compared = 0
    for model, requests in (m for m in models if makes_its_outputs(m[0].graph)):
        try:
            session = onnxruntime.InferenceSession(model.SerializeToString(), options)
            found = [session.run(None, feeds) for feeds in requests]
        except (
            Fail,
            InvalidGraph,
            NoKernel,
            RuntimeException,
        ):  # it infers other extents than it finds, or knows no such kernel
            continue
        compared += 1
        for feeds, arrays in zip(requests, found, strict=True):
            for one, other in zip(arrays, run_model(model, feeds), strict=True):
                if one.size or other.size:
                    np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)
    assert compared >= 5


def makes_its_outputs(graph: onnx.GraphProto) -> bool:
    """Whether all outputs of bodies are results of their own nodes, each once."""
    bodies = [a.g for n in graph.node for a in n.attribute if a.HasField("g")]
    return all(
        makes_its_outputs(body)
        and len({o.name for o in body.output} & {r for n in body.node for r in n.output}) == len(body.output)
        for body in bodies
    )
