"""Attention and other readers of slices: movement that groups repeat instead of copying."""

from __future__ import annotations

from compiler_service.compiler.graph_passes.algebra.simplify_algebra import SimplifyAlgebra
from compiler_service.compiler.graph_passes.cleaning.fold_constants import FoldConstants
from compiler_service.compiler.graph_passes.fusion.fuse import Fuse
from compiler_service.compiler.graph_passes.normal_form.fold_shapes import FoldShapes
from shared_ir.graph.ir import Graph
from tests.compiler_service.compiler.graph_passes.pass_graphs import assert_same, graph, ops, run_passes

ATTENTION = """
    graph main(%x: float32[batch, h, 3, 2, 4]) -> (%y) {
      const %scale: float32[1] = [0.5]
      const %axes: int64[1] = [0]
      %t: float32[3, batch, 2, h, 4] = Transpose(%x) {perm=(2, 0, 3, 1, 4)}
      %a: float32[1, batch, 2, h, 4], %b: float32[1, batch, 2, h, 4], %c: float32[1, batch, 2, h, 4] = Split(%t) {axis=0, num_outputs=3}
      %q: float32[batch, 2, h, 4] = Squeeze(%a, %axes)
      %k: float32[batch, 2, h, 4] = Squeeze(%b, %axes)
      %v: float32[batch, 2, h, 4] = Squeeze(%c, %axes)
      %qs: float32[batch, 2, h, 4] = Mul(%q, %scale)
      %kt: float32[batch, 2, 4, h] = Transpose(%k) {perm=(0, 1, 3, 2)}
      %s: float32[batch, 2, h, h] = MatMul(%qs, %kt)
      %p: float32[batch, 2, h, h] = Softmax(%s) {axis=3}
      %o: float32[batch, 2, h, 4] = MatMul(%p, %v)
      %y: float32[batch, h, 2, 4] = Transpose(%o) {perm=(0, 2, 1, 3)}
    }
    """


def fused(text: str) -> Graph:
    before = graph(text)
    after = run_passes(before, FoldShapes(), FoldConstants(), SimplifyAlgebra(), Fuse())
    assert_same(before, after)
    return after


def test_attention_moves_no_data() -> None:
    found = [
        [op for op in name.split("+") if op in ("MatMul", "Einsum", "Softmax", "Mul")] for name in ops(fused(ATTENTION))
    ]
    assert found == [["MatMul", "Mul", "Softmax", "Einsum"]]


def test_attention_of_safe_weights_moves_no_data() -> None:
    plain = "%p: float32[batch, 2, h, h] = Softmax(%s) {axis=3}"
    safe = """%w: float32[batch, 2, h, h] = Softmax(%s) {axis=3}
      %n: bool[batch, 2, h, h] = IsNaN(%w)
      %p: float32[batch, 2, h, h] = Where(%n, %zero, %w)"""
    text = ATTENTION.replace(plain, safe).replace("const %axes", "const %zero: float32[1] = [0]\n      const %axes")
    (kernel,) = (name.split("+") for name in ops(fused(text)) if "Einsum" in name)
    assert [op for op in kernel if op in ("MatMul", "ingot.SafeSoftmax", "Einsum")] == [
        *("MatMul", "ingot.SafeSoftmax", "Einsum")
    ]


def test_keys_that_heads_share_are_not_repeated_in_memory() -> None:
    after = fused(
        """
        graph main(%q: float32[batch, 4, h, 8], %k: float32[batch, 2, h, 8], %v: float32[batch, 2, h, 8]) -> (%o) {
          const %one: int64[1] = [2]
          const %times: int64[5] = [1, 1, 2, 1, 1]
          const %shape: int64[4] = [0, 4, -1, 8]
          %ku: float32[batch, 2, 1, h, 8] = Unsqueeze(%k, %one)
          %ke: float32[batch, 2, 2, h, 8] = Expand(%ku, %times)
          %kr: float32[batch, 4, h, 8] = Reshape(%ke, %shape)
          %kt: float32[batch, 4, 8, h] = Transpose(%kr) {perm=(0, 1, 3, 2)}
          %vu: float32[batch, 2, 1, h, 8] = Unsqueeze(%v, %one)
          %ve: float32[batch, 2, 2, h, 8] = Expand(%vu, %times)
          %vr: float32[batch, 4, h, 8] = Reshape(%ve, %shape)
          %s: float32[batch, 4, h, h] = MatMul(%q, %kt)
          %p: float32[batch, 4, h, h] = Softmax(%s)
          %o: float32[batch, 4, h, 8] = MatMul(%p, %vr)
        }
        """
    )
    assert [name for name in ops(after) if "Expand" in name] == [name for name in ops(after) if "Softmax" in name]


def test_without_approximation_scales_stay() -> None:
    before = graph(ATTENTION)
    after = run_passes(before, FoldShapes(), FoldConstants(), SimplifyAlgebra(approximate=False), Fuse())
    assert_same(before, after)
    assert any("Mul" in name and "MatMul" not in name for name in ops(after))


def test_slices_are_repeated_by_several_readers() -> None:
    after = fused(
        """
        graph main(%x: float32[batch, 8]) -> (%y, %z) {
          const %w: float32[4, 2] = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]
          %a: float32[batch, 4], %b: float32[batch, 4] = Split(%x) {axis=1, num_outputs=2}
          %y: float32[batch, 2] = MatMul(%a, %w)
          %s: float32[batch, 4] = Sigmoid(%b)
          %t: float32[batch, 4] = Mul(%s, %a)
          %z: float32[batch, 4] = Softmax(%t)
        }
        """
    )
    assert ops(after) == ["Slice+MatMul", "Slice+Slice+Sigmoid+Mul", "Softmax"]


def test_what_a_view_reads_is_copied() -> None:
    after = fused(
        """
        graph main(%x: float32[batch, 8]) -> (%y) {
          const %shape: int64[2] = [-1, 2]
          %a: float32[batch, 4], %b: float32[batch, 4] = Split(%x) {axis=1, num_outputs=2}
          %r: float32[2 * batch, 2] = Reshape(%a, %shape)
          %y: float32[2 * batch, 2] = Relu(%r)
        }
        """
    )
    assert [name for name in ops(after) if "Slice" in name] == ["Slice"]


def test_a_transpose_that_spoils_the_columns_is_made_once() -> None:
    after = fused(
        """
        graph main(%x: float32[3, h, 4], %z: float32[4, h, 3]) -> (%y) {
          %t: float32[3, 4, h] = Transpose(%x) {perm=(0, 2, 1)}
          %u: float32[3, h, 4] = Transpose(%z) {perm=(2, 1, 0)}
          %y: float32[3, 4, 4] = MatMul(%t, %u)
        }
        """
    )
    assert ops(after) == ["Transpose", "Transpose+MatMul"]


def test_products_with_weights_keep_their_form() -> None:
    after = fused(
        """
        graph main(%x: float32[batch, 2, 3]) -> (%y) {
          const %w: float32[3, 2] = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
          %m: float32[batch, 2, 2] = MatMul(%x, %w)
          %y: float32[2, batch, 2] = Transpose(%m) {perm=(1, 0, 2)}
        }
        """
    )
    assert ops(after) == ["MatMul", "Transpose"]
