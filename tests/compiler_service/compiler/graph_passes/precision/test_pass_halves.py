"""Halves are how a model is stored: it computes in float32, and reads halves where memory is what it waits for."""

from __future__ import annotations

import numpy as np
import pytest

from compiler_service.compiler.graph_passes.cleaning.fold_constants import FoldConstants
from compiler_service.compiler.graph_passes.fusion.fuse import Fuse
from compiler_service.compiler.graph_passes.normal_form.lower_loops import LowerLoops
from compiler_service.compiler.graph_passes.precision.halve_weights import HalveWeights, as_half
from compiler_service.compiler.graph_passes.precision.widen_floats import WidenFloats
from compiler_service.compiler.reference.interpret import run_graph
from shared_ir.dtype import HALVES, DType
from shared_ir.graph.ir import Graph, walk_graphs
from tests.compiler_service.compiler.graph_passes.pass_graphs import (
    assert_same,
    body,
    feeds,
    graph,
    lines,
    ops,
    run_passes,
)

HALF = 2.0**-10
"""What rounding to float16 loses, relative to the largest element."""


def halves(found: Graph) -> list[str]:
    """The operators that take or give a half, Casts aside."""
    nodes = (n for g in walk_graphs(found) for n in g.nodes)
    return [n.op for n in nodes if n.op != "Cast" and any(v.dtype in HALVES for v in (*n.operands, *n.results))]


def widened(before: Graph, tolerance: float = HALF) -> Graph:
    after = run_passes(before, WidenFloats())
    assert (after.inputs, after.outputs) == (before.inputs, before.outputs)
    assert_same(before, after, tolerance)
    return after


def test_models_without_halves_are_left_alone() -> None:
    before = graph("""graph main(%x: float32[4]) -> (%y) {
      %i: int64[4] = Cast(%x) {to=int64}
      %y: float32[4] = Cast(%i) {to=float32}
    }""")
    assert run_passes(before, WidenFloats()) is before


def test_what_lies_between_input_and_output_is_float32() -> None:
    after = widened(
        graph("""graph main(%x: float16[2, 3]) -> (%y) {
          const %w: float16[3, 2] = [1.5, -2.0, 0.25, 3.0, -0.5, 1.0]
          %p: float16[2, 2] = MatMul(%x, %w)
          %y: float16[2, 2] = Exp(%p)
        }""")
    )
    assert not halves(after)
    assert body(after) == lines("""
      const %w_1: float32[3, 2] = [1.5, -2.0, 0.25, 3.0, -0.5, 1.0]
      %x_1: float32[2, 3] = Cast(%x) {to=float32}
      %p_1: float32[2, 2] = MatMul(%x_1, %w_1)
      %y_1: float32[2, 2] = Exp(%p_1)
      %y: float16[2, 2] = Cast(%y_1) {to=float16}
    """)


def test_a_half_is_nearer_to_the_truth_than_before() -> None:
    before = graph("""graph main(%x: float16[64]) -> (%y) {
      const %axes: int64[1] = [0]
      %a: float16[64] = Mul(%x, %x)
      %b: float16[64] = Mul(%a, %x)
      %y: float16[1] = ReduceSum(%b, %axes) {keepdims=1}
    }""")
    inputs = feeds(before)
    exact = (inputs["x"].astype(np.float64) ** 3).sum()
    (found,) = run_graph(run_passes(before, WidenFloats()), inputs)
    (rounded,) = run_graph(before, inputs)
    assert found[0] == np.float16(exact)
    assert abs(rounded[0] - exact) > abs(found[0] - exact)


def test_casts_between_floats_fall_away() -> None:
    after = widened(
        graph("""graph main(%x: float32[4]) -> (%y, %z) {
          %a: float16[4] = Cast(%x) {to=float16}
          %b: float32[4] = Cast(%a) {to=float32}
          %c: bfloat16[4] = Cast(%a) {to=bfloat16}
          %d: float32[4] = Cast(%c) {to=float32}
          %y: float32[4] = Add(%b, %d)
          %z: float32[4] = Cast(%a) {to=float32}
        }"""),
        tolerance=2.0**-7,
    )
    assert ops(after) == ["Add", "Identity"]


def test_numbers_of_other_kinds_become_float32_at_once() -> None:
    after = widened(
        graph("""graph main(%x: float32[4]) -> (%y) {
          %i: int64[4] = Cast(%x) {to=int64}
          %a: float16[4] = Cast(%i) {to=float16}
          %b: float16[4] = Neg(%a)
          %y: float32[4] = Cast(%b) {to=float32}
        }""")
    )
    assert not halves(after)
    assert ops(after) == ["Cast", "Cast", "Neg", "Identity"]


