"""Legal orders of the passes give equal results on graphs that each of them has something to do with."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from compiler_service.compiler.graph_passes.fusion.fuse import SETTLED
from compiler_service.compiler.graph_passes.pipelines import PASSES, default_pipeline
from compiler_service.compiler.graph_passes.rewriting.instruments import Verify
from compiler_service.compiler.graph_passes.rewriting.pass_manager import Pass, PassContext, Pipeline
from compiler_service.compiler.opt import invent_constants
from compiler_service.compiler.reference.interpret import run_graph
from shared_ir.graph.ir import Graph
from shared_ir.graph.text import parse_graph
from shared_ir.machine.target import parse_target
from tests.compiler_service.compiler.graph_passes.orders import EAGER, legal_orders
from tests.compiler_service.compiler.graph_passes.pass_graphs import feeds
from tests.compiler_service.compiler.graph_passes.test_pass_pipeline import NETWORK


def _digest(number: int) -> str:
    return f"sha256:{number:064}"


GRAPHS = {
    "network": NETWORK,
    "few results, dilation, a mean": f"""
        graph main(%x: float32[1, 16, 12, 12]) -> (%y, %m) {{
          const %w: float32[1, 16, 3, 3] = {_digest(1)}
          const %v: float32[16, 16, 3, 3] = {_digest(2)}
          %d: float32[1, 16, 12, 12] = Conv(%x, %v) {{kernel_shape=(3, 3), dilations=(2, 2), pads=(2, 2, 2, 2)}}
          %c: float32[1, 1, 12, 12] = Conv(%d, %w) {{kernel_shape=(3, 3), pads=(1, 1, 1, 1)}}
          %y: float32[1, 1, 12, 12] = Relu(%c)
          %m: float32[1, 16, 1, 1] = GlobalAveragePool(%d)
        }}
        """,
    "weights of bytes, and of halves": f"""
        graph main(%x: float32[2, 64]) -> (%y, %z) {{
          const %q: int8[64, 32] = {_digest(1)}
          const %s: float32[] = [0.125]
          const %o: int8[] = [3]
          const %h: float32[64, 512] = {_digest(3)}
          %w: float32[64, 32] = DequantizeLinear(%q, %s, %o)
          %y: float32[2, 32] = MatMul(%x, %w)
          %z: float32[2, 512] = MatMul(%x, %h)
        }}
        """,
    "what one branch alone reads": """
        graph main(%x: float32[2, 8], %c: bool[]) -> (%y) {
          const %two: float32[] = [2.0]
          %a: float32[2, 8] = Exp(%x)
          %b: float32[2, 8] = Mul(%a, %two)
          %y: float32[2, 8] = If(%c) {
            then_branch=graph then() -> (%t) {
              %t: float32[2, 8] = Relu(%b)
            },
            else_branch=graph otherwise() -> (%o) {
              %o: float32[2, 8] = Neg(%x)
            }
          }
        }
        """,
    "a product of quantized operands": f"""
        graph main(%x: uint8[2, 64]) -> (%y) {{
          const %q: int8[64, 32] = {_digest(1)}
          const %s: float32[] = [0.125]
          const %o: int8[] = [0]
          const %p: uint8[] = [7]
          %a: float32[2, 64] = DequantizeLinear(%x, %s, %p)
          %w: float32[64, 32] = DequantizeLinear(%q, %s, %o)
          %y: float32[2, 32] = MatMul(%a, %w)
        }}
        """,
    "concatenations, some twice": """
        graph main(%x: float32[batch, 4, 8], %z: float32[batch, 4, 8]) -> (%y, %v, %x) {
          %a: float32[batch, 4, 8] = Relu(%x)
          %b: float32[batch, 4, 8] = Neg(%z)
          %u: float32[batch, 8, 8] = Concat(%a, %b) {axis=1}
          %y: float32[batch, 12, 8] = Concat(%u, %a) {axis=1}
          %v: float32[batch, 12, 8] = Exp(%y)
        }
        """,
    "parts of one memory": f"""
        graph main(%x: float32[4, 16], %z: float32[8, 16]) -> (%y) {{
          const %w: float32[16, 16] = {_digest(1)}
          %a: float32[4, 16] = MatMul(%x, %w)
          %b: float32[8, 16] = MatMul(%z, %w)
          %c: float32[12, 16] = Concat(%a, %b) {{axis=0}}
          %d: float32[12, 16] = Softmax(%c)
          %y: float32[24, 16] = Concat(%c, %d) {{axis=0}}
        }}
        """,
    "halves, and elements that return to where they were pooled from": """
        graph main(%x: float16[batch, 3, 8, 6]) -> (%y) {
          %n: float16[batch, 3, 8, 6] = Tanh(%x)
          %p: float16[batch, 3, 4, 3], %i: int64[batch, 3, 4, 3] = MaxPool(%n) {kernel_shape=(2, 2), strides=(2, 2)}
          %y: float16[batch, 3, 8, 6] = MaxUnpool(%p, %i) {kernel_shape=(2, 2), strides=(2, 2)}
        }
        """,
    "concatenations of many, and products behind each other": f"""
        graph main(%x: float32[batch, 16], %z: float32[batch, 4]) -> (%y, %v) {{
          const %w: float32[16, 16] = {_digest(1)}
          %a: float32[batch, 16] = MatMul(%x, %w)
          %b: float32[batch, 16] = Tanh(%a)
          %c: float32[batch, 16] = MatMul(%b, %w)
          %y: float32[batch, 16] = Softmax(%c)
          %v: float32[batch, 28] = Concat(%z, %z, %z, %x) {{axis=1}}
        }}
        """,
    "a loop": """
        graph main(%x: float32[n, 4], %s: float32[4]) -> (%last, %rows) {
          const %most: int64[] = [3]
          const %go: bool[] = [true]
          %last: float32[4], %rows: float32[3, 4] = Loop(%most, %go, %s) {
            body=graph body(%i: int64[], %c: bool[], %v: float32[4]) -> (%c, %w, %r) {
              const %two: float32[] = [2.0]
              const %twice: float32[] = [2.0]
              %w: float32[4] = Mul(%v, %two)
              %r: float32[4] = Add(%w, %twice)
            }
          }
        }
        """,
    "a transform": """
        graph main(%x: float32[2, 64, 1]) -> (%y) {
          const %axis: int64[] = [1]
          %m: float32[64, 1, 64, 2] = ingot.FourierMatrix(%x, %axis) {inverse=0, onesided=0}
          %y: float32[2, 64, 2] = ingot.Fourier(%x, %m, %axis)
        }
        """,
}


def _graph(name: str) -> Graph:
    return parse_graph(GRAPHS[name], invent_constants(GRAPHS[name]))


def _inputs(found: Graph) -> dict[str, np.ndarray]:
    sizes = {"batch": 2, "h": 6, "w": 5, "n": 3}
    return {name: np.abs(array) if array.dtype.kind == "u" else array for name, array in feeds(found, sizes).items()}


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.parametrize("name", GRAPHS)
@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(order=legal_orders())
def test_legal_orders_give_equal_results(name: str, order: tuple[Pass, ...]) -> None:
    before = _graph(name)
    after = Pipeline(order).run_graph(before, PassContext(instruments=(Verify(),)))
    assert all(n.op in SETTLED for n in after.nodes)
    inputs = _inputs(before)
    for found, wanted in zip(run_graph(after, inputs), run_graph(before, inputs), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4 * max(1.0, float(np.abs(wanted).max())))


class _Changes:
    """Names of passes that changed something."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self._before: Graph | None = None

    def before(self, index: int, name: str, graph: Graph) -> None:
        self._before = graph

    def after(self, index: int, name: str, graph: Graph, seconds: float) -> None:
        if graph is not self._before:
            self.names.add(name)


def test_every_pass_has_something_to_do() -> None:
    changes = _Changes()
    plain = default_pipeline(3, parse_target("amd/zen4"), filters=True)
    eager = Pipeline(tuple(EAGER.get(p.name, p) for p in plain.passes))
    for name, pipeline in itertools.product(GRAPHS, (plain, eager, Pipeline((PASSES["basic-blocks"](),)))):
        pipeline.run_graph(_graph(name), PassContext(instruments=(changes,)))
    assert sorted(PASSES.keys() - changes.names) == []


@settings(deadline=None, max_examples=100)
@given(order=legal_orders())
def test_legal_orders_are_those_that_a_pipeline_takes(order: tuple[Pass, ...]) -> None:
    assert {p.name for p in Pipeline(order).passes} == set(PASSES)
