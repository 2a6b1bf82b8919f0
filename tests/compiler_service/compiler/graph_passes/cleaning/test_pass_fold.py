"""Constants, shapes, dead code, common subexpressions, batch norm."""

from __future__ import annotations

import numpy as np
import pytest

from compiler_service.compiler.graph_passes.algebra.fold_batch_norm import FoldBatchNorm
from compiler_service.compiler.graph_passes.algebra.simplify_algebra import SimplifyAlgebra
from compiler_service.compiler.graph_passes.analysis.known import known_values
from compiler_service.compiler.graph_passes.analysis.values import evaluate_node
from compiler_service.compiler.graph_passes.cleaning import fold_constants
from compiler_service.compiler.graph_passes.cleaning.eliminate_common_subexpressions import (
    EliminateCommonSubexpressions,
)
from compiler_service.compiler.graph_passes.cleaning.eliminate_dead_code import EliminateDeadCode
from compiler_service.compiler.graph_passes.cleaning.fold_constants import FoldConstants
from compiler_service.compiler.graph_passes.layout.choose_layout import ChooseLayout
from compiler_service.compiler.graph_passes.normal_form.fold_shapes import FoldShapes
from compiler_service.compiler.tensor_expr.meaning import evaluate
from shared_ir.dtype import DType
from shared_ir.graph.ir import Graph, Node, Value
from shared_ir.types import TensorType
from tests.compiler_service.compiler.graph_passes.pass_graphs import assert_same, body, graph, lines, ops, run_passes


def test_dead_nodes_and_constants_go() -> None:
    before = graph(
        """
        graph main(%x: float32[4]) -> (%y) {
          const %unused: float32[1] = [1.0]
          %dead: float32[4] = Exp(%x)
          %deader: float32[4] = Add(%dead, %unused)
          %y: float32[4] = Relu(%x)
        }
        """
    )
    after = run_passes(before, EliminateDeadCode())
    assert body(after) == "%y: float32[4] = Relu(%x)"
    assert run_passes(after, EliminateDeadCode()) is after


def test_constants_fold() -> None:
    before = graph(
        """
        graph main(%x: float32[2]) -> (%y) {
          const %a: float32[2] = [1.0, 2.0]
          const %b: float32[2] = [3.0, 5.0]
          %c: float32[2] = Add(%a, %b)
          %d: float32[2] = Mul(%c, %c)
          %y: float32[2] = Mul(%d, %x)
        }
        """
    )
    after = run_passes(before, FoldConstants())
    assert body(after) == lines("const %d: float32[2] = [16.0, 49.0]\n%y: float32[2] = Mul(%d, %x)")


def test_results_larger_than_the_budget_and_the_operands_stay() -> None:
    before = graph(
        """
        graph main() -> (%y) {
          const %a: float32[3, 1] = [1.0, 2.0, 3.0]
          const %b: float32[1, 3] = [1.0, 2.0, 3.0]
          %y: float32[3, 3] = Mul(%a, %b)
        }
        """
    )
    assert run_passes(before, FoldConstants(largest_result=8)) is before
    assert not run_passes(before, FoldConstants()).nodes


def test_a_huge_uniform_weight_folds_to_a_view() -> None:
    before = graph(
        """
        graph main(%x: float32[1, 15000]) -> (%y) {
          const %shape: int64[2] = [15000, 15000]
          %w: float32[15000, 15000] = ConstantOfShape(%shape) {value=0.5, dtype=float32}
          %t: float32[15000, 15000] = Transpose(%w) {perm=(1, 0)}
          %y: float32[1, 15000] = MatMul(%x, %t)
        }
        """
    )
    after = run_passes(before, FoldConstants())
    (array,) = after.constants.values()
    assert array.shape == (15000, 15000)
    assert array.strides == (0, 0)
    assert array[7, 7] == np.float32(0.5)


def test_equal_nodes_and_constants_merge() -> None:
    before = graph(
        """
        graph main(%x: float32[2]) -> (%y) {
          const %a: float32[2] = [1.0, 2.0]
          const %b: float32[2] = [1.0, 2.0]
          %c: float32[2] = Add(%x, %a)
          %d: float32[2] = Add(%x, %b)
          %y: float32[2] = Mul(%c, %d)
        }
        """
    )
    after = run_passes(before, EliminateCommonSubexpressions())
    assert body(after) == lines(
        """
        const %a: float32[2] = [1.0, 2.0]
        %c: float32[2] = Add(%x, %a)
        %y: float32[2] = Mul(%c, %c)
        """
    )


