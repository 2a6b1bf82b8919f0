"""Optimised equals unoptimised, on random graphs; and so does running in the planned memory."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from compiler_service.compiler.graph_passes.fusion.fuse import SETTLED
from compiler_service.compiler.graph_passes.memory.plan_memory import plan_memory
from compiler_service.compiler.graph_passes.pipelines import default_pipeline
from compiler_service.compiler.graph_passes.rewriting.instruments import Verify
from compiler_service.compiler.graph_passes.rewriting.pass_manager import Pass, PassContext, Pipeline
from compiler_service.compiler.reference.interpret import run_graph
from shared_ir.graph.ir import GROUP_OP, REPEAT_OP, Graph
from shared_ir.graph.text import large_constants, parse_graph, print_graph
from tests.compiler_service.compiler.graph_passes.memory.memory_plans import Planned
from tests.compiler_service.compiler.graph_passes.memory.test_pass_memory import run_in_memory
from tests.compiler_service.compiler.graph_passes.orders import legal_orders
from tests.compiler_service.compiler.graph_passes.pass_graphs import feeds
from tests.compiler_service.compiler.graph_passes.random_graphs import SIZES, graphs

SLOW_DRAWS = [HealthCheck.too_slow, HealthCheck.data_too_large]


def _close(found: np.ndarray, wanted: np.ndarray) -> None:
    scale = max(1.0, float(np.abs(wanted[np.isfinite(wanted)]).max(initial=0)))
    np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-9 * scale)


@pytest.mark.slow
@pytest.mark.parametrize("level", [0, 1, 2, 3])
@settings(deadline=None, max_examples=40, suppress_health_check=SLOW_DRAWS)
@given(before=graphs())
def test_optimised_equals_unoptimised(level: int, before: Graph) -> None:
    after = default_pipeline(level).run_graph(before, PassContext(level, instruments=(Verify(),)))
    assert all(n.op == GROUP_OP for n in after.nodes)
    inputs = feeds(before, SIZES)
    wanted = run_graph(before, inputs)
    for found, expected in zip(run_graph(after, inputs), wanted, strict=True):
        _close(found, expected)
    plan = plan_memory(after)
    for found, expected in zip(run_in_memory(after, plan, inputs, SIZES), wanted, strict=True):
        _close(found, expected)


@pytest.mark.slow
@settings(deadline=None, max_examples=60, suppress_health_check=SLOW_DRAWS)
@given(before=graphs(), order=legal_orders())
def test_legal_orders_give_equal_results(before: Graph, order: tuple[Pass, ...]) -> None:
    after = Pipeline(order).run_graph(before, PassContext(3, instruments=(Verify(),)))
    assert all(n.op in SETTLED for n in after.nodes)
    inputs = feeds(before, SIZES)
    wanted = run_graph(before, inputs)
    for found, expected in zip(run_graph(after, inputs), wanted, strict=True):
        _close(found, expected)
    plan = plan_memory(after)
    Planned.of(after, plan).verify()
    if any(n.op == REPEAT_OP for n in after.nodes):  # parts of a batch, whose bodies the run in memory does not enter
        return
    for found, expected in zip(run_in_memory(after, plan, inputs, SIZES), wanted, strict=True):
        _close(found, expected)


@settings(deadline=None, max_examples=20, suppress_health_check=SLOW_DRAWS)
@given(before=graphs())
def test_the_pipeline_is_deterministic_and_its_result_round_trips(before: Graph) -> None:
    first, second = (default_pipeline(3).run_graph(before, PassContext(3)) for _ in range(2))
    text = print_graph(first)
    assert text == print_graph(second)
    assert print_graph(parse_graph(text, large_constants(first))) == text
