"""Quantized products as products of bytes: zero points and scales outside of the sum."""

from __future__ import annotations

import numpy as np
import pytest

from compiler_service.compiler.graph_passes.algebra.simplify_algebra import SimplifyAlgebra
from compiler_service.compiler.graph_passes.cleaning.fold_constants import FoldConstants
from compiler_service.compiler.graph_passes.layout.choose_layout import ChooseLayout
from compiler_service.compiler.graph_passes.pipelines import default_pipeline
from compiler_service.compiler.graph_passes.precision.multiply_bytes import MultiplyBytes
from compiler_service.compiler.graph_passes.rewriting.pass_manager import Pass, PassContext
from compiler_service.compiler.reference.interpret import run_graph
from shared_ir.dtype import DType
from shared_ir.graph.ir import Graph
from shared_ir.machine.target import parse_target
from tests.compiler_service.compiler.graph_passes.pass_graphs import graph, ops, run_passes

RNG = np.random.default_rng(11)


def text_of(array: np.ndarray) -> str:
    return ", ".join(str(n) for n in array.ravel().tolist())


def weights(*shape: int) -> str:
    return text_of(RNG.integers(-128, 127, shape, endpoint=True))


def rewritten(text: str, tolerance: float = 0.0, data: DType = DType.UINT8, first: tuple[Pass, ...] = ()) -> Graph:
    """The graph with products of bytes, after the passes ``first``; it computes the same."""
    before = graph(text)
    after = run_passes(run_passes(before, *first), MultiplyBytes(data), FoldConstants())
    feeds = {}
    for value in before.inputs:
        shape = tuple(d if isinstance(d, int) else 3 for d in value.shape)
        limits = np.iinfo(value.dtype.value)
        feeds[value.name] = RNG.integers(limits.min, limits.max, shape, endpoint=True).astype(value.dtype.numpy)
    for wanted, found in zip(run_graph(before, feeds), run_graph(after, feeds), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance * np.abs(wanted).max(initial=0))
    return after


@pytest.mark.parametrize("data", [DType.UINT8, DType.INT8])
@pytest.mark.parametrize("kind", ["uint8", "int8"])
def test_zero_points_of_data_are_taken_off_the_sums(kind: str, data: DType) -> None:
    after = rewritten(
        f"""
        graph main(%x: {kind}[n, 6]) -> (%y) {{
          const %w: int8[6, 4] = [{weights(6, 4)}]
          const %z: {kind}[] = [5]
          %y: int32[n, 4] = MatMulInteger(%x, %w, %z)
        }}
        """,
        data=data,
    )
    moved = ["Cast", "BitwiseXor"] if kind != data else []
    assert ops(after) == [*moved, "MatMulInteger", "Add"]


def test_zero_points_of_the_run_multiply_the_sums_of_weights() -> None:
    after = rewritten(
        f"""
        graph main(%x: uint8[n, 6], %z: uint8[]) -> (%y) {{
          const %w: int8[6, 4] = [{weights(6, 4)}]
          %y: int32[n, 4] = MatMulInteger(%x, %w, %z)
        }}
        """
    )
    assert ops(after) == ["Cast", "MatMulInteger", "Mul", "Sub"]


def test_windows_are_padded_with_the_zero_point() -> None:
    after = rewritten(
        f"""
        graph main(%x: uint8[1, 2, 5, 5]) -> (%y) {{
          const %w: int8[3, 2, 3, 3] = [{weights(3, 2, 3, 3)}]
          const %z: uint8[] = [200]
          %y: int32[1, 3, 5, 5] = ConvInteger(%x, %w, %z) {{pads=(1, 1, 1, 1), kernel_shape=(3, 3)}}
        }}
        """
    )
    assert ops(after) == ["Pad", "ConvInteger", "Add"]


