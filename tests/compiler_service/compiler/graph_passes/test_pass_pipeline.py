"""The whole pipeline on one small network, as text."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from compiler_service.compiler.graph_passes.pipelines import default_pipeline
from compiler_service.compiler.graph_passes.rewriting.instruments import Verify
from compiler_service.compiler.graph_passes.rewriting.pass_manager import PassContext
from shared_ir.graph.text import print_graph
from tests.compiler_service.compiler.graph_passes.pass_graphs import assert_same, graph

NETWORK = """
    graph main(%x: float32[batch, 2, h, w]) -> (%y) {
      const %w1: float32[2, 2, 1, 1] = [1.0, -2.0, 0.5, 1.0]
      const %scale: float32[2] = [0.5, 2.0]
      const %shift: float32[2] = [0.25, -1.0]
      const %mean: float32[2] = [1.0, 0.5]
      const %variance: float32[2] = [3.0, 0.0]
      const %three: float32[] = [3.0]
      const %zero: float32[] = [0.0]
      const %six: float32[] = [6.0]
      const %w2: float32[2, 4] = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]
      const %b2: float32[4] = [1.0, 2.0, 3.0, 4.0]
      const %first: int64[1] = [0]
      const %rest: int64[1] = [-1]
      %c: float32[batch, 2, h, w] = Conv(%x, %w1) {kernel_shape=(1, 1)} "stem"
      %n: float32[batch, 2, h, w] = BatchNormalization(%c, %scale, %shift, %mean, %variance) {epsilon=1.0} "norm"
      %t: float32[batch, 2, h, w] = Add(%n, %three) "add3"
      %k: float32[batch, 2, h, w] = Clip(%t, %zero, %six) "clip"
      %m: float32[batch, 2, h, w] = Mul(%n, %k) "gate"
      %a: float32[batch, 2, h, w] = Div(%m, %six) "sixth"
      %r: float32[batch, 2, h, w] = Add(%a, %x) "residual"
      %p: float32[batch, 2, 1, 1] = GlobalAveragePool(%r) "pool"
      %s: int64[4] = Shape(%p) "shape"
      %d: int64[1] = Gather(%s, %first) "batch"
      %f: int64[2] = Concat(%d, %rest) {axis=0} "target"
      %v: float32[batch, 2] = Reshape(%p, %f) "flatten"
      %l: float32[batch, 4] = MatMul(%v, %w2) "classify"
      %b: float32[batch, 4] = Add(%l, %b2) "bias"
      %y: float32[batch, 4] = Softmax(%b) {axis=1} "softmax"
    }
    """


@pytest.mark.parametrize("level", [0, 3])
def test_network(level: int, golden: Callable[[str], None]) -> None:
    before = graph(NETWORK)
    after = default_pipeline(level).run_graph(before, PassContext(level, instruments=(Verify(),)))
    assert_same(before, after)
    golden(print_graph(after))
