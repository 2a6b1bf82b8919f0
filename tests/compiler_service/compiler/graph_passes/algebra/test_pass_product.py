"""Columns of a product that no index names are not computed."""

from __future__ import annotations

import pytest

from compiler_service.compiler.graph_passes.algebra.simplify_algebra import SimplifyAlgebra
from compiler_service.compiler.graph_passes.cleaning.fold_constants import FoldConstants
from shared_ir.graph.ir import Graph
from tests.compiler_service.compiler.graph_passes.pass_graphs import assert_same, graph, run_passes


def gathered(numbers: list[int], columns: int, axis: int = -1, users: str = "") -> tuple[Graph, Graph]:
    """Three rows take the same two columns of a product with ``columns`` of them, before and after the rules."""
    weight = [float(i % 7) for i in range(4 * columns)]
    text = f"""
        graph main(%x: float32[2, 3, 4]) -> (%y{", %q" if users else ""}) {{
          const %w: float32[4, {columns}] = {weight}
          const %i: int64[1, 3, 2] = {numbers * 3}
          const %shape: int64[3] = [2, 3, 2]
          %p: float32[2, 3, {columns}] = MatMul(%x, %w)
          %e: int64[2, 3, 2] = Expand(%i, %shape)
          %y: float32[2, 3, 2] = GatherElements(%p, %e) {{axis={axis}}}
          {users}
        }}
        """
    before = graph(text)
    return before, run_passes(before, SimplifyAlgebra(), FoldConstants())


def columns_of(found: Graph) -> list[object]:
    return [n.results[0].shape[-1] for n in found.nodes if n.op == "MatMul"]


@pytest.mark.parametrize(
    ("numbers", "columns", "kept"),
    [
        ([37, 40], 64, 16),
        ([-1, 50], 64, 16),
        ([15, 16], 64, 32),
        ([66, 69], 70, 6),
        ([0, 40], 64, 64),
        ([3, 9], 20, 20),
    ],
)
def test_only_columns_that_are_asked_for_are_computed(numbers: list[int], columns: int, kept: int) -> None:
    before, after = gathered(numbers, columns)
    assert columns_of(after) == [kept]
    assert_same(before, after)


def test_a_product_that_others_read_is_computed_whole() -> None:
    before, after = gathered([37, 40], 64, users="%q: float32[2, 3, 64] = Relu(%p)")
    assert columns_of(after) == [64]
    assert_same(before, after)


def test_an_index_of_rows_leaves_the_columns() -> None:
    before, after = gathered([0, 2], 64, axis=1)
    assert columns_of(after) == [64]
    assert_same(before, after)