def test_unsigned_weights_around_their_zero_point_are_signed() -> None:
    values = text_of(RNG.integers(0, 255, (6, 4), endpoint=True))
    text = """
        graph main(%x: uint8[n, 6]) -> (%y) {{
          const %w: uint8[6, 4] = [{0}]
          const %z: uint8[] = [0]
          const %v: uint8[] = [{1}]
          %y: int32[n, 4] = MatMulInteger(%x, %w, %z, %v)
        }}
        """
    assert ops(rewritten(text.format(values, 128))) == ["MatMulInteger"]


@pytest.mark.parametrize("data", [DType.UINT8, DType.INT8])
@pytest.mark.parametrize("zeros", ["0", "119", "255", "0, 130, 128, 255"])
def test_weights_that_are_no_signed_bytes_are_moved(zeros: str, data: DType) -> None:
    weights = RNG.integers(0, 255, (6, 4), endpoint=True)
    weights[:2] = [[0], [255]]  # no zero point takes both into signed bytes
    after = rewritten(
        f"""
        graph main(%x: uint8[n, 6]) -> (%y) {{
          const %w: uint8[6, 4] = [{text_of(weights)}]
          const %z: uint8[] = [9]
          const %v: uint8[{"" if "," not in zeros else 4}] = [{zeros}]
          %y: int32[n, 4] = MatMulInteger(%x, %w, %z, %v)
        }}
        """,
        data=data,
    )
    assert set(ops(after)) >= {"MatMulInteger", "ingot.SumBytes"}


