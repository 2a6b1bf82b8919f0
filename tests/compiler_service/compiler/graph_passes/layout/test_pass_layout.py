"""Channels-last layout: what is moved where, and that nothing changes."""

from __future__ import annotations

import numpy as np
import pytest

from compiler_service.compiler.graph_passes.layout.choose_layout import ChooseLayout
from compiler_service.compiler.graph_passes.layout.reshape import AxisGroup, axis_groups
from compiler_service.compiler.graph_passes.normal_form.fold_shapes import FoldShapes
from shared_ir.expr import Var
from shared_ir.graph.ir import Graph
from tests.compiler_service.compiler.graph_passes.pass_graphs import assert_same, graph, ops, run_passes

CONV = '%c: float32[batch, 3, h, w] = Conv(%x, %w) {kernel_shape=(1, 1)} "conv"'
PICTURE = "float32[batch, 3, h, w]"


def _after_conv(nodes: str, result: str, constants: str = "", inputs: str = "") -> Graph:
    numbers = ", ".join(f"{v:.2f}" for v in np.random.default_rng(1).uniform(-1, 1, 6))
    text = f"""
        graph main(%x: float32[batch, 2, h, w]{inputs}) -> (%{result}) {{
          const %w: float32[3, 2, 1, 1] = [{numbers}]
          {constants}
          {CONV}
          {nodes}
        }}
        """
    return graph(text.replace("PICTURE", PICTURE))


PUSHED = {
    "elementwise": ("%y: PICTURE = Relu(%c)", "", ["Conv", "Relu", "Transpose"]),
    "constant per channel": (
        "%y: PICTURE = Mul(%c, %k)",
        "const %k: float32[3, 1, 1] = [1.0, 2.0, 3.0]",
        ["Conv", "Mul", "Transpose"],
    ),
    "scalar": ("%y: PICTURE = Mul(%c, %k)", "const %k: float32[] = [2.0]", ["Conv", "Mul", "Transpose"]),
    "concatenation": (
        "%r: PICTURE = Relu(%c)\n%y: float32[batch, 6, h, w] = Concat(%c, %r) {axis=1}",
        "",
        ["Conv", "Relu", "Concat", "Transpose"],
    ),
    "softmax over channels": ("%y: PICTURE = Softmax(%c) {axis=1}", "", ["Conv", "Softmax", "Transpose"]),
    "reduction over the picture": (
        "%y: float32[batch, 3] = ReduceMean(%c, %axes) {keepdims=0}",
        "const %axes: int64[2] = [2, 3]",
        ["Conv", "ReduceMean"],
    ),
    "reduction over channels": (
        "%y: float32[batch, 1, h, w] = ReduceMax(%c, %axes)",
        "const %axes: int64[1] = [1]",
        ["Conv", "ReduceMax", "ingot.Dims", "Reshape"],
    ),
    "reduction over everything": ("%y: float32[] = ReduceMax(%c) {keepdims=0}", "", ["Conv", "ReduceMax"]),
    "reduction over everything, kept": (
        "%y: float32[1, 1, 1, 1] = ReduceMin(%c)",
        "",
        ["Conv", "ReduceMin"],
    ),
    "reduction over nothing": (
        "%y: PICTURE = ReduceSumSquare(%c) {noop_with_empty_axes=1}",
        "",
        ["Conv", "Transpose", "ReduceSumSquare"],
    ),
    "global pool": (
        "%y: float32[batch, 3, 1, 1] = GlobalAveragePool(%c)",
        "",
        ["Conv", "GlobalAveragePool", "ingot.Dims", "Reshape"],
    ),
    "slice": (
        "%y: float32[batch, 2, h, w] = Slice(%c, %one, %three, %one)",
        "const %one: int64[1] = [1]\nconst %three: int64[1] = [3]",
        ["Conv", "Slice", "Transpose"],
    ),
    "padding": (
        "%y: float32[batch, 3, h + 2, w + 1] = Pad(%c, %pads)",
        "const %pads: int64[8] = [0, 0, 2, 0, 0, 0, 0, 1]",
        ["Conv", "Pad", "Transpose"],
    ),
    "resizing": (
        '%y: float32[batch, 3, 2*h, 2*w] = Resize(%c, _, %scales) {mode="nearest"}',
        "const %scales: float32[4] = [1.0, 1.0, 2.0, 2.0]",
        ["Conv", "Resize", "Transpose"],
    ),
    "sampling": (
        '%y: float32[batch, 3, 1, 2] = GridSample(%c, %g) {mode="linear"}',
        "const %g: float32[2, 1, 2, 2] = [0.0, 0.0, 0.5, 0.5, 0.25, 0.0, -0.5, 0.5]",
        ["Conv", "GridSample", "Transpose"],
    ),
    "regions": (
        "%y: float32[2, 3, 2, 2] = RoiAlign(%c, %r, %n) {output_height=2, output_width=2, sampling_ratio=2}",
        "const %r: float32[2, 4] = [0.0, 0.5, 3.0, 4.0, 1.0, 1.0, 4.0, 2.5]\nconst %n: int64[2] = [1, 0]",
        ["Conv", "RoiAlign", "Transpose"],
    ),
    "transposed convolution": (
        "%y: float32[batch, 1, h, w] = ConvTranspose(%c, %k) {kernel_shape=(1, 1)}",
        "const %k: float32[3, 1, 1, 1] = [1.0, 2.0, 3.0]",
        ["Conv", "ConvTranspose", "ingot.Dims", "Reshape"],
    ),
    "transpose to channels last": (
        "%y: float32[batch, h, w, 3] = Transpose(%c) {perm=(0, 2, 3, 1)}",
        "",
        ["Conv"],
    ),
    "patches": (
        "%f: float32[batch, 3, h*w] = Reshape(%c, %s)\n%y: float32[batch, h*w, 3] = Transpose(%f) {perm=(0, 2, 1)}",
        "const %s: int64[3] = [0, 3, -1]",
        ["Conv", "ingot.Dims", "Reshape"],
    ),
    "flattening a picture": (
        "%y: float32[batch, 3*h*w] = Flatten(%c)",
        "",
        ["Conv", "Transpose", "ingot.Dims", "Reshape"],
    ),
}


