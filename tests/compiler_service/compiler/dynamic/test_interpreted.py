"""Graphs with control flow and run-defined sizes keep their meaning through every pass, in the reference interpreter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from compiler_service.compiler.frontend.load import import_model
from compiler_service.compiler.frontend.options import ImportOptions
from compiler_service.compiler.frontend.reading.source import ModelSource
from compiler_service.compiler.graph_passes.analysis.symbols import defined_symbols
from compiler_service.compiler.graph_passes.normal_form.lower_loops import LowerLoops
from compiler_service.compiler.graph_passes.pipelines import default_pipeline
from compiler_service.compiler.graph_passes.rewriting.dead_code import eliminate_dead_code
from compiler_service.compiler.graph_passes.rewriting.instruments import Verify
from compiler_service.compiler.graph_passes.rewriting.pass_manager import PassContext
from compiler_service.compiler.pipeline import inference
from compiler_service.compiler.reference.interpret import run_graph
from shared_ir.graph.ir import DEFINE_OP, GROUP_OP, REPEAT_OP, Graph, walk_graphs
from shared_ir.graph.parse import parse_graph
from tests.compiler_service.compiler.dynamic.compiled import Case, Feeds, onnx_proto
from tests.compiler_service.compiler.dynamic.test_compiled_control_flow import CASES as CONTROL_FLOW
from tests.compiler_service.compiler.dynamic.test_compiled_control_flow import limits_and_conditions
from tests.compiler_service.compiler.dynamic.test_compiled_recurrent import random_model
from tests.compiler_service.compiler.dynamic.test_compiled_sizes_of_data import CASES as SIZES
from tests.compiler_service.compiler.dynamic.test_compiled_sizes_of_data import top_k


def imported(proto: onnx_proto) -> Graph:
    return import_model(ModelSource.of(proto.SerializeToString()), ImportOptions(), inference()).graph


def assert_same(before: Graph, after: Graph, feeds: Feeds) -> None:
    for expected, found in zip(run_graph(before, feeds), run_graph(after, feeds), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


QUADRATIC = ("non_max_suppression", "top_k_of_many")
"""Cases that the interpreter, which knows no loops, takes the square of the length for."""


def _marked(case: Callable[[], Case]) -> Any:
    return pytest.param(case, marks=[pytest.mark.slow] if case.__name__ in QUADRATIC else [], id=case.__name__)


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.parametrize("case", [_marked(c) for c in (*CONTROL_FLOW, *SIZES) if c is not top_k])
def test_passes_keep_the_meaning(case: Callable[[], Case]) -> None:
    proto, requests = case()
    before = imported(proto)
    after = default_pipeline(3).run_graph(before, PassContext(3, instruments=(Verify(),)))
    for feeds in requests[:3]:
        assert_same(before, after, feeds)


@pytest.mark.parametrize("seed", range(3))
def test_expansion_is_what_the_operator_means(seed: int) -> None:
    proto, requests = random_model(seed)
    before = imported(proto)
    after = default_pipeline(0).run_graph(before, PassContext(0, instruments=(Verify(),)))
    assert_same(before, after, requests[1])
    ops = {n.op for g in walk_graphs(after) for n in g.nodes if n.op == GROUP_OP or not n.subgraphs}
    assert not ops & {"LSTM", "GRU", "RNN"}


def test_a_lowered_loop_has_a_symbol_for_its_iteration() -> None:
    after = LowerLoops().run(imported(limits_and_conditions()[0]))
    (loop,) = (n for n in after.nodes if n.op == REPEAT_OP)
    (body,) = loop.subgraphs
    assert loop.attributes["conditional"] == 1  # the condition may be false from the start
    assert [n.attributes["dims"] for n in body.nodes if n.op == "ingot.Dims"] == [(loop.attributes["counter"],)]
    assert LowerLoops().run(after) is after


DEFINED = """
    graph main(%k: int64[1], %unused: int64[1]) -> (%y) {
      %d: int64[1] = ingot.Define(%k) {symbols=(`n`,)}
      %u: int64[1] = ingot.Define(%unused) {symbols=(`m`,)}
      %s: int64[1] = ingot.Dims() {dims=(`n`,)}
      %y: float32[n] = ConstantOfShape(%s) {value=2.0, dtype=float32}
    }
    """


def test_a_definition_lives_as_long_as_its_symbol() -> None:
    before = parse_graph(DEFINED)
    assert [sorted(s) for s in defined_symbols(before).values()] == [["n"], ["m"]]
    after = eliminate_dead_code(before)
    assert [n.attributes["symbols"] for n in after.nodes if n.op == DEFINE_OP] == [
        before.nodes[0].attributes["symbols"]
    ]
    (result,) = run_graph(after, {"k": np.array([3]), "unused": np.array([5])})
    assert result.tolist() == [2.0, 2.0, 2.0]