def test_nodes_that_differ_in_an_attribute_type_or_are_random_stay() -> None:
    before = graph(
        """
        graph main(%x: float32[2]) -> (%y, %z) {
          %a: float32[2] = LeakyRelu(%x) {alpha=1.0}
          %b: float32[2] = LeakyRelu(%x) {alpha=0.5}
          %r: float32[2] = RandomNormalLike(%x)
          %s: float32[2] = RandomNormalLike(%x)
          %y: float32[2] = Mul(%a, %b)
          %z: float32[2] = Mul(%r, %s)
        }
        """
    )
    assert run_passes(before, EliminateCommonSubexpressions()) is before


def test_equal_outputs_keep_their_names() -> None:
    before = graph(
        """
        graph main(%x: float32[2]) -> (%y, %z) {
          %y: float32[2] = Relu(%x)
          %z: float32[2] = Relu(%x)
        }
        """
    )
    after = run_passes(before, EliminateCommonSubexpressions())
    assert [v.name for v in after.outputs] == ["y", "z"]
    assert ops(after) == ["Relu", "Identity"]


def test_shape_arithmetic_becomes_dims() -> None:
    before = graph(
        """
        graph main(%x: float32[batch, 3, h, w]) -> (%y) {
          const %zero: int64[1] = [0]
          const %minus: int64[1] = [-1]
          %shape: int64[4] = Shape(%x)
          %n: int64[1] = Gather(%shape, %zero)
          %target: int64[2] = Concat(%n, %minus) {axis=0}
          %y: float32[batch, 3*h*w] = Reshape(%x, %target)
        }
        """
    )
    after = run_passes(before, FoldShapes())
    assert body(after) == lines(
        """
        %target: int64[2] = ingot.Dims() {dims=(`batch`, -1)}
        %y: float32[batch, h * w * 3] = Reshape(%x, %target)
        """
    )
    assert_same(before, after)
    assert run_passes(after, FoldShapes()) is after


def test_what_is_computed_from_nothing_is_known() -> None:
    before = graph(
        """
        graph main(%x: int64[2, 3]) -> (%y, %all) {
          const %parts: int64[2] = [0, 2]
          %none: int64[0, 3], %all: int64[2, 3] = Split(%x, %parts) {axis=0}
          %y: int64[] = ReduceSum(%none) {keepdims=0}
        }
        """
    )
    after = run_passes(before, FoldShapes())
    assert [n.op for n in after.nodes] == ["Split"]
    assert_same(before, after)


def test_known_shapes_become_constants_and_scalars_are_squeezed_dims() -> None:
    before = graph(
        """
        graph main(%x: float32[batch, 3]) -> (%y, %z) {
          const %zero: int64[] = [0]
          const %one: int64[] = [1]
          %shape: int64[2] = Shape(%x)
          %y: int64[] = Gather(%shape, %one)
          %z: int64[] = Gather(%shape, %zero)
        }
        """
    )
    after = run_passes(before, FoldShapes())
    assert body(after) == lines(
        """
        const %y: int64[] = [3]
        %z_dim: int64[1] = ingot.Dims() {dims=(`batch`,)}
        %z: int64[] = Squeeze(%z_dim)
        """
    )
    assert run_passes(after, FoldShapes()) is after


BATCH_NORM = """
graph main(%x: float32[batch, 4, h, w]) -> (%y) {{
  const %scale: float32[{m}] = [{scale}]
  const %bias: float32[{m}] = [{bias}]
  const %mean: float32[{m}] = [{mean}]
  const %variance: float32[{m}] = [{variance}]
  {weight}
  {conv}
  %y: {type} = BatchNormalization(%c, %scale, %bias, %mean, %variance) {{epsilon=0.001}} "norm"
}}
"""


def _batch_norm(conv: str, weight_shape: tuple[int, ...], m: int, type_: str) -> str:
    random = np.random.default_rng(3)

    def numbers(count: int, low: float = -1) -> str:
        return ", ".join(f"{v:.3f}" for v in random.uniform(low, 2, count))

    weight = f"const %w: float32[{', '.join(map(str, weight_shape))}] = [{numbers(int(np.prod(weight_shape)))}]"
    values = {"scale": numbers(m), "bias": numbers(m), "mean": numbers(m), "variance": numbers(m, 0.5)}
    return BATCH_NORM.format(m=m, weight=weight, conv=conv, type=type_, **values)


CONTRACTIONS = {
    "convolution": ("Conv(%x, %w) {kernel_shape=(3, 3), pads=(1, 1, 1, 1)}", (3, 4, 3, 3), 3),
    "with bias": ("Conv(%x, %w, %mean) {kernel_shape=(3, 3), pads=(1, 1, 1, 1)}", (3, 4, 3, 3), 3),
    "grouped": ("Conv(%x, %w) {kernel_shape=(1, 1), group=2}", (6, 2, 1, 1), 6),
    "depthwise": ("Conv(%x, %w) {kernel_shape=(3, 3), pads=(1, 1, 1, 1), group=4}", (4, 1, 3, 3), 4),
    "transposed": ("ConvTranspose(%x, %w) {kernel_shape=(1, 1)}", (4, 3, 1, 1), 3),
    "transposed, grouped": ("ConvTranspose(%x, %w) {kernel_shape=(1, 1), group=2}", (4, 3, 1, 1), 6),
}


