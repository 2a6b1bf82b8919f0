"""Weights of bytes stay bytes where few rows are multiplied by them."""

from __future__ import annotations

import numpy as np
import pytest

from compiler_service.compiler.graph_passes.algebra.simplify_algebra import SimplifyAlgebra
from compiler_service.compiler.graph_passes.cleaning.fold_constants import FoldConstants
from compiler_service.compiler.graph_passes.fusion.fuse import Fuse
from compiler_service.compiler.graph_passes.precision.keep_quantized import KeepQuantized
from compiler_service.compiler.graph_passes.rewriting.builder import Builder
from shared_ir.dtype import DType
from shared_ir.graph.ir import Graph, Value
from shared_ir.types import TensorType
from tests.compiler_service.compiler.graph_passes.pass_graphs import assert_same, graph, ops, run_passes

DEPTH, COLUMNS = 256, 300


def quantized(
    rows: int, kind: type, bits: int = 8, block: int = 0, *, zeros: bool = False, turned: bool = False
) -> Graph:
    """``x @ DequantizeLinear(w)``; ``turned``: the weights are ``[columns, depth]`` and transposed behind it."""
    random = np.random.default_rng(block)
    x = Value("x", TensorType(DType.FLOAT32, (rows, DEPTH)))
    builder = Builder.of(Graph("main", (x,), (), ()))
    high = 1 << (bits - 1 if kind is np.int8 or bits == 8 else bits)  # differences of bytes are bytes
    low = -high if kind is np.int8 else 0
    if bits == 8 and kind is np.int8 and zeros:
        low, high = low // 2, high // 2
    shape = (DEPTH, COLUMNS)
    parameters = (DEPTH // block, COLUMNS) if block else (COLUMNS,)
    codes: np.ndarray = random.integers(low, high, shape).astype(kind)
    scales = random.random(parameters).astype(np.float32)
    points: list[np.ndarray] = [random.integers(low, high, parameters).astype(kind)] if zeros else []
    arrays = [codes, scales, *points]
    axis = 0 if block else 1
    if turned:
        arrays, axis = [np.ascontiguousarray(a.T) for a in arrays], 1 - axis
    weight = builder.node("DequantizeLinear", *[builder.constant(a) for a in arrays], axis=axis, block_size=block)
    y = builder.node("MatMul", x, builder.transpose(weight, (1, 0)) if turned else weight)
    return Graph("main", (x,), (y,), tuple(builder.nodes), dict(builder.added))


@pytest.mark.parametrize("kind", [np.int8, np.uint8])
@pytest.mark.parametrize("block", [0, 32])
@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("bits", [4, 8])
def test_a_product_of_few_rows_reads_bytes(kind: type, bits: int, block: int, zeros: bool, turned: bool) -> None:
    before = quantized(3, kind, bits, block, zeros=zeros, turned=turned)
    after = run_passes(before, KeepQuantized(), FoldConstants(), SimplifyAlgebra(), Fuse())
    weight = max(after.constants, key=lambda v: after.constants[v].size)
    if bits == 4:
        assert ops(after) == [*(["Reshape"] if block else []), "ReduceSum", "ingot.MatMulNibbles"]
        assert (weight.dtype, weight.shape) == (DType.UINT32, (DEPTH // 8, COLUMNS))
    else:
        assert ops(after) == ["ingot.Dequantize+MatMul"]
        assert (weight.dtype, weight.shape) == (DType.INT8, (DEPTH, COLUMNS))
        assert len(after.constants) == 2, "zero points go into the weights"
    assert_same(before, after, 1e-4)


@pytest.mark.parametrize(("depth", "attributes"), [(12, "axis=0, block_size=4"), (3, "axis=1")])
def test_blocks_that_are_no_whole_words_stay_bytes(depth: int, attributes: str) -> None:
    codes = ", ".join(str(n % 15 - 7) for n in range(depth * 2))
    scales = "[3, 2] = [0.5, 1.0, 0.25, 2.0, 4.0, 0.125]" if "block" in attributes else "[2] = [0.5, 1.0]"
    before = graph(f"""graph main(%x: float32[1, {depth}]) -> (%y) {{
      const %w: int8[{depth}, 2] = [{codes}]
      const %s: float32{scales}
      %d: float32[{depth}, 2] = DequantizeLinear(%w, %s) {{{attributes}}}
      %y: float32[1, 2] = MatMul(%x, %d)
    }}""")
    after = run_passes(before, KeepQuantized(least_elements=1), FoldConstants(), SimplifyAlgebra(), Fuse())
    assert ops(after) == ["ingot.Dequantize+MatMul"]
    assert_same(before, after)


@pytest.mark.parametrize("turned", [0, 1])
def test_gemm_too(turned: int) -> None:
    before = graph(f"""graph main(%x: float32[1, 2]) -> (%y) {{
      const %w: int8[2, 2] = [1, 2, 3, 4]
      const %s: float32[2] = [0.5, 1.0]
      const %b: float32[2] = [0.25, -1.0]
      %d: float32[2, 2] = DequantizeLinear(%w, %s) {{axis=1}}
      %y: float32[1, 2] = Gemm(%x, %d, %b) {{transB={turned}}}
    }}""")
    after = run_passes(before, KeepQuantized(least_elements=1), FoldConstants(), Fuse())
    assert ops(after) == ["ingot.Dequantize+Gemm"]
    assert_same(before, after)


def test_differences_that_are_no_bytes_keep_their_zero_points() -> None:
    before = graph("""graph main(%x: float32[1, 2]) -> (%y) {
      const %w: int8[2, 2] = [127, -128, 0, 1]
      const %s: float32[2] = [0.5, 1.0]
      const %z: int8[2] = [-1, 0]
      %d: float32[2, 2] = DequantizeLinear(%w, %s, %z) {axis=1}
      %y: float32[1, 2] = MatMul(%x, %d)
    }""")
    after = run_passes(before, KeepQuantized(least_elements=1), FoldConstants(), SimplifyAlgebra(), Fuse())
    assert ops(after) == ["ingot.Dequantize+MatMul"]
    assert len(after.constants) == 3
    assert_same(before, after)


def test_zero_points_far_from_the_codes_go_into_the_weights() -> None:
    before = graph("""graph main(%x: float32[1, 2]) -> (%y) {
      const %w: uint8[2, 2] = [1, 2, 3, 15]
      const %s: float32[2] = [0.5, 1.0]
      const %z: uint8[2] = [128, 140]
      %d: float32[2, 2] = DequantizeLinear(%w, %s, %z) {axis=1}
      %y: float32[1, 2] = MatMul(%x, %d)
    }""")
    after = run_passes(before, KeepQuantized(least_elements=1), FoldConstants(), SimplifyAlgebra())
    assert ops(after) == ["ingot.Dequantize", "MatMul"]
    assert_same(before, after)


def test_with_many_rows_the_weights_are_folded() -> None:
    before = quantized(64, np.int8)
    assert run_passes(before, KeepQuantized()) is before
    assert ops(run_passes(before, KeepQuantized(), FoldConstants(), Fuse())) == ["MatMul"]


def test_small_weights_are_folded() -> None:
    before = quantized(1, np.int8)
    assert run_passes(before, KeepQuantized(least_elements=DEPTH * COLUMNS + 1)) is before


def test_data_that_was_quantized_is_left_to_products_of_bytes() -> None:
    before = graph("""graph main(%q: uint8[1, 2]) -> (%y) {
      const %w: int8[2, 2] = [1, 2, 3, 4]
      const %s: float32[2] = [0.5, 1.0]
      const %t: float32[] = [0.5]
      %x: float32[1, 2] = DequantizeLinear(%q, %t)
      %d: float32[2, 2] = DequantizeLinear(%w, %s) {axis=1}
      %y: float32[1, 2] = MatMul(%x, %d)
    }""")
    assert run_passes(before, KeepQuantized(least_elements=1)) is before


def test_weights_that_the_run_computes_are_left_alone() -> None:
    before = graph("""graph main(%x: float32[1, 2], %w: int8[2, 2]) -> (%y) {
      const %s: float32[2] = [0.5, 1.0]
      %d: float32[2, 2] = DequantizeLinear(%w, %s) {axis=1}
      %y: float32[1, 2] = MatMul(%x, %d)
    }""")
    assert run_passes(before, KeepQuantized(least_elements=1)) is before
