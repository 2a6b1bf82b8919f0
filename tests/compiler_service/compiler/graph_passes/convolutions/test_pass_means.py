"""Means over an image as means of its parts."""

from __future__ import annotations

import pytest

from compiler_service.compiler.graph_passes.convolutions.divide_means import DivideMeans
from compiler_service.compiler.graph_passes.pipelines import default_pipeline
from shared_ir.graph.ir import Graph
from shared_ir.machine.target import parse_target
from tests.compiler_service.compiler.graph_passes.pass_graphs import assert_same, graph, ops, run_passes

ANY_SIZE = 1


def mean(shape: str, axes: str, result: str, op: str = "ReduceMean", attributes: str = "keepdims=1") -> Graph:
    rank = axes.count(",") + 1
    return graph(f"""graph main(%x: float32[{shape}]) -> (%y) {{
      const %axes: int64[{rank}] = [{axes}]
      %y: float32[{result}] = {op}(%x, %axes) {{{attributes}}}
    }}""")


@pytest.mark.parametrize(
    ("shape", "cores", "parts"),
    [("1, 6, 5, 3", 2, 2), ("1, 9, 5, 3", 3, 3), ("1, 12, 4, 3", 8, 12), ("1, 7, 5, 3", 2, 7), ("12, 4, 3", 4, 4)],
)
@pytest.mark.parametrize("op", ["ReduceMean", "ReduceSum"])
def test_lines_are_divided_evenly_among_cores(op: str, shape: str, cores: int, parts: int) -> None:
    rank = shape.count(",") + 1
    axes, result = ("1, 2", "1, 1, 1, 3") if rank == 4 else ("0, 1", "1, 1, 3")
    before = mean(shape, axes, result, op)
    after = run_passes(before, DivideMeans(cores, ANY_SIZE))
    assert ops(after).count(op) == 2
    first = next(n for n in after.nodes if n.op == op)
    assert parts in first.operands[0].shape
    assert_same(before, after)


def test_without_kept_axes_too() -> None:
    before = mean("1, 6, 5, 3", "1, 2", "1, 3", attributes="keepdims=0")
    after = run_passes(before, DivideMeans(2, ANY_SIZE))
    assert ops(after).count("ReduceMean") == 2
    assert_same(before, after)


def test_global_pooling_of_channels_last() -> None:
    before = graph("""graph main(%x: float32[1, 6, 5, 3]) -> (%y) {
      %y: float32[1, 1, 1, 3] = GlobalAveragePool(%x) {layout="NHWC"}
    }""")
    after = run_passes(before, DivideMeans(2, ANY_SIZE))
    assert ops(after).count("ReduceMean") == 2
    assert_same(before, after)


@pytest.mark.parametrize(
    ("shape", "axes", "result", "why"),
    [
        ("4, 6, 5, 3", "1, 2", "4, 1, 1, 3", "several images are rows enough"),
        ("1, 6, 5, 3", "2, 3", "1, 6, 1, 1", "each row has a mean of its own"),
        ("1, 6, 5, 3", "1, 3", "1, 1, 5, 1", "what lies between is kept"),
        ("1, n, 5, 3", "1, 2", "1, 1, 1, 3", "only the run knows how many lines there are"),
        ("1, 1, 30, 3", "1, 2", "1, 1, 1, 3", "there is one line"),
    ],
)
def test_other_means_stay(shape: str, axes: str, result: str, why: str) -> None:
    before = mean(shape, axes, result)
    assert run_passes(before, DivideMeans(2, ANY_SIZE)) is before, why


def test_short_floats_stay() -> None:
    before = graph("""graph main(%x: float16[1, 6, 5, 3]) -> (%y) {
      const %axes: int64[2] = [1, 2]
      %y: float16[1, 1, 1, 3] = ReduceMean(%x, %axes) {keepdims=1}
    }""")
    assert run_passes(before, DivideMeans(2, ANY_SIZE)) is before


def test_small_images_stay_and_so_do_all_where_one_core_computes() -> None:
    before = mean("1, 6, 5, 3", "1, 2", "1, 1, 1, 3")
    assert run_passes(before, DivideMeans(2)) is before
    assert run_passes(before, DivideMeans(1, ANY_SIZE)) is before
    assert not any(isinstance(p, DivideMeans) for p in default_pipeline(3).passes)
    assert any(isinstance(p, DivideMeans) for p in default_pipeline(3, parse_target("amd/zen4 -cores=4")).passes)
