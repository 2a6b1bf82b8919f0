"""Fusion: what ends in which group, and the form of a group."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from compiler_service.compiler.graph_passes.fusion.fuse import Fuse
from compiler_service.compiler.graph_passes.memory.separate_outputs import SeparateOutputs
from compiler_service.compiler.graph_passes.normal_form.fold_shapes import FoldShapes
from shared_ir.graph.ir import Graph
from shared_ir.graph.text import print_graph
from tests.compiler_service.compiler.graph_passes.pass_graphs import assert_same, graph, ops, run_passes


def _fused(text: str, fuse: Fuse | None = None) -> Graph:
    before = graph(text)
    after = run_passes(before, FoldShapes(), fuse or Fuse())
    assert_same(before, after)
    return after


RESIDUAL = """
    graph main(%x: float32[batch, 2, h, w], %r: float32[batch, 2, h, w]) -> (%y) {
      const %w: float32[2, 2, 1, 1] = [1.0, 2.0, 3.0, 4.0]
      const %b: float32[2] = [0.5, 0.25]
      %c: float32[batch, 2, h, w] = Conv(%x, %w, %b) {kernel_shape=(1, 1)} "conv"
      %a: float32[batch, 2, h, w] = Add(%c, %r) "add"
      %y: float32[batch, 2, h, w] = Relu(%a) "relu"
    }
    """


def test_printed_group(golden: Callable[[str], None]) -> None:
    golden(print_graph(_fused(RESIDUAL)))


def test_a_convolution_takes_in_residual_and_activation() -> None:
    after = _fused(RESIDUAL)
    assert ops(after) == ["Conv+Add+Relu"]
    (group,) = after.nodes
    assert group.attributes["nodes"] == ("conv", "add", "relu")
    assert group.name == "conv"
    assert [v.name for v in group.operands] == ["x", "w", "b", "r"]


def test_without_merging_every_operator_has_its_group() -> None:
    assert ops(_fused(RESIDUAL, Fuse(merge=False))) == ["Conv", "Add", "Relu"]


def test_both_arms_of_a_diamond_are_taken_in() -> None:
    after = _fused(
        """
        graph main(%x: float32[batch, 4]) -> (%y) {
          const %w: float32[4, 4] = [1.0, 0.0, 0.0, 0.5, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.5, 0.0, 0.0, 1.0]
          %m: float32[batch, 4] = MatMul(%x, %w)
          %t: float32[batch, 4] = Tanh(%m)
          %s: float32[batch, 4] = Sigmoid(%m)
          %y: float32[batch, 4] = Mul(%t, %s)
        }
        """
    )
    assert ops(after) == ["MatMul+Tanh+Sigmoid+Mul"]


def test_a_result_that_is_read_elsewhere_ends_the_group() -> None:
    after = _fused(
        """
        graph main(%x: float32[batch, 4]) -> (%y, %a) {
          %a: float32[batch, 4] = Exp(%x)
          %b: float32[batch, 4] = Neg(%a)
          %y: float32[batch, 4] = Relu(%b)
        }
        """
    )
    assert ops(after) == ["Exp", "Neg+Relu"]


def test_a_group_has_one_anchor() -> None:
    after = _fused(
        """
        graph main(%x: float32[2, 2], %z: float32[2, 2]) -> (%y) {
          const %w: float32[2, 2] = [1.0, 2.0, 3.0, 4.0]
          %a: float32[2, 2] = MatMul(%x, %w)
          %b: float32[2, 2] = MatMul(%z, %w)
          %y: float32[2, 2] = Add(%a, %b)
        }
        """
    )
    assert sorted(ops(after)) == ["MatMul", "MatMul+Add"]


def test_a_cycle_between_groups_is_avoided() -> None:
    """`a` reaches the Add directly and through a reduction: the Add cannot join `a`."""
    after = _fused(
        """
        graph main(%x: float32[batch, 4]) -> (%y) {
          const %axis: int64[1] = [1]
          %a: float32[batch, 4] = Exp(%x)
          %s: float32[batch, 1] = ReduceSum(%a, %axis)
          %y: float32[batch, 4] = Add(%a, %s)
        }
        """
    )
    assert ops(after) == ["Exp", "ReduceSum", "Add"]


def test_prologues_join_a_reduction_on_request() -> None:
    text = """
        graph main(%x: float32[batch, 4]) -> (%y) {
          const %k: float32[] = [0.5]
          %a: float32[batch, 4] = Mul(%x, %k)
          %y: float32[batch, 4] = Softmax(%a) {axis=-1}
        }
        """
    assert ops(_fused(text)) == ["Mul", "Softmax"]
    assert ops(_fused(text, Fuse(prologues=True))) == ["Mul+Softmax"]


def test_broadcasting_a_computed_value_is_not_repeated_per_element() -> None:
    after = _fused(
        """
        graph main(%x: float32[batch, 4], %g: float32[batch, 1]) -> (%y) {
          %s: float32[batch, 1] = Sigmoid(%g)
          %y: float32[batch, 4] = Mul(%x, %s)
        }
        """
    )
    assert ops(after) == ["Sigmoid", "Mul"]


def test_data_movement_joins_elementwise_neighbours() -> None:
    after = _fused(
        """
        graph main(%x: float32[batch, 8]) -> (%y) {
          const %zero: int64[1] = [0]
          const %one: int64[1] = [1]
          const %four: int64[1] = [4]
          const %eight: int64[1] = [8]
          %a: float32[batch, 4] = Slice(%x, %zero, %four, %one)
          %b: float32[batch, 4] = Slice(%x, %four, %eight, %one)
          %s: float32[batch, 4] = Sigmoid(%b)
          %m: float32[batch, 4] = Mul(%a, %s)
          %y: float32[4, batch] = Transpose(%m) {perm=(1, 0)}
        }
        """
    )
    assert ops(after) == ["Slice+Slice+Sigmoid+Mul+Transpose"]
    (body,) = after.nodes[0].subgraphs
    assert len(body.constants) == 4  # what the slices are made of is part of the kernel
    assert [v.name for v in after.nodes[0].operands] == ["x"]


def test_a_heavy_operator_is_not_repeated_by_an_expansion() -> None:
    after = _fused(
        """
        graph main(%x: float32[4, 1]) -> (%y) {
          const %many: int64[2] = [4, 100]
          %a: float32[4, 1] = Exp(%x)
          %b: float32[4, 100] = Expand(%a, %many)
          %y: float32[4, 100] = Neg(%b)
        }
        """
    )
    assert ops(after) == ["Exp", "Expand+Neg"]


def test_an_expansion_is_repeated_by_all_that_read_it() -> None:
    after = _fused(
        """
        graph main(%x: float32[4, 100], %i: float32[1, 100]) -> (%y, %z) {
          const %many: int64[2] = [4, 100]
          %e: float32[4, 100] = Expand(%i, %many)
          %y: float32[4, 100] = Add(%x, %e)
          %s: float32[4, 100] = Softmax(%x) {axis=1}
          %z: float32[4, 100] = Mul(%s, %e)
        }
        """
    )
    assert sorted(ops(after)) == ["Expand+Add", "Expand+Softmax+Mul"]


def test_reshapes_are_views_with_their_dims_inside() -> None:
    after = _fused(
        """
        graph main(%x: float32[batch, 2, h]) -> (%y) {
          const %zero: int64[1] = [0]
          const %minus: int64[1] = [-1]
          %e: float32[batch, 2, h] = Exp(%x)
          %shape: int64[3] = Shape(%x)
          %n: int64[1] = Gather(%shape, %zero)
          %target: int64[2] = Concat(%n, %minus) {axis=0}
          %r: float32[batch, 2*h] = Reshape(%e, %target)
          %y: float32[batch, 2*h] = Relu(%r)
        }
        """
    )
    assert ops(after) == ["Exp", "ingot.Dims+Reshape", "Relu"]
    assert [n.attributes.get("view", False) for n in after.nodes] == [False, True, False]


def test_scalars_are_inside_and_weights_outside() -> None:
    after = _fused(
        """
        graph main(%x: float32[batch, 3]) -> (%y) {
          const %k: float32[] = [2.0]
          const %w: float32[3] = [1.0, 2.0, 3.0]
          %a: float32[batch, 3] = Mul(%x, %k)
          %y: float32[batch, 3] = Add(%a, %w)
        }
        """
    )
    (group,) = after.nodes
    assert [v.name for v in group.operands] == ["x", "w"]
    assert [v.name for v in after.constants] == ["w"]
    assert [v.name for v in group.subgraphs[0].constants] == ["k"]


def test_an_output_that_is_a_shape_has_its_own_group() -> None:
    after = _fused("graph main(%x: float32[batch, 3]) -> (%y) {\n %y: int64[2] = Shape(%x)\n}")
    assert ops(after) == ["ingot.Dims"]
    assert not after.nodes[0].operands


def test_bodies_of_control_flow_are_grouped_too() -> None:
    before = graph(
        """
        graph main(%x: float32[4], %p: bool[]) -> (%y) {
          const %k: float32[4] = [1.0, 2.0, 3.0, 4.0]
          %y: float32[4] = If(%p) {
            then_branch=graph then() -> (%a) {
              %t: float32[4] = Mul(%x, %k)
              %a: float32[4] = Neg(%t)
            },
            else_branch=graph other() -> (%b) {
              %b: float32[4] = Exp(%x)
            }
          }
        }
        """
    )
    after = run_passes(before, Fuse())
    assert after.nodes[0].op == "If"
    assert [ops(g) for g in after.nodes[0].subgraphs] == [["Mul+Neg"], ["Exp"]]
    assert_same(before, after)


def test_outputs_get_memory_of_their_own() -> None:
    before = graph(
        """
        graph main(%x: float32[batch, 2]) -> (%x, %v, %a, %a, %w) {
          const %s: int64[1] = [-1]
          %v: float32[2*batch] = Reshape(%x, %s)
          %a: float32[batch, 2] = Exp(%x)
          %w: float32[2*batch] = Reshape(%a, %s)
        }
        """
    )
    after = run_passes(before, Fuse(), SeparateOutputs())
    assert [n.attributes.get("view", False) for n in after.nodes] == [False] * 5
    assert len(set(after.outputs)) == 5
    assert_same(before, after)


def test_a_view_of_a_result_may_be_the_output() -> None:
    before = graph(
        """
        graph main(%x: float32[batch, 2]) -> (%w) {
          const %s: int64[1] = [-1]
          %a: float32[batch, 2] = Exp(%x)
          %w: float32[2*batch] = Reshape(%a, %s)
        }
        """
    )
    after = run_passes(before, Fuse())
    assert run_passes(after, SeparateOutputs()) is after


def test_a_long_concatenation_stays_alone() -> None:
    names = ", ".join(["%e"] * 6)
    after = _fused(
        f"""
        graph main(%x: float32[batch, 1]) -> (%y) {{
          %e: float32[batch, 1] = Exp(%x)
          %c: float32[batch, 6] = Concat({names}) {{axis=1}}
          %y: float32[batch, 6] = Neg(%c)
        }}
        """
    )
    assert ops(after) == ["Exp", "Concat", "Neg"]
    assert np.all([n.attributes["nodes"] == () for n in after.nodes])


HEAD = """
    graph main(%x: float32[batch, ROWS, 40]) -> (%y) {
      const %scale: float32[40] = [SCALE]
      const %axes: int64[1] = [AXIS]
      %m: float32[SHAPE] = ReduceMean(%x, %axes) {keepdims=0} "mean"
      %n: float32[SHAPE] = LayerNormalization(%m, %scale) {axis=-1} "norm"
      %y: float32[SHAPE] = Relu(%n) "relu"
    }
    """


def _head(rows: int = 9, axis: int = 1) -> list[str]:
    shape = "batch, 40" if axis == 1 else f"batch, {rows}"
    text = HEAD.replace("ROWS", str(rows)).replace("AXIS", str(axis)).replace("SHAPE", shape)
    after = _fused(text.replace("SCALE", ", ".join(f"{i / 8}" for i in range(40))))
    return ops(after)


def test_the_mean_of_some_rows_joins_its_normalisation() -> None:
    assert _head() == ["ReduceMean+LayerNormalization+Relu"]


def test_a_mean_along_what_is_normalised_stays_alone() -> None:
    assert _head(rows=40, axis=2) == ["ReduceMean", "LayerNormalization+Relu"]


def test_the_mean_of_a_whole_picture_is_shared_by_cores() -> None:
    assert _head(rows=5000) == ["ReduceMean", "LayerNormalization+Relu"]


def test_a_mean_that_is_read_elsewhere_stays_alone() -> None:
    after = _fused(
        """
        graph main(%x: float32[batch, 5, 4]) -> (%y) {
          const %scale: float32[4] = [1.0, 2.0, 3.0, 4.0]
          const %axes: int64[1] = [1]
          %m: float32[batch, 4] = ReduceMean(%x, %axes) {keepdims=0}
          %n: float32[batch, 4] = LayerNormalization(%m, %scale) {axis=-1}
          %y: float32[batch, 4] = Add(%m, %n)
        }
        """
    )
    assert ops(after) == ["ReduceMean", "LayerNormalization+Add"]


def test_a_group_counts_the_operands_of_its_sums() -> None:
    names = [f"%x{i}" for i in range(32)]
    inputs = ", ".join(f"{n}: float32[4]" for n in names)
    sums = [f"%s{i + 1}: float32[4] = Sum(%s{i}, {', '.join(names)})" for i in range(8)]
    after = _fused(f"graph main(%s0: float32[4], {inputs}) -> (%s8) {{\n" + "\n".join(sums) + "\n}")
    assert ops(after) == ["Sum+Sum+Sum", "Sum+Sum+Sum", "Sum+Sum"]
