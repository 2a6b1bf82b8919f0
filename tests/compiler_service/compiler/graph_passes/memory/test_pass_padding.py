"""Padding after rows: which values get it, that everybody who reads them knows, and that nobody is in anybody's way."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from compiler_service.compiler.graph_passes.fusion.fuse import Fuse
from compiler_service.compiler.graph_passes.memory.pad_rows import PadRows
from compiler_service.compiler.graph_passes.memory.parts import find_strides
from compiler_service.compiler.graph_passes.memory.place_parts import PlaceParts
from compiler_service.compiler.graph_passes.memory.plan_memory import plan_memory
from compiler_service.compiler.graph_passes.memory.separate_outputs import SeparateOutputs
from compiler_service.compiler.graph_passes.pipelines import default_pipeline
from compiler_service.compiler.graph_passes.rewriting.pass_manager import PassContext
from compiler_service.compiler.reference.interpret import run_graph
from shared_ir.graph.ir import Graph
from tests.compiler_service.compiler.graph_passes.memory.test_pass_memory import run_in_memory
from tests.compiler_service.compiler.graph_passes.pass_graphs import feeds, graph, run_passes
from tests.compiler_service.compiler.graph_passes.random_graphs import SIZES as RANDOM_SIZES
from tests.compiler_service.compiler.graph_passes.random_graphs import graphs

SIZES = {"n": 3}
SHORT = PadRows(way=128, padding=32)
"""Pads rows of 16 numbers by 8."""

PRODUCTS = """
    graph main(%x: float32[n, 4], %v: float32[4, 16], %w: float32[16, 4]) -> (%y) {
      %a: float32[n, 16] = MatMul(%x, %v)
      %y: float32[n, 4] = MatMul(%a, %w)
    }
    """


def strides(text: str, item: PadRows = SHORT) -> dict[str, tuple[object, ...]]:
    """Value -> strides of what has gaps; and the padded graph computes what the text says, in the memory planned for it."""
    before = graph(text)
    after = run_passes(before, Fuse(), SeparateOutputs(), PlaceParts(launch_bytes=0, least_run=1), item)
    assert_same_in_memory(before, after, SIZES)
    return {v.name: s for v, s in find_strides(after).items()}


def assert_same_in_memory(before: Graph, after: Graph, sizes: dict[str, int]) -> None:
    inputs = feeds(before, sizes)
    wanted = run_graph(before, inputs)
    for found, expected in zip(run_in_memory(after, plan_memory(after), inputs, sizes), wanted, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_data_of_a_product_is_padded() -> None:
    assert strides(PRODUCTS) == {"a": (24, 1)}


def test_rows_that_find_sets_enough_are_not() -> None:
    assert strides(PRODUCTS, PadRows(way=256, padding=32)) == {}
    assert strides(PRODUCTS, PadRows(way=256, sets=4, padding=32)) == {"a": (24, 1)}


def test_what_no_product_reads_is_not() -> None:
    assert (
        strides(
            PRODUCTS.replace("%y: float32[n, 4] = MatMul(%a, %w)", "%y: float32[n, 16] = Softmax(%a)").replace(
                "%w: float32[16, 4]", "%w: float32[n, 16]"
            )
        )
        == {}
    )


def test_outputs_are_the_callers() -> None:
    assert strides(PRODUCTS.replace("-> (%y)", "-> (%y, %a)")) == {}


def test_one_row_collides_with_nothing() -> None:
    assert strides(PRODUCTS.replace("[n,", "[1,")) == {}


def test_views_are_read_with_the_padding() -> None:
    text = """
    graph main(%x: float32[n, 2, 4], %v: float32[4, 16], %w: float32[16, 4]) -> (%y) {
      const %rows: int64[2] = [-1, 16]
      %a: float32[n, 2, 16] = MatMul(%x, %v)
      %b: float32[2*n, 16] = Reshape(%a, %rows)
      %y: float32[2*n, 4] = MatMul(%b, %w)
    }
    """
    assert strides(text) == {"a": (48, 24, 1), "b": (24, 1)}


def test_views_that_cut_rows_leave_them_as_they_are() -> None:
    text = """
    graph main(%x: float32[n, 4], %v: float32[4, 16], %w: float32[8, 4]) -> (%y) {
      const %rows: int64[2] = [-1, 8]
      %a: float32[n, 16] = MatMul(%x, %v)
      %b: float32[2*n, 8] = Reshape(%a, %rows)
      %y: float32[2*n, 4] = MatMul(%b, %w)
    }
    """
    assert strides(text) == {}


def test_a_sweep_does_not_write_over_rows_that_are_padded_otherwise() -> None:
    text = """
    graph main(%x: float32[n, 4], %v: float32[4, 16], %w: float32[16, 4]) -> (%y, %z) {
      %a: float32[n, 16] = MatMul(%x, %v)
      %s: float32[n, 16] = Softmax(%a)
      %b: float32[n, 16] = Sigmoid(%s)
      %z: float32[n, 16] = Softmax(%b)
      %y: float32[n, 4] = MatMul(%b, %w)
    }
    """
    assert strides(text) == {"b": (24, 1)}


def test_places_in_a_concatenation_stay_what_they_are() -> None:
    text = """
    graph main(%x: float32[n, 4], %v: float32[4, 16], %w: float32[32, 4]) -> (%y) {
      %a: float32[n, 16] = MatMul(%x, %v)
      %b: float32[n, 16] = Softmax(%a)
      %c: float32[n, 32] = Concat(%a, %b) {axis=1}
      %y: float32[n, 4] = MatMul(%c, %w)
    }
    """
    assert strides(text) == {"a": (32, 1), "b": (32, 1)}


@pytest.mark.slow
@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(before=graphs())
def test_padded_equals_unpadded(before: Graph) -> None:
    """Every row that a product reads is padded."""
    after = run_passes(default_pipeline(3).run_graph(before, PassContext(3)), PadRows(way=1, sets=1, padding=24))
    inputs = feeds(before, RANDOM_SIZES)
    for found, expected in zip(
        run_in_memory(after, plan_memory(after), inputs, RANDOM_SIZES), run_graph(before, inputs), strict=True
    ):
        scale = max(1.0, float(np.abs(expected[np.isfinite(expected)]).max(initial=0)))
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9 * scale)