def test_of_a_table_only_what_is_read_is_widened() -> None:
    before = graph("""graph main(%i: int64[2]) -> (%y) {
      const %w: float16[3, 2] = [1.5, -2.0, 0.25, 3.0, -0.5, 1.0]
      %g: float16[2, 2] = Gather(%w, %i) {axis=0}
      %y: float32[2, 2] = Cast(%g) {to=float32}
    }""")
    after = run_passes(before, WidenFloats())
    assert halves(after) == ["Gather"]
    inputs = {"i": np.array([2, 0])}
    np.testing.assert_array_equal(run_graph(after, inputs)[0], run_graph(before, inputs)[0])


def test_a_cache_that_comes_in_and_goes_out_stays_one_of_halves() -> None:
    after = widened(
        graph("""graph main(%past: float16[2, 3], %x: float16[1, 3]) -> (%present, %y) {
          %k: float16[1, 3] = Exp(%x)
          %present: float16[3, 3] = Concat(%past, %k) {axis=0}
          %y: float16[3, 3] = Neg(%present)
        }""")
    )
    assert halves(after) == ["Concat"]


def test_what_is_joined_to_a_constant_is_float32() -> None:
    after = widened(
        graph("""graph main(%x: float16[1, 3]) -> (%y) {
          const %token: float16[1, 3] = [1.5, -2.0, 0.5]
          %k: float16[1, 3] = Exp(%x)
          %c: float16[2, 3] = Concat(%token, %k) {axis=0}
          %y: float16[2, 3] = Neg(%c)
        }""")
    )
    assert not halves(after)


def test_attributes_decide_where_they_name_a_type() -> None:
    after = widened(
        graph("""graph main(%x: float16[2, 2]) -> (%y) {
          %c: float16[2, 2] = EyeLike(%x) {dtype=float16}
          %y: float16[2, 2] = Add(%x, %c)
        }""")
    )
    assert halves(after) == ["EyeLike"]


def test_bits_that_are_looked_at_are_those_of_the_half() -> None:
    before = graph("""graph main(%x: float32[4]) -> (%y) {
      %a: float16[4] = Cast(%x) {to=float16}
      %b: float16[4] = Neg(%a)
      %y: uint16[4] = BitCast(%b) {to=uint16}
    }""")
    after = run_passes(before, WidenFloats())
    assert halves(after) == ["BitCast"]
    for wanted, found in zip(run_graph(before, feeds(before)), run_graph(after, feeds(before)), strict=True):
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("condition", [True, False])
def test_branches_take_and_give_float32(condition: bool) -> None:
    before = graph("""
      graph main(%x: float16[4], %p: bool[]) -> (%y) {
        const %one: float16[1] = [1.0]
        %e: float16[4] = Exp(%x)
        %s: float16[4] = If(%p) {
          then_branch=graph then() -> (%a) {
            %t: float16[4] = Mul(%e, %one)
            %a: float16[4] = Neg(%t)
          },
          else_branch=graph other() -> (%x) { }
        }
        %y: float16[4] = Abs(%s)
      }
    """)
    after = run_passes(before, WidenFloats())
    assert not halves(after)
    inputs = {"x": feeds(before)["x"], "p": np.array(condition)}
    np.testing.assert_allclose(run_graph(after, inputs)[0], run_graph(before, inputs)[0], rtol=2 * HALF)