@pytest.mark.parametrize("name", PUSHED)
def test_after_a_convolution(name: str) -> None:
    nodes, constants, wanted = PUSHED[name]
    before = _after_conv(nodes, "y", constants)
    after = run_passes(before, ChooseLayout())
    assert ops(after) == wanted
    assert_same(before, after)


def test_only_the_edges_keep_a_transpose() -> None:
    before = _after_conv(
        """
        %p: float32[batch, 3, h, w] = MaxPool(%c) {kernel_shape=(3, 3), pads=(1, 1, 1, 1)}
        %g: float32[batch, 3, 1, 1] = GlobalAveragePool(%p)
        %s: float32[batch, 3, 1, 1] = Sigmoid(%g)
        %m: PICTURE = Mul(%p, %s)
        %d: PICTURE = Conv(%m, %k) {kernel_shape=(1, 1)}
        %a: PICTURE = Add(%d, %c)
        %y: PICTURE = Relu(%a)
        """,
        "y",
        "const %k: float32[3, 3, 1, 1] = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0]",
    )
    after = run_passes(before, ChooseLayout())
    assert ops(after) == [
        "Conv", "MaxPool", "GlobalAveragePool", "Sigmoid", "Mul", "Conv", "Add", "Relu", "Transpose",
    ]  # fmt: skip
    assert [v.name for v in after.outputs] == ["y"]
    assert_same(before, after)