def _normalized(name: str) -> Graph:
    """A batch normalization of one of ``CONTRACTIONS``."""
    call, weight_shape, m = CONTRACTIONS[name]
    type_ = f"float32[batch, {m}, h, w]"
    return graph(_batch_norm(f'%c: {type_} = {call} "conv"', weight_shape, m, type_))


@pytest.mark.parametrize("name", CONTRACTIONS)
def test_batch_norm_folds_into_the_convolution(name: str) -> None:
    before = _normalized(name)
    after = run_passes(before, FoldBatchNorm())
    assert [(n.op, n.name) for n in after.nodes] == [(before.nodes[0].op, "conv")]
    assert_same(before, after, 1e-4)


@pytest.mark.parametrize("name", CONTRACTIONS)
def test_what_has_a_layout_is_left_alone(name: str) -> None:
    before = _normalized(name)
    laid_out = run_passes(before, ChooseLayout())
    assert run_passes(laid_out, FoldBatchNorm()) is laid_out
    assert_same(before, laid_out, 1e-4)


def test_batch_norm_elsewhere_is_a_scale_and_a_shift_and_these_meet_their_like() -> None:
    conv = "%r: float32[batch, 4, h, w] = Relu(%x)\n  %s: float32[batch, 4, h, w] = Mul(%r, %w)"
    conv += "\n  %c: float32[batch, 4, h, w] = Add(%s, %w)"
    text = _batch_norm(conv, (4, 1, 1), 4, "float32[batch, 4, h, w]")
    before = graph(text)
    after = run_passes(before, FoldBatchNorm())
    assert ops(after) == ["Relu", "Mul", "Mul", "Add", "Add"]
    assert_same(before, after, 1e-4)


def test_a_convolution_with_another_reader_keeps_its_weights() -> None:
    before = graph(
        """
        graph main(%x: float32[1, 1, 4, 4]) -> (%y, %c) {
          const %w: float32[1, 1, 1, 1] = [2.0]
          const %k: float32[1] = [3.0]
          %c: float32[1, 1, 4, 4] = Conv(%x, %w) {kernel_shape=(1, 1)}
          %y: float32[1, 1, 4, 4] = Mul(%c, %k)
        }
        """
    )
    assert run_passes(before, FoldBatchNorm()) is before


def test_scales_around_contractions_fold() -> None:
    before = graph(
        """
        graph main(%x: float32[batch, 4, 2, 2], %a: float32[batch, 3]) -> (%y, %b) {
          const %in: float32[4, 1, 1] = [1.0, 2.0, 3.0, 4.0]
          const %w: float32[2, 2, 1, 1] = [1.0, -2.0, 0.5, 4.0]
          const %m: float32[3, 2] = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
          const %out: float32[2] = [0.5, 3.0]
          %s: float32[batch, 4, 2, 2] = Mul(%x, %in)
          %y: float32[batch, 2, 2, 2] = Conv(%s, %w) {kernel_shape=(1, 1), group=2}
          %p: float32[batch, 2] = MatMul(%a, %m)
          %b: float32[batch, 2] = Mul(%p, %out)
        }
        """
    )
    after = run_passes(before, FoldBatchNorm())
    assert ops(after) == ["Conv", "MatMul"]
    assert_same(before, after)


def test_what_is_folded_in_several_steps_is_rounded_once() -> None:
    numbers = np.random.default_rng(5).uniform(0.1, 3.0, (6, 3)).astype(np.float32)
    weight, bias, factor, shift, second, third = (", ".join(map(repr, n.tolist())) for n in numbers)
    before = graph(
        f"""
        graph main(%x: float32[1, 1, 2, 2]) -> (%y) {{
          const %w: float32[3, 1, 1, 1] = [{weight}]
          const %b: float32[3] = [{bias}]
          const %f: float32[3, 1, 1] = [{factor}]
          const %s: float32[3, 1, 1] = [{shift}]
          const %g: float32[3, 1, 1] = [{second}]
          const %h: float32[3, 1, 1] = [{third}]
          %c: float32[1, 3, 2, 2] = Conv(%x, %w, %b) {{kernel_shape=(1, 1)}}
          %d: float32[1, 3, 2, 2] = Mul(%c, %f)
          %e: float32[1, 3, 2, 2] = Add(%d, %s)
          %i: float32[1, 3, 2, 2] = Mul(%e, %g)
          %y: float32[1, 3, 2, 2] = Mul(%i, %h)
        }}
        """
    )
    after = run_passes(before, FoldBatchNorm())
    (conv,) = after.nodes
    w, b, f, s, g, h = numbers.astype(np.float64)
    assert np.array_equal(after.constants[conv.operands[1]].ravel(), (w * f * g * h).astype(np.float32))
    assert np.array_equal(after.constants[conv.operands[2]], ((b * f + s) * g * h).astype(np.float32))


