"""Positions that repeat along the other axes gather and scatter whole slices; positions that count gather one slice."""

from __future__ import annotations

import numpy as np
import pytest

from compiler_service.compiler.graph_passes.algebra.simplify_algebra import SimplifyAlgebra
from compiler_service.compiler.reference.interpret import run_graph
from shared_ir.graph.ir import Graph
from shared_ir.graph.literals import static_shape
from tests.compiler_service.compiler.graph_passes.pass_graphs import graph, ops, run_passes


def expanded(op: str, data: str, source: str, indices: str, attributes: str = "axis=0") -> Graph:
    """``op`` of ``data`` at ``source``, expanded to ``indices``; updates, if any, as many as there are of these."""
    scatters = op == "ScatterElements"
    rank = indices.count(",") + 1
    updates, operand = (f", %u: float32[{indices}]", ", %u") if scatters else ("", "")
    return graph(f"""graph main(%x: float32[{data}], %i: int64[{source}]{updates}) -> (%y) {{
      const %shape: int64[{rank}] = [{indices}]
      %e: int64[{indices}] = Expand(%i, %shape)
      %y: float32[{data if scatters else indices}] = {op}(%x, %e{operand}) {{{attributes}}}
    }}""")


def assert_same_at(before: Graph, after: Graph, positions: range) -> None:
    random = np.random.default_rng(0)
    inputs = {
        v.name: random.integers(positions.start, positions.stop, static_shape(v.type))
        if v.name == "i"
        else random.standard_normal(static_shape(v.type)).astype(np.float32)
        for v in before.inputs
    }
    for found, wanted in zip(run_graph(after, inputs), run_graph(before, inputs), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-6)


@pytest.mark.parametrize(
    ("data", "source", "indices", "axis"),
    [("7, 3", "9, 1", "9, 3", 0), ("2, 7, 3", "9, 1", "2, 9, 3", 1), ("2, 7", "9", "2, 9", -1)],
)
def test_slices_are_gathered(data: str, source: str, indices: str, axis: int) -> None:
    before = expanded("GatherElements", data, source, indices, f"axis={axis}")
    after = run_passes(before, SimplifyAlgebra())
    assert "Gather" in ops(after)
    assert_same_at(before, after, range(-7, 7))


@pytest.mark.parametrize("reduction", ["none", "add", "max"])
@pytest.mark.parametrize(("data", "source", "indices"), [("7, 3", "5, 1", "5, 3"), ("7, 3, 2", "5, 1, 1", "5, 3, 2")])
def test_slices_are_scattered(data: str, source: str, indices: str, reduction: str) -> None:
    before = expanded("ScatterElements", data, source, indices, f'axis=0, reduction="{reduction}"')
    after = run_passes(before, SimplifyAlgebra())
    assert "ScatterND" in ops(after)
    assert_same_at(before, after, range(-7, 7))


@pytest.mark.parametrize(
    ("op", "data", "source", "indices", "attributes", "why"),
    [
        ("GatherElements", "7, 3", "9, 1", "9, 2", "axis=0", "a part of each slice"),
        ("GatherElements", "7, 3", "9, 3", "9, 3", "axis=0", "positions of each element"),
        ("GatherElements", "7, 9", "7, 1", "7, 9", "axis=1", "one position of each row"),
        ("ScatterElements", "7, 3", "5, 1", "5, 2", "axis=0", "a part of each slice"),
        ("ScatterElements", "3, 7", "1, 5", "3, 5", "axis=1", "slices that do not lie together"),
    ],
)
def test_other_positions_stay(op: str, data: str, source: str, indices: str, attributes: str, why: str) -> None:
    after = run_passes(expanded(op, data, source, indices, attributes), SimplifyAlgebra())
    assert op in ops(after), why


def test_many_slices_are_scattered_by_a_loop() -> None:
    before = expanded("ScatterElements", "7, 3", "20, 1", "20, 3", 'axis=0, reduction="add"')
    after = run_passes(before, SimplifyAlgebra())
    assert "ingot.Scattered" in ops(after)
    (node,) = (n for n in after.nodes if n.op == "ingot.Scattered")
    assert node.operands[1].shape == (20, 1)
    assert "axis" not in node.attributes
    assert_same_at(before, after, range(-7, 7))


def counted(data: str, axis: int, numbers: str, indices: str, result: str) -> Graph:
    return graph(f"""graph main(%x: float32[{data}]) -> (%y) {{
      const %i: int64[{indices}] = {numbers}
      %y: float32[{result}] = Gather(%x, %i) {{axis={axis}}}
    }}""")


@pytest.mark.parametrize(
    ("data", "axis", "numbers", "indices", "result", "wanted"),
    [
        ("6, 3", 0, "[0, 1, 2, 3, 4, 5]", "6", "6, 3", ["Identity"]),
        ("6, 3", 0, "[0, 1, 2, 3, 4, 5]", "2, 3", "2, 3, 3", ["Reshape"]),
        ("6, 3", 0, "[2, 3, 4]", "3", "3, 3", ["Slice"]),
        ("2, 6", -1, "[-4, -3, -2, -1]", "2, 2", "2, 2, 2", ["Reshape", "Slice"]),
        ("2, 7", -1, "[-4, -3, -2, -1]", "2, 2", "2, 2, 2", ["Slice", "Reshape"]),
    ],
)
def test_positions_that_count_are_a_slice(
    data: str, axis: int, numbers: str, indices: str, result: str, wanted: list[str]
) -> None:
    before = counted(data, axis, numbers, indices, result)
    after = run_passes(before, SimplifyAlgebra())
    assert ops(after) == wanted
    assert_same_at(before, after, range(0))


@pytest.mark.parametrize(
    ("numbers", "indices", "why"),
    [
        ("[0, 2, 4]", "3", "every other"),
        ("[2, 1, 0]", "3", "backwards"),
        ("[-1, 0, 1]", "3", "around the end"),
        ("[4]", "1", "one"),
    ],
)
def test_positions_that_do_not_count_are_gathered(numbers: str, indices: str, why: str) -> None:
    before = counted("6, 3", 0, numbers, indices, f"{indices}, 3")
    after = run_passes(before, SimplifyAlgebra())
    assert ops(after) == ["Gather"], why
    assert_same_at(before, after, range(0))


def test_positions_outside_stay_where_they_fail() -> None:
    before = counted("6, 3", 0, "[4, 5, 6]", "3", "3, 3")
    assert run_passes(before, SimplifyAlgebra()) is before