def test_a_channel_shuffle_costs_one_transpose() -> None:
    numbers = ", ".join(f"{v:.2f}" for v in np.random.default_rng(1).uniform(-1, 1, 16))
    before = graph(
        f"""
        graph main(%x: float32[batch, 4, h, w]) -> (%y) {{
          const %w: float32[4, 4, 1, 1] = [{numbers}]
          const %apart: int64[5] = [0, 2, 2, 6, 5]
          const %back: int64[4] = [0, 4, 6, 5]
          %c: float32[batch, 4, 6, 5] = Conv(%t, %w) {{kernel_shape=(1, 1)}}
          %f: float32[batch, 2, 2, 6, 5] = Reshape(%c, %apart)
          %s: float32[batch, 2, 2, 6, 5] = Transpose(%f) {{perm=(0, 2, 1, 3, 4)}}
          %b: float32[batch, 4, 6, 5] = Reshape(%s, %back)
          %y: float32[batch, 4, 6, 5] = Conv(%b, %w) {{kernel_shape=(1, 1)}}
        }}
        """.replace("%x: float32[batch, 4, h, w]", "%t: float32[batch, 4, 6, 5]")
    )
    after = run_passes(before, FoldShapes(), ChooseLayout())
    assert ops(after).count("Transpose") == 2  # at the end, and the shuffle itself
    assert_same(before, after)


@pytest.mark.parametrize(("rank", "type_"), [(3, "float32[batch, 2, w]"), (5, "float32[batch, 2, 3, h, w]")])
def test_other_ranks(rank: int, type_: str) -> None:
    spatial = rank - 2
    ones = ", ".join(["1"] * spatial)
    before = graph(
        f"""
        graph main(%x: {type_}) -> (%y) {{
          const %w: float32[2, 2, {ones}] = [1.0, 2.0, 3.0, 4.0]
          %c: {type_} = Conv(%x, %w) {{kernel_shape=({ones},)}}
          %y: {type_} = Relu(%c)
        }}
        """
    )
    after = run_passes(before, ChooseLayout())
    assert ops(after) == ["Conv", "Relu", "Transpose"]
    assert after.nodes[-1].attributes["perm"] == (0, rank - 1, *range(1, rank - 1))
    assert_same(before, after)


@pytest.mark.parametrize(("channels", "group", "moved"), [(3, 1, False), (4, 1, False), (5, 1, True), (4, 2, True)])
def test_a_convolution_reads_few_channels_where_they_are(channels: int, group: int, moved: bool) -> None:
    taken = channels // group
    numbers = ", ".join(f"{v:.2f}" for v in np.random.default_rng(1).uniform(-1, 1, 2 * taken * 9))
    before = graph(
        f"""
        graph main(%x: float32[batch, {channels}, h, 9]) -> (%y) {{
          const %w: float32[2, {taken}, 3, 3] = [{numbers}]
          %c: float32[batch, 2, (h - 1) // 2 + 1, 5] = Conv(%x, %w) {{
            kernel_shape=(3, 3), pads=(1, 1, 1, 1), strides=(2, 2), group={group}}}
          %y: float32[batch, 2, (h - 1) // 2 + 1, 5] = Relu(%c)
        }}
        """.replace("{\n            kernel", "{kernel")
    )
    after = run_passes(before, ChooseLayout())
    assert ops(after) == [*(["Transpose"] if moved else []), "Conv", "Relu", "Transpose"]
    assert_same(before, after)


def test_graphs_without_pictures_are_left_alone() -> None:
    before = graph("graph main(%x: float32[2, 3]) -> (%y) {\n %y: float32[3, 2] = Transpose(%x) {perm=(1, 0)}\n}")
    assert run_passes(before, ChooseLayout()) is before


def test_axis_groups() -> None:
    b, h = Var("b"), Var("h")
    assert axis_groups((b, 3, h, 4), (b, 3, h * 4)) == (
        AxisGroup((0,), (0,)),
        AxisGroup((1,), (1,)),
        AxisGroup((2, 3), (2,)),
    )
    assert axis_groups((6, b), (2, 3, b)) == (AxisGroup((0,), (0, 1)), AxisGroup((1,), (2,)))
    assert axis_groups((b, 4, 1, 1), (b, 4)) == (AxisGroup((0,), (0,)), AxisGroup((1,), (1,)), AxisGroup((2, 3), ()))
    assert axis_groups((b, h), (h, b)) == (AxisGroup((0, 1), (0, 1)),)
    assert axis_groups((b, 4), (h, 2)) is None
