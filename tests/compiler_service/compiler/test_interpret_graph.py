"""The reference interpreter of the graph IR, control flow included, against plain numpy."""

from __future__ import annotations

import numpy as np
import pytest

from compiler_service.compiler.reference.interpret import run_graph
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.graph.text import parse_graph


def test_symbols_are_bound_by_the_inputs() -> None:
    graph = parse_graph(
        """
        graph main(%x: float32[batch, n]) -> (%y, %s) {
          const %one: int64[1] = [1]
          %sum: float32[batch, 1] = ReduceSum(%x, %one)
          %y: float32[batch, n] = Div(%x, %sum)
          %s: int64[2] = ingot.Dims() {dims=(`batch`, `n * 2`)}
        }
        """
    )
    x = np.arange(1, 7, dtype=np.float32).reshape(2, 3)
    y, s = run_graph(graph, {"x": x})
    np.testing.assert_allclose(y, x / x.sum(axis=1, keepdims=True), rtol=1e-6)
    assert s.tolist() == [2, 6]


def test_a_shape_computed_from_data() -> None:
    graph = parse_graph(
        """
        graph main(%x: float32[n], %s: int64[2]) -> (%y) {
          %y: float32[a, b] = Reshape(%x, %s)
        }
        """
    )
    (y,) = run_graph(graph, {"x": np.arange(6, dtype=np.float32), "s": np.array([3, 2])})
    assert y.shape == (3, 2)


@pytest.mark.parametrize(("condition", "expected"), [(True, -2.0), (False, 4.0)])
def test_if_takes_one_branch(condition: bool, expected: float) -> None:
    graph = parse_graph(
        """
        graph main(%x: float32[1], %p: bool[]) -> (%y) {
          %y: float32[1] = If(%p) {
            then_branch=graph a() -> (%a) { %a: float32[1] = Neg(%x) },
            else_branch=graph b() -> (%b) { %b: float32[1] = Add(%x, %x) }
          }
        }
        """
    )
    (y,) = run_graph(graph, {"x": np.array([2], np.float32), "p": np.array(condition)})
    assert y.tolist() == [expected]


def test_loop_carries_and_collects() -> None:
    """Doubling until the value reaches 20, with every value collected."""
    graph = parse_graph(
        """
        graph main(%x: float32[], %trips: int64[]) -> (%last, %all) {
          const %go: bool[] = [true]
          const %bound: float32[] = [20.0]
          %last: float32[], %all: float32[steps] = Loop(%trips, %go, %x) {
            body=graph step(%i: int64[], %c: bool[], %v: float32[]) -> (%again, %doubled, %row) {
              %doubled: float32[] = Add(%v, %v)
              %again: bool[] = Less(%doubled, %bound)
              %row: float32[] = Identity(%doubled)
            }
          }
        }
        """
    )
    last, rows = run_graph(graph, {"x": np.array(3, np.float32), "trips": np.array(10)})
    assert (float(last), rows.tolist()) == (24.0, [6.0, 12.0, 24.0])
    last, rows = run_graph(graph, {"x": np.array(3, np.float32), "trips": np.array(1)})
    assert (float(last), rows.tolist()) == (6.0, [6.0])
    last, rows = run_graph(graph, {"x": np.array(3, np.float32), "trips": np.array(0)})
    assert (float(last), rows.shape) == (3.0, (0,))


@pytest.mark.parametrize("backward", [0, 1])
def test_scan_runs_along_an_axis(backward: int) -> None:
    graph = parse_graph(
        f"""
        graph main(%start: float32[2], %x: float32[2, steps]) -> (%end, %sums) {{
          %end: float32[2], %sums: float32[steps, 2] = Scan(%start, %x) {{
            body=graph step(%s: float32[2], %r: float32[2]) -> (%t, %u) {{
              %t: float32[2] = Add(%s, %r)
              %u: float32[2] = Identity(%t)
            }},
            num_scan_inputs=1,
            scan_input_axes=(1,),
            scan_input_directions=({backward},)
          }}
        }}
        """
    )
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    end, sums = run_graph(graph, {"start": np.zeros(2, np.float32), "x": x})
    ordered = x[:, ::-1] if backward else x
    np.testing.assert_array_equal(sums, np.cumsum(ordered, axis=1).T)
    np.testing.assert_array_equal(end, x.sum(axis=1))


def test_errors_name_the_input() -> None:
    graph = parse_graph("graph main(%x: float32[n, 3]) -> (%y) {\n %y: float32[n, 3] = Relu(%x)\n}")
    with pytest.raises(IngotError, match="an input is missing; at tensor 'x'") as missing:
        run_graph(graph, {})
    assert missing.value.code is ErrorCode.INVALID_ARGUMENT
    with pytest.raises(IngotError, match=r"expected \[n, 3\], received \[2, 4\]"):
        run_graph(graph, {"x": np.zeros((2, 4), np.float32)})


def test_errors_of_an_operator_name_the_node() -> None:
    graph = parse_graph('graph main(%x: float32[2]) -> (%y) {\n %y: float32[2] = NoSuchOperator(%x) "n1"\n}')
    with pytest.raises(IngotError, match=r"n1 \(NoSuchOperator\)"):
        run_graph(graph, {"x": np.zeros(2, np.float32)})