def test_branches_round_what_was_computed_before_them() -> None:
    before = graph("""
      graph main(%x: float16[4], %p: bool[]) -> (%y, %e) {
        %e: float16[4] = Exp(%x)
        %y: uint16[4] = If(%p) {
          then_branch=graph then() -> (%a) { %a: uint16[4] = BitCast(%e) {to=uint16} },
          else_branch=graph other() -> (%b) { %b: uint16[4] = BitCast(%e) {to=uint16} }
        }
      }
    """)
    after = run_passes(before, WidenFloats())
    inputs = {"x": feeds(before)["x"], "p": np.array(True)}
    for wanted, found in zip(run_graph(before, inputs), run_graph(after, inputs), strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_loops_carry_float32() -> None:
    before = graph("""
      graph main(%x: float16[4]) -> (%y, %rows) {
        const %n: int64[] = [3]
        const %p: bool[] = [true]
        %y: float16[4], %rows: float16[3, 4] = Loop(%n, %p, %x) {
          body=graph body(%i: int64[], %go: bool[], %c: float16[4]) -> (%go, %d, %e) {
            %d: float16[4] = Sin(%c)
            %e: float16[4] = Add(%d, %x)
          }
        }
      }
    """)
    after = run_passes(before, LowerLoops(), WidenFloats())
    assert not halves(after)
    assert_same(before, after, 4 * HALF)


# -- weights


def product(rows: str, dtype: DType, op: str = "MatMul") -> Graph:
    """``x[rows, 128] @ w[128, 256]``, the weights of which are numbers of ``dtype`` written as float32."""
    text = f"""graph main(%x: float32[{rows}, 128], %w: float32[128, 256]) -> (%y) {{
      %y: float32[{rows}, 256] = {op}(%x, %w)
    }}"""
    found = graph(text)
    x, w = found.inputs
    numbers = np.random.default_rng(0).standard_normal((128, 256)).astype(np.float32)
    pattern = (numbers * np.float32(2.0**20)).view(np.uint32)  # too large for float16
    if dtype is DType.FLOAT16:
        numbers = numbers.astype(np.float16).astype(np.float32)
    elif dtype is DType.BFLOAT16:
        numbers = (pattern & np.uint32(0xFFFF0000)).view(np.float32)
    return found.with_(inputs=(x,), constants={w: numbers})


@pytest.mark.parametrize("dtype", [DType.FLOAT16, DType.BFLOAT16])
@pytest.mark.parametrize("op", ["MatMul", "Gemm"])
def test_weights_that_are_halves_are_stored_as_halves(dtype: DType, op: str) -> None:
    before = product("2", dtype, op)
    after = run_passes(before, HalveWeights())
    assert [v.dtype for v in after.constants] == [dtype]
    assert_same(before, after, 0.0)


@pytest.mark.parametrize(("rows", "dtype"), [("2", DType.FLOAT32), ("64", DType.FLOAT16)])
def test_other_weights_stay(rows: str, dtype: DType) -> None:
    before = product(rows, dtype)
    assert run_passes(before, HalveWeights()) is before


def test_one_number_that_is_no_half_is_found() -> None:
    numbers = np.zeros(10_000, dtype=np.float32)
    assert as_half(numbers, HALVES) is not None
    numbers[-1] = 1 + 2.0**-12
    assert as_half(numbers, HALVES) is None


def test_targets_without_conversions_keep_float16_wide() -> None:
    before = product("2", DType.FLOAT16)
    numbers = next(iter(before.constants.values()))
    assert as_half(numbers, (DType.BFLOAT16,)) is None
    assert run_passes(before, HalveWeights((DType.BFLOAT16,))) is before


def test_halves_are_converted_inside_the_product() -> None:
    after = run_passes(product("2", DType.FLOAT16), HalveWeights(), Fuse())
    assert ops(after) == ["Cast+MatMul"]


def test_constants_that_products_do_not_read_are_folded() -> None:
    before = graph("""graph main(%x: float32[2]) -> (%y) {
      const %h: float16[2] = [0.5, 1.0]
      %w: float32[2] = Cast(%h) {to=float32}
      %y: float32[2] = Add(%x, %w)
    }""")
    assert ops(run_passes(before, FoldConstants(), Fuse())) == ["Add"]


DECIDING = {
    "Equal": "%y: bool[n] = Equal(%a, %b)",
    "Less": "%y: bool[n] = Less(%a, %b)",
    "GreaterOrEqual": "%y: bool[n] = GreaterOrEqual(%a, %b)",
    "Cast": "%y: int32[n] = Cast(%a) {to=int32}",
    "Floor": "%s: HALF[n] = Floor(%a)\n%y: float32[n] = Cast(%s) {to=float32}",
    "Sign": "%s: HALF[n] = Sign(%a)\n%y: float32[n] = Cast(%s) {to=float32}",
    "ArgMax": "%y: int64[1] = ArgMax(%a) {axis=0}",
    "Cast to bool": "%q: bool[n] = Cast(%a) {to=bool}\n%y: int64[n] = Cast(%q) {to=int64}",
    "IsInf": "%y: bool[n] = IsInf(%a)",
}
"""From float32 rounded to halves, %a and %b, to what they decide."""


@pytest.mark.parametrize("op", DECIDING)
@pytest.mark.parametrize("half", ["float16", "bfloat16"])
def test_what_halves_decide_they_decide_as_the_model_rounds_them(op: str, half: str) -> None:
    """Numbers that are apart in float32, and mostly the same as halves: what was rounded off must not come back."""
    text = f"""graph main(%x: float32[64], %z: float32[64]) -> (%y) {{
      %a: HALF[64] = Cast(%x) {{to=HALF}}
      %b: HALF[64] = Cast(%z) {{to=HALF}}
      {DECIDING[op]}
    }}"""
    before = graph(text.replace("HALF", half).replace("[n]", "[64]"))
    numbers = np.random.default_rng(7)
    x = (4 + numbers.integers(0, 3, 64) + numbers.uniform(-1e-4, 1e-4, 64)).astype(np.float32)
    x[5], x[6], x[7] = 65519.9, 65520.1, 1e-9
    z = (x * (1 + numbers.uniform(-1e-4, 1e-4, 64))).astype(np.float32)
    given = {"x": x, "z": z}
    for found, wanted in zip(
        run_graph(run_passes(before, WidenFloats()), given), run_graph(before, given), strict=True
    ):
        np.testing.assert_array_equal(found, wanted)