@pytest.mark.parametrize("kernel", [1, 3])
@pytest.mark.parametrize(
    "more", ["", ", strides=(2, 2)", ", dilations=(2, 2), pads=(1, 2, 1, 2)", ", pads=(1, 0, 1, 1)"]
)
def test_sums_of_the_data_of_windows_move_weights(kernel: int, more: str) -> None:
    shape = (3, 2, kernel, kernel)
    extents = {
        "": (11 - kernel, 11 - kernel),
        ", strides=(2, 2)": ((10 - kernel) // 2 + 1,) * 2,
        ", dilations=(2, 2), pads=(1, 2, 1, 2)": (12 - 2 * (kernel - 1), 14 - 2 * (kernel - 1)),
        ", pads=(1, 0, 1, 1)": (13 - kernel, 12 - kernel),
    }[more]
    unsigned = RNG.integers(0, 255, shape, endpoint=True)
    unsigned[1, 0, 0, 0] = 255
    after = rewritten(
        f"""
        graph main(%x: uint8[2, 2, 10, 10]) -> (%y) {{
          const %w: uint8[{", ".join(map(str, shape))}] = [{text_of(unsigned)}]
          const %z: uint8[] = [200]
          const %v: uint8[] = [99]
          %y: int32[2, 3, {extents[0]}, {extents[1]}] = ConvInteger(%x, %w, %z, %v) {{kernel_shape=({kernel}, {kernel}){more}}}
        }}
        """
    )
    assert set(ops(after)) >= {"ConvInteger", "ingot.SumBytes"}
    assert ("ingot.ExactConv" in ops(after)) is (kernel > 1 or "strides" in more)


def test_sums_of_the_data_that_no_float_counts_are_not_used() -> None:
    text = """
        graph main(%x: uint8[n, {0}]) -> (%y) {{
          const %w: uint8[{0}, 1] = [{1}]
          const %v: uint8[] = [3]
          const %z: uint8[] = [0]
          %y: int32[n, 1] = MatMulInteger(%x, %w, %z, %v)
        }}
        """
    few, many = (text.format(count, text_of(np.full(count, 255))) for count in (65793, 65794))
    assert "MatMulInteger" in ops(run_passes(graph(few), MultiplyBytes()))
    assert "MatMulInteger" not in ops(run_passes(graph(many), MultiplyBytes()))


def _dequantized_convolution(steps: str) -> str:
    count = len(steps.split(","))
    return f"""
        graph main(%x: uint8[1, 2, 5, 5]) -> (%y) {{
          const %w: int8[3, 2, 3, 3] = [{weights(3, 2, 3, 3)}]
          const %s: float32[] = [0.01]
          const %z: uint8[] = [7]
          const %t: float32[{count}] = [{steps}]
          const %u: int8[{count}] = [{", ".join(["0"] * count)}]
          const %b: float32[3] = [1.0, -2.0, 3.0]
          %d: float32[1, 2, 5, 5] = DequantizeLinear(%x, %s, %z)
          %e: float32[3, 2, 3, 3] = DequantizeLinear(%w, %t, %u) {{axis=0}}
          %y: float32[1, 3, 5, 5] = Conv(%d, %e, %b) {{pads=(1, 1, 1, 1), kernel_shape=(3, 3)}}
        }}
        """


@pytest.mark.parametrize("steps", ["0.5", "0.5, 0.25, 2.0"])
def test_a_convolution_of_dequantized_operands(steps: str) -> None:
    after = rewritten(_dequantized_convolution(steps), 1e-6)
    assert ops(after) == ["Pad", "ConvInteger", "Add", "Cast", "Mul", "Add"]


def test_a_convolution_that_has_a_layout_stays_one_of_floats() -> None:
    after = rewritten(_dequantized_convolution("0.5, 0.25, 2.0"), 1e-6, first=(ChooseLayout(),))
    assert "ConvInteger" not in ops(after)


@pytest.mark.parametrize("turned", [0, 1])
def test_a_product_of_dequantized_matrices(turned: int) -> None:
    shape = (4, 6) if turned else (6, 4)
    after = rewritten(
        f"""
        graph main(%x: int8[n, 6]) -> (%y) {{
          const %w: int8[{shape[0]}, {shape[1]}] = [{weights(*shape)}]
          const %s: float32[] = [0.01]
          const %z: int8[] = [-3]
          const %t: float32[4] = [0.5, 1.0, 0.125, 3.0]
          const %u: int8[4] = [0, 0, 0, 0]
          const %b: float32[4] = [1.0, -2.0, 3.0, 0.0]
          %d: float32[n, 6] = DequantizeLinear(%x, %s, %z)
          %e: float32[{shape[0]}, {shape[1]}] = DequantizeLinear(%w, %t, %u) {{axis={0 if turned else 1}}}
          %y: float32[n, 4] = Gemm(%d, %e, %b) {{transB={turned}}}
        }}
        """,
        1e-6,
    )
    assert ops(after) == ["Cast", "BitwiseXor", "MatMulInteger", "Add", "Cast", "Mul", "Add"]


def test_weights_that_the_model_quantizes_and_turns() -> None:
    """As PyTorch exports a linear layer that was trained with its weights rounded: floats, quantized row by row, transposed."""
    rows = RNG.uniform(-1, 1, (4, 6)).astype(np.float32)
    before = graph(
        f"""
        graph main(%x: uint8[n, 6]) -> (%y) {{
          const %w: float32[4, 6] = [{text_of(rows)}]
          const %s: float32[] = [0.01]
          const %z: uint8[] = [3]
          const %t: float32[4] = [{text_of(np.abs(rows).max(axis=1) / 127)}]
          const %u: int8[4] = [0, 0, 0, 0]
          %d: float32[n, 6] = DequantizeLinear(%x, %s, %z)
          %q: int8[4, 6] = QuantizeLinear(%w, %t, %u) {{axis=0}}
          %e: float32[4, 6] = DequantizeLinear(%q, %t, %u) {{axis=0}}
          %v: float32[6, 4] = Transpose(%e) {{perm=(1, 0)}}
          %y: float32[n, 4] = MatMul(%d, %v)
        }}
        """
    )
    vnni = default_pipeline(3, parse_target("amd/zen4"))
    after = vnni.run_graph(before, PassContext(3))
    (body,) = (g for n in after.nodes for g in n.subgraphs if any(i.op == "MatMulInteger" for i in g.nodes))
    assert [n.op for n in body.nodes] == ["MatMulInteger", "Add", "Cast", "Mul"]
    x = {"x": RNG.integers(0, 255, (3, 6), endpoint=True).astype(np.uint8)}
    np.testing.assert_allclose(run_graph(after, x)[0], run_graph(before, x)[0], rtol=1e-6, atol=1e-6)


CONVOLUTION = """
graph main(%x: uint8[1, {channels}, 5, 5]) -> (%y) {{
  const %w: int8[{shape}] = [{weights}]
  %y: int32[1, {outputs}, 5, 5] = ConvInteger(%x, %w) {{{attributes}}}
}}
"""


@pytest.mark.parametrize(
    ("channels", "shape", "attributes"),
    [
        (4, (4, 1, 3, 3), "pads=(1, 1, 1, 1), group=4"),
        (1, (4, 1, 3, 3), "pads=(1, 1, 1, 1)"),
        (2, (4, 2, 3, 3), 'auto_pad="SAME_UPPER"'),
    ],
    ids=["depthwise", "one channel", "padded by a rule"],
)
def test_what_dots_do_not_serve_is_left_to_floats(channels: int, shape: tuple[int, ...], attributes: str) -> None:
    dims = ", ".join(map(str, shape))
    text = CONVOLUTION.format(
        channels=channels, shape=dims, weights=weights(*shape), outputs=shape[0], attributes=attributes
    )
    assert ops(rewritten(text)) == ["Cast", "ingot.ExactConv", "Cast"]


def test_sums_of_floats_that_are_integers_stay_floats() -> None:
    shape = (4, 1, 3, 3)
    before = graph(
        f"""
        graph main(%x: uint8[1, 4, 5, 5]) -> (%y, %z) {{
          const %w: int8[4, 1, 3, 3] = [{weights(*shape)}]
          const %s: float32[] = [0.25]
          %t: int32[1, 4, 5, 5] = ConvInteger(%x, %w) {{pads=(1, 1, 1, 1), group=4}}
          %f: float32[1, 4, 5, 5] = Cast(%t) {{to=float32}}
          %y: float32[1, 4, 5, 5] = Mul(%f, %s)
          %z: float64[1, 4, 5, 5] = Cast(%t) {{to=float64}}
        }}
        """
    )
    after = run_passes(before, MultiplyBytes(), FoldConstants(), SimplifyAlgebra())
    assert ops(after) == ["Cast", "ingot.ExactConv", "Mul", "Cast"]
    x = RNG.integers(0, 255, (1, 4, 5, 5), endpoint=True).astype(np.uint8)
    for wanted, found in zip(run_graph(before, {"x": x}), run_graph(after, {"x": x}), strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_the_steps_of_the_result_go_into_the_scale() -> None:
    before = graph(
        """
        graph main(%t: int32[n, 2]) -> (%y) {
          const %f: float32[2] = [0.5, 0.25]
          const %b: float32[2] = [3.0, 1.0]
          const %s: float32[] = [0.125]
          const %z: uint8[] = [9]
          %c: float32[n, 2] = Cast(%t) {to=float32}
          %m: float32[n, 2] = Mul(%c, %f)
          %a: float32[n, 2] = Add(%m, %b)
          %r: float32[n, 2] = Relu(%a)
          %y: uint8[n, 2] = QuantizeLinear(%r, %s, %z)
        }
        """
    )
    after = run_passes(before, SimplifyAlgebra())
    constants = {v.name: a.tolist() for v, a in after.constants.items()}
    assert ops(after) == ["Cast", "Mul", "Add", "Relu", "QuantizeLinear"]
    assert [4.0, 2.0] in constants.values()
    assert [24.0, 8.0] in constants.values()
    totals = RNG.integers(-99, 99, (40, 2)).astype(np.int32)
    np.testing.assert_array_equal(run_graph(before, {"t": totals})[0], run_graph(after, {"t": totals})[0])
    assert run_passes(before, SimplifyAlgebra(approximate=False)) is before
