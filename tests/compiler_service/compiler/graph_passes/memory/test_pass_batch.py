"""Chains of kernels that run for one part of a batch after the other."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from compiler_service.compiler.graph_passes.analysis.known import known_values
from compiler_service.compiler.graph_passes.fusion.batch_parts import BatchTiling, stage_of
from compiler_service.compiler.graph_passes.fusion.fuse import Fuse
from compiler_service.compiler.graph_passes.fusion.tile_batch import Costs, TileBatch
from compiler_service.compiler.graph_passes.memory.place_parts import PlaceParts
from compiler_service.compiler.graph_passes.memory.separate_outputs import SeparateOutputs
from compiler_service.compiler.graph_passes.rewriting.instruments import Verify
from compiler_service.compiler.graph_passes.rewriting.pass_manager import PassContext, Pipeline
from compiler_service.compiler.reference.interpret import run_graph
from shared_ir.expr import Var
from shared_ir.expr.dim import Dim
from shared_ir.graph.ir import GROUP_OP, REPEAT_OP, Graph, Node
from shared_ir.machine.target import parse_target
from tests.compiler_service.compiler.graph_passes.pass_graphs import assert_same, feeds, graph, run_passes
from tests.compiler_service.compiler.graph_passes.random_graphs import SIZES, graphs

SMALL = Costs(cache=2500, launch=0)
"""A cache that holds a part of the batches below, with the weights, and not the whole."""


def tiled(before: Graph, costs: Costs = SMALL, least_share: float = 0.0) -> Graph:
    return run_passes(before, Fuse(), TileBatch(costs, least_share), SeparateOutputs(), PlaceParts(launch_bytes=0))


def loops(found: Graph) -> list[Node]:
    return [n for n in found.nodes if n.op == REPEAT_OP]


def perceptron(samples: int | str) -> Graph:
    return graph(f"""graph main(%x: float32[{samples}, 5, 8], %up: float32[8, 12], %down: float32[12, 8]) -> (%y) {{
      %wide: float32[{samples}, 5, 12] = MatMul(%x, %up)
      %positive: float32[{samples}, 5, 12] = Relu(%wide)
      %narrow: float32[{samples}, 5, 8] = MatMul(%positive, %down)
      %y: float32[{samples}, 5, 8] = Add(%narrow, %x)
    }}""")


@pytest.mark.parametrize(("samples", "parts", "rows"), [(14, 7, 2), (13, 13, 1), ("batch", Var("batch"), 1)])
def test_a_chain_runs_for_as_many_samples_as_fit_the_cache(samples: int | str, parts: Dim, rows: int) -> None:
    before = perceptron(samples)
    after = tiled(before)
    (loop,) = loops(after)
    (body,) = loop.subgraphs
    assert loop.attributes["limit"] == parts
    assert [n.op for n in body.nodes] == [GROUP_OP, GROUP_OP]
    assert [v.shape for v in body.outputs] == [(rows, 5, 8)]
    assert_same(before, after)


def test_what_is_read_inside_and_outside_is_kept() -> None:
    before = graph("""graph main(%x: float32[16, 5, 8], %w: float32[8, 8]) -> (%y, %z) {
      const %axes: int64[1] = [0]
      %a: float32[16, 5, 8] = MatMul(%x, %w)
      %b: float32[16, 5, 8] = MatMul(%a, %w)
      %y: float32[16, 5, 8] = MatMul(%b, %w)
      %z: float32[1, 5, 8] = ReduceMax(%b, %axes)
    }""")
    after = tiled(before)
    (loop,) = loops(after)
    assert len(loop.results) == 2
    assert_same(before, after)


def test_rows_of_a_sample_may_be_several_and_change_their_number() -> None:
    """Windows of an image become rows of their own, and images again."""
    before = graph("""graph main(%x: float32[9, 6, 8], %w: float32[8, 8]) -> (%y) {
      const %windows: int64[3] = [27, 2, 8]
      const %images: int64[3] = [9, 6, 8]
      %a: float32[9, 6, 8] = MatMul(%x, %w)
      %b: float32[27, 2, 8] = Reshape(%a, %windows)
      %c: float32[27, 2, 8] = Softmax(%b) {axis=1}
      %d: float32[9, 6, 8] = Reshape(%c, %images)
      %y: float32[9, 6, 8] = MatMul(%d, %w)
    }""")
    after = tiled(before)
    (loop,) = loops(after)
    assert sum(n.op == GROUP_OP for n in loop.subgraphs[0].nodes) == 5
    assert_same(before, after)


def test_concatenations_of_a_part_copy_nothing_either() -> None:
    before = graph("""graph main(%x: float32[9, 24, 16], %w: float32[16, 16]) -> (%y) {
      %a: float32[9, 24, 16] = MatMul(%x, %w)
      %b: float32[9, 24, 16] = MatMul(%a, %w)
      %c: float32[9, 24, 32] = Concat(%a, %b) {axis=2}
      %d: float32[9, 24, 32] = Softmax(%c)
      %y: float32[9, 24, 32] = Mul(%d, %c)
    }""")
    after = tiled(before, Costs(cache=8000, launch=0))
    (loop,) = loops(after)
    assert any(n.attributes.get("parts", False) for n in loop.subgraphs[0].nodes)
    assert_same(before, after)


def test_a_concatenation_of_what_was_made_before_stays_whole() -> None:
    before = graph("""graph main(%x: float32[9, 24, 16], %z: float32[9, 24, 16]) -> (%y) {
      %c: float32[9, 24, 32] = Concat(%x, %z) {axis=2}
      %d: float32[9, 24, 32] = Softmax(%c)
      %y: float32[9, 24, 32] = Softmax(%d)
    }""")
    after = tiled(before, Costs(cache=8000, launch=0))
    assert [n.op for n in after.nodes][:2] == [GROUP_OP, REPEAT_OP]
    assert_same(before, after)


def test_data_that_fits_the_cache_is_left_alone() -> None:
    before = run_passes(perceptron(14), Fuse())
    assert run_passes(before, TileBatch(Costs(cache=1 << 16, launch=0))) is before


def test_what_saves_too_little_is_left_alone() -> None:
    before = run_passes(perceptron(14), Fuse())
    assert run_passes(before, TileBatch(SMALL, least_share=0.9)) is before
    assert run_passes(before, TileBatch(Costs(cache=2500, launch=1e6), 0.0)) is before


MIXED = {
    "a mean over the batch": "%y: float32[8, 4] = Softmax(%x) {axis=0}",
    "a running sum": "const %axis: int64[] = [0]\n%y: float32[8, 4] = CumSum(%x, %axis)",
    "another order": "const %i: int64[8] = [1, 0, 2, 3, 4, 5, 6, 7]\n%y: float32[8, 4] = Gather(%x, %i) {axis=0}",
    "numbers of its own for each row": "%y: float32[8, 4] = Add(%x, %rows)",
    "rows of others": "const %s: int64[1] = [7]\nconst %e: int64[1] = [-9]\nconst %a: int64[1] = [0]\n"
    "const %b: int64[1] = [-1]\n%y: float32[8, 4] = Slice(%x, %s, %e, %a, %b)",
    "a product with itself": "%t: float32[4, 8] = Transpose(%x) {perm=(1, 0)}\n"
    "%p: float32[8, 8] = MatMul(%x, %t)\n%y: float32[8, 4] = MatMul(%p, %x)",
}


@pytest.mark.parametrize("text", MIXED.values(), ids=MIXED.keys())
def test_groups_that_mix_samples_are_no_stages(text: str) -> None:
    constants = "const %rows: float32[8, 1] = [1., 2., 3., 4., 5., 6., 7., 8.]"
    found = run_passes(graph(f"graph main(%x: float32[8, 4]) -> (%y) {{\n{constants}\n{text}\n}}"), Fuse())
    known = known_values(found)
    stages = [stage_of(n, BatchTiling(8), found.constants, known) for n in found.nodes]
    assert None in stages


def test_the_number_of_samples_is_another_one_for_a_part() -> None:
    found = run_passes(
        graph("""graph main(%x: float32[batch, 4]) -> (%y) {
      %n: int64[1] = ingot.Dims() {dims=(`batch`,)}
      %f: float32[1] = Cast(%n) {to=float32}
      %y: float32[batch, 4] = Div(%x, %f)
    }"""),
        Fuse(),
    )
    assert [stage_of(n, BatchTiling(Var("batch")), found.constants, known_values(found)) for n in found.nodes] == [None]


def test_the_costs_of_a_target() -> None:
    zen, small = (Costs.of(parse_target(name)) for name in ("amd/zen4", "raspberry-pi/4b"))
    assert (zen.cache, zen.cached, zen.uncached, zen.flops) == (8 << 20, 16, 8, 32)
    assert (small.cache, small.flops) == (256 << 10, 8)


@pytest.mark.slow
@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(before=graphs())
def test_tiled_equals_not_tiled(before: Graph) -> None:
    # half of these graphs have a chain
    costs = Costs(cache=1500, launch=0)
    passes = (Fuse(), TileBatch(costs, 0.0), SeparateOutputs(), PlaceParts(launch_bytes=0))
    after = Pipeline(passes).run_graph(before, PassContext(3, instruments=(Verify(),)))
    inputs = feeds(before, SIZES)
    for found, wanted in zip(run_graph(after, inputs), run_graph(before, inputs), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-9 * max(1.0, float(np.abs(wanted).max(initial=0))))