def test_a_huge_uniform_weight_is_not_copied_to_look_at_it() -> None:
    before = graph(
        """
        graph main(%x: float32[1, 15000]) -> (%y) {
          const %shape: int64[2] = [15000, 15000]
          %w: float32[15000, 15000] = ConstantOfShape(%shape) {value=0.5, dtype=float32}
          %z: float32[15000, 15000] = Mul(%x, %w)
          %y: float32[15000, 15000] = Mul(%z, %x)
        }
        """
    )
    folded = run_passes(before, FoldConstants())
    assert run_passes(folded, FoldBatchNorm()) is folded


def test_the_inverse_of_a_number_is_a_number() -> None:
    before = graph(
        """
        graph main(%x: float32[]) -> (%y) {
          const %c: float32[] = [4.0]
          %y: float32[] = Div(%x, %c)
        }
        """
    )
    after = run_passes(before, SimplifyAlgebra())
    assert ops(after) == ["Mul"]
    assert_same(before, after)


@pytest.mark.parametrize("kind", ["bfloat16", "float16", "float64"])
def test_constants_of_every_float_merge(kind: str) -> None:
    before = graph(
        f"""
        graph main(%x: {kind}[n, 2]) -> (%y) {{
          const %half: float32[] = [0.5]
          const %three: float32[] = [3.0]
          %a: {kind}[] = Cast(%half) {{to={kind}}}
          %b: {kind}[] = Cast(%three) {{to={kind}}}
          %s: {kind}[n, 2] = Mul(%x, %a)
          %t: {kind}[n, 2] = Mul(%s, %b)
          %y: {kind}[n, 2] = Div(%t, %b)
        }}
        """
    )
    after = run_passes(before, FoldConstants(), SimplifyAlgebra())
    assert ops(after) == ["Mul"]
    (merged,) = after.constants.values()
    assert merged == 0.5


def test_constants_that_are_large_in_name_only_are_left_to_the_run() -> None:
    """A view of one element, and what follows from it: a billion of them took minutes and gigabytes."""
    before = graph(
        """
        graph main() -> (%y) {
          const %shape: int64[2] = [100000, 10000]
          %ones: float32[100000, 10000] = ConstantOfShape(%shape) {value=1.0, dtype=float32}
          %e: float32[100000, 10000] = Exp(%ones)
          %y: float32[] = ReduceSum(%e) {keepdims=0}
        }
        """
    )
    after = run_passes(before, FoldConstants())
    assert ops(after) == ["ConstantOfShape", "Exp", "ReduceSum"]


def test_products_that_take_long_are_left_to_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    array = np.ones((16, 16), np.float32)
    a, y = (Value(name, TensorType(DType.FLOAT32, array.shape)) for name in "ay")
    node = Node("MatMul", (a, a), (y,), {})
    found = evaluate_node(node, {a: array})
    assert found is not None
    np.testing.assert_array_equal(found[y], np.full((16, 16), 16, np.float32))
    monkeypatch.setattr(evaluate, "MOST_STEPS", 16**3 - 1)
    assert evaluate_node(node, {a: array}) is None


def test_operations_beyond_the_budget_are_left_to_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = ", ".join(f"{i}.0" for i in range(32))
    before = graph(
        f"""
        graph main() -> (%y, %z) {{
          const %a: float32[32] = [{numbers}]
          %y: float32[32] = Add(%a, %a)
          %z: float32[32] = Mul(%a, %a)
        }}
        """
    )
    assert ops(run_passes(before, FoldConstants())) == []
    monkeypatch.setattr(fold_constants, "_MOST_STEPS", 32 * 5)  # more than one of them takes, less than both
    assert ops(run_passes(before, FoldConstants())) == ["Mul"]


def test_sizes_that_have_grown_too_long_are_left_to_the_run() -> None:
    steps = [f"%m{i + 1}: int64[1] = Add(%q{i}, %m0)" for i in range(200)]
    towers = [f"%q{i}: int64[1] = Mod(%m{i}, %seven)\n{step}" for i, step in enumerate(steps)]
    lines = "\n".join(
        ["const %seven: int64[1] = [7]", "%m0: int64[1] = Shape(%x)", *towers, "%y: int64[1] = Identity(%m200)"]
    )
    known = known_values(graph(f"graph main(%x: float32[n]) -> (%y) {{\n{lines}\n}}"))
    assert "m10" in {v.name for v in known}
    assert "y" not in {v.name for v in known}
