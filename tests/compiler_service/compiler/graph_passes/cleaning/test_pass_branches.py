"""Branches that add up become one convolution."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler_service.compiler.graph_passes.algebra.fold_batch_norm import FoldBatchNorm
from compiler_service.compiler.graph_passes.pipelines import default_pipeline
from compiler_service.compiler.graph_passes.rewriting.builder import Builder
from shared_ir.dtype import DType
from shared_ir.graph.ir import Attribute, Graph, Value
from shared_ir.types import TensorType
from tests.compiler_service.compiler.graph_passes.pass_graphs import assert_same, graph, ops, run_passes

FOLD = FoldBatchNorm(branches=True)


@dataclass(frozen=True)
class Branch:
    """A convolution by ``kernel`` with pads that keep the place, a scale (kernel 0), or x itself (kernel -1)."""

    kernel: int
    bias: bool = False
    subtracted: bool = False


def network(branches: list[Branch], channels: int, group: int, stride: int = 1, source: str = "x") -> Graph:
    """The branches over one value, added up in order, and a Relu."""
    random = np.random.default_rng(len(branches) + channels)
    x = Value(source, TensorType(DType.FLOAT32, (2, channels, 7, 6)))
    empty = Graph("main", (x,), (), ())
    builder = Builder.of(empty)
    total: Value | None = None
    for branch in branches:
        term = _term(builder, x, branch, group, stride, random)
        op = "Sub" if branch.subtracted and total is not None else "Add"
        total = term if total is None else builder.node(op, total, term)
    assert total is not None
    y = builder.node("Relu", total)
    return Graph("main", (x,), (y,), tuple(builder.nodes), dict(builder.added))


def _term(builder: Builder, x: Value, branch: Branch, group: int, stride: int, random: np.random.Generator) -> Value:
    channels = x.shape[1]
    assert isinstance(channels, int)
    if branch.kernel == -1:
        return x
    if branch.kernel == 0:
        scale = random.standard_normal((channels, 1, 1)).astype(np.float32)
        return builder.node("Mul", x, builder.constant(scale))
    weight = random.standard_normal((channels, channels // group, branch.kernel, branch.kernel)).astype(np.float32)
    inputs = [x, builder.constant(weight)]
    if branch.bias:
        inputs.append(builder.constant(random.standard_normal(channels).astype(np.float32)))
    pad = branch.kernel // 2
    attributes: dict[str, Attribute] = {"group": group, "pads": (pad,) * 4, "strides": (stride, stride)}
    return builder.write("Conv", inputs, attributes)


@pytest.mark.parametrize("group", [1, 2, 4])
def test_kernels_a_scale_and_the_value_itself_become_one_convolution(group: int) -> None:
    before = network(
        [Branch(0), Branch(1), Branch(3, bias=True), Branch(3, bias=True, subtracted=True), Branch(-1)], 4, group
    )
    after = run_passes(before, FOLD)
    assert ops(after) == ["Conv", "Relu"]
    assert_same(before, after, 2e-5)


def test_strides_that_agree() -> None:
    before = network([Branch(1), Branch(3, bias=True), Branch(5)], 4, 1, stride=2)
    after = run_passes(before, FOLD)
    assert ops(after) == ["Conv", "Relu"]
    assert_same(before, after, 2e-5)


@pytest.mark.slow
@settings(deadline=None, max_examples=60)
@given(
    st.lists(
        st.builds(Branch, st.sampled_from([-1, 0, 1, 3, 5]), st.booleans(), st.booleans()), min_size=2, max_size=5
    ),
    st.sampled_from([(4, 1), (4, 2), (4, 4), (6, 3)]),
)
def test_any_branches_compute_the_same(branches: list[Branch], sizes: tuple[int, int]) -> None:
    before = network(branches, *sizes)
    after = run_passes(before, FOLD)
    assert ops(after).count("Conv") == min(1, sum(b.kernel > 0 for b in branches))
    assert_same(before, after, 1e-4)


def test_the_branches_of_a_training_graph_fold_behind_their_normalisation() -> None:
    before = graph(
        """
        graph main(%x: float32[1, 2, 4, 4]) -> (%y) {
          const %w: float32[2, 2, 1, 3] = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, -7.0, 8.0, 9.0, 1.0, -2.0, 3.0]
          const %a: float32[2] = [1.5, -2.0]
          const %b: float32[2] = [0.5, 1.0]
          const %m: float32[2] = [0.25, -1.0]
          const %v: float32[2] = [1.0, 4.0]
          %n: float32[1, 2, 4, 4] = BatchNormalization(%x, %a, %b, %m, %v)
          %c: float32[1, 2, 4, 4] = Conv(%x, %w) {kernel_shape=(1, 3), pads=(0, 1, 0, 1)}
          %d: float32[1, 2, 4, 4] = BatchNormalization(%c, %a, %b, %m, %v)
          %s: float32[1, 2, 4, 4] = Add(%n, %d)
          %y: float32[1, 2, 4, 4] = Relu(%s)
        }
        """
    )
    after = run_passes(before, FOLD)
    assert ops(after) == ["Conv", "Relu"]
    assert_same(before, after, 1e-4)
    assert "Add" in ops(run_passes(before, FoldBatchNorm()))


KEPT = {
    "another source": """
          %r: float32[1, 1, 4, 4] = Relu(%x)
          %a: float32[1, 1, 4, 4] = Conv(%x, %w) {kernel_shape=(1, 1)}
          %b: float32[1, 1, 4, 4] = Conv(%r, %w) {kernel_shape=(1, 1)}
          %y: float32[1, 1, 4, 4] = Add(%a, %b)""",
    "windows that do not cover each other": """
          %a: float32[1, 1, 4, 4] = Conv(%x, %h) {kernel_shape=(1, 3), pads=(0, 1, 0, 1)}
          %b: float32[1, 1, 4, 4] = Conv(%x, %v) {kernel_shape=(3, 1), pads=(1, 0, 1, 0)}
          %y: float32[1, 1, 4, 4] = Add(%a, %b)""",
    "a window that does not hold the middle": """
          %a: float32[1, 1, 4, 4] = Conv(%x, %h) {kernel_shape=(1, 3), pads=(0, 3, 0, -1)}
          %y: float32[1, 1, 4, 4] = Add(%a, %x)""",
    "another dilation": """
          %a: float32[1, 1, 4, 4] = Conv(%x, %h) {kernel_shape=(1, 3), pads=(0, 1, 0, 1)}
          %b: float32[1, 1, 4, 4] = Conv(%x, %h) {kernel_shape=(1, 3), dilations=(1, 2), pads=(0, 2, 0, 2)}
          %y: float32[1, 1, 4, 4] = Add(%a, %b)""",
    "pads that the run computes": """
          %a: float32[1, 1, 4, 4] = Conv(%x, %h) {kernel_shape=(1, 3), auto_pad="SAME_UPPER"}
          %y: float32[1, 1, 4, 4] = Add(%a, %x)""",
}


@pytest.mark.parametrize("name", KEPT)
def test_branches_stay_apart(name: str) -> None:
    before = graph(
        """
        graph main(%x: float32[1, 1, 4, 4]) -> (%y) {
          const %w: float32[1, 1, 1, 1] = [2.0]
          const %h: float32[1, 1, 1, 3] = [2.0, 1.0, 3.0]
          const %v: float32[1, 1, 3, 1] = [2.0, 1.0, 3.0]
        """
        + KEPT[name]
        + "\n}"
    )
    assert [op for op in ops(run_passes(before, FOLD)) if op != "Relu"] == [
        n.op for n in before.nodes if n.op != "Relu"
    ]


def test_a_branch_with_another_reader_stays() -> None:
    before = graph(
        """
        graph main(%x: float32[1, 1, 4, 4]) -> (%y, %a) {
          const %w: float32[1, 1, 1, 1] = [2.0]
          %a: float32[1, 1, 4, 4] = Conv(%x, %w) {kernel_shape=(1, 1)}
          %b: float32[1, 1, 4, 4] = Conv(%x, %w) {kernel_shape=(1, 1)}
          %y: float32[1, 1, 4, 4] = Add(%a, %b)
        }
        """
    )
    assert run_passes(before, FOLD) is before


def test_only_the_highest_level_adds_weights() -> None:
    folds = {
        level: next((p.branches for p in default_pipeline(level).passes if isinstance(p, FoldBatchNorm)), False)
        for level in range(4)
    }
    assert folds == {0: False, 1: False, 2: False, 3: True}
