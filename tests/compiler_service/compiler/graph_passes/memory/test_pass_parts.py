"""Concatenations that copy nothing: which operands are made in their places, and that nobody is in anybody's way."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from compiler_service.compiler.graph_passes.analysis.aliases import is_joined, is_view
from compiler_service.compiler.graph_passes.fusion.fuse import Fuse
from compiler_service.compiler.graph_passes.memory.parts import find_parts, find_strides
from compiler_service.compiler.graph_passes.memory.place_parts import PlaceParts
from compiler_service.compiler.graph_passes.memory.plan_memory import MemoryPlan, plan_memory
from compiler_service.compiler.graph_passes.memory.separate_outputs import SeparateOutputs
from compiler_service.compiler.graph_passes.rewriting.builder import Builder
from compiler_service.compiler.reference.interpret import run_graph
from shared_ir.dtype import DType
from shared_ir.expr import Var
from shared_ir.expr.dim import Dim, dims_text
from shared_ir.graph.ir import Graph, Value
from shared_ir.plan.program import Storage
from shared_ir.types import TensorType
from tests.compiler_service.compiler.graph_passes.memory.memory_plans import Planned
from tests.compiler_service.compiler.graph_passes.memory.test_pass_memory import run_in_memory
from tests.compiler_service.compiler.graph_passes.pass_graphs import feeds, graph, run_passes

EAGER = PlaceParts(launch_bytes=0, least_run=1)
SIZES = {"batch": 3, "n": 4}


def placed(text: str, item: PlaceParts = EAGER) -> Graph:
    return run_passes(graph(text), Fuse(), SeparateOutputs(), item)


def kinds(found: Graph) -> list[str]:
    """What every node is: ``view``, ``parts``, or the operators of its kernel."""
    return [
        "view" if is_view(n) else "parts" if is_joined(n) else "+".join(inner.op for inner in n.subgraphs[0].nodes)
        for n in found.nodes
    ]


def places(found: Graph) -> dict[str, str]:
    """Value -> where it lies: ``whole + offset by strides``."""
    return {v.name: f"{p.whole.name} + {p.offset} by {dims_text(p.strides)}" for v, p in find_parts(found).items()}


def assert_same_in_memory(before: Graph, after: Graph, sizes: dict[str, int] = SIZES) -> MemoryPlan:
    inputs, plan = feeds(before, sizes), plan_memory(after)
    wanted = run_graph(before, inputs)
    for found, expected in zip(run_graph(after, inputs), wanted, strict=True):
        np.testing.assert_array_equal(found, expected)
    for found, expected in zip(run_in_memory(after, plan, inputs, sizes), wanted, strict=True):
        np.testing.assert_array_equal(found, expected)
    return plan


CHANNELS = """
    graph main(%x: float32[batch, 4, 16]) -> (%y) {
      %a: float32[batch, 4, 16] = Softmax(%x)
      %b: float32[batch, 4, 16] = Softmax(%x) {axis=1}
      %c: float32[batch, 4, 32] = Concat(%a, %b) {axis=2}
      %y: float32[batch, 4, 32] = Softmax(%c)
    }
    """


def test_operands_are_made_with_the_strides_of_the_whole() -> None:
    after = placed(CHANNELS)
    assert kinds(after) == ["Softmax", "Softmax", "parts", "Softmax"]
    assert places(after) == {"a": "c + 0 by 128, 32, 1", "b": "c + 16 by 128, 32, 1"}
    assert_same_in_memory(graph(CHANNELS), after)


def test_along_the_first_axis_there_are_no_gaps() -> None:
    text = CHANNELS.replace("batch, 4, 32", "2*batch, 4, 16").replace("axis=2", "axis=0")
    after = placed(text)
    assert places(after) == {"a": "c + 0 by 64, 16, 1", "b": "c + batch * 64 by 64, 16, 1"}
    assert not find_strides(after)
    assert_same_in_memory(graph(text), after)


def test_growing_prefixes_are_views_of_the_longest() -> None:
    text = """
    graph main(%x: float32[2, 16], %p: float32[2, 2]) -> (%y) {
      %a: float32[2, 16] = MatMul(%p, %x)
      %b: float32[2, 16] = MatMul(%p, %a)
      %ab: float32[2, 32] = Concat(%a, %b) {axis=1}
      %c: float32[2, 32] = MatMul(%p, %ab)
      %abc: float32[2, 64] = Concat(%a, %b, %c) {axis=1}
      %y: float32[2, 64] = MatMul(%p, %abc)
    }
    """
    after = placed(text)
    assert kinds(after) == ["MatMul", "MatMul", "view", "MatMul", "parts", "MatMul"]
    assert places(after) == {
        "a": "abc + 0 by 64, 1",
        "b": "abc + 16 by 64, 1",
        "c": "abc + 32 by 64, 1",
    }
    assert {v.name: s for v, s in find_strides(after).items()} == dict.fromkeys(("a", "b", "c", "ab"), (64, 1))
    assert_same_in_memory(graph(text), after)


def two_concatenations(operands: str) -> str:
    """All of three values side by side, and two of them."""
    return f"""
    graph main(%x: float32[2, 16], %p: float32[2, 2]) -> (%y, %z) {{
      %a: float32[2, 16] = MatMul(%p, %x)
      %b: float32[2, 16] = MatMul(%p, %a)
      %c: float32[2, 16] = MatMul(%p, %b)
      %abc: float32[2, 48] = Concat(%a, %b, %c) {{axis=1}}
      %two: float32[2, 32] = Concat({operands}) {{axis=1}}
      %y: float32[2, 48] = MatMul(%p, %abc)
      %z: float32[2, 32] = MatMul(%p, %two)
    }}
    """


def test_a_middle_part_is_a_view_as_well() -> None:
    text = two_concatenations("%b, %c")
    after = placed(text)
    assert kinds(after).count("view") == 1
    assert_same_in_memory(graph(text), after)


def test_operands_in_another_order_are_copied() -> None:
    text = two_concatenations("%b, %a")
    after = placed(text)
    assert "Concat" in kinds(after)
    assert_same_in_memory(graph(text), after)


def test_concatenations_of_concatenations_nest() -> None:
    text = """
    graph main(%x: float32[2, 3, 16], %p: float32[3, 3]) -> (%y) {
      %a: float32[2, 3, 16] = MatMul(%p, %x)
      %b: float32[2, 3, 16] = MatMul(%p, %a)
      %ab: float32[2, 6, 16] = Concat(%a, %b) {axis=1}
      %c: float32[2, 6, 16] = Softmax(%ab)
      %d: float32[2, 6, 32] = Concat(%ab, %c) {axis=2}
      %y: float32[2, 6, 32] = Softmax(%d)
    }
    """
    after = placed(text)
    assert places(after) == {
        "a": "ab + 0 by 192, 32, 1",
        "b": "ab + 96 by 192, 32, 1",
        "ab": "d + 0 by 192, 32, 1",
        "c": "d + 16 by 192, 32, 1",
    }
    assert_same_in_memory(graph(text), after)


def test_what_cannot_be_made_there_is_copied() -> None:
    text = """
    graph main(%x: float32[1, 4], %p: float32[1, 1]) -> (%y, %b) {
      const %w: float32[1, 4] = [1.0, 2.0, 3.0, 4.0]
      %a: float32[1, 4] = MatMul(%p, %x)
      %b: float32[1, 4] = MatMul(%p, %a)
      %c: float32[1, 20] = Concat(%a, %a, %b, %x, %w) {axis=1}
      %y: float32[1, 20] = MatMul(%p, %c)
    }
    """
    after = placed(text)
    assert kinds(after) == ["MatMul", "MatMul", *["Identity"] * 4, "parts", "MatMul"]
    assert set(places(after)) == {"a", "a_placed", "b_placed", "x_placed", "w_placed"}
    assert_same_in_memory(graph(text), after)


def test_an_output_is_written_by_its_parts() -> None:
    text = CHANNELS.replace("-> (%y)", "-> (%c)").replace("%y: float32[batch, 4, 32] = Softmax(%c)\n", "")
    after = placed(text)
    plan = assert_same_in_memory(graph(text), after)
    assert {p.storage for v, p in plan.buffers.items() if v.name in "abc"} == {Storage.OUTPUT}
    assert plan.arena_size == 0


OVERWRITTEN = """
    graph main(%x: float32[2, 16], %p: float32[2, 2]) -> (%y, %z) {{
      %a: float32[2, 16] = MatMul(%p, %x)
      %b: float32[2, 16] = MatMul(%p, %a)
      %c: float32[2, 32] = Concat(%a, %b) {{axis=1}}
      %d: float32[2, 32] = Exp(%c)
      %y: float32[2, 32] = MatMul(%p, %d)
      %z: float32[2, 16] = MatMul(%p, {last})
    }}
    """


@pytest.mark.parametrize(("last", "is_shared"), [("%x", True), ("%a", False)])
def test_a_whole_is_written_over_when_nobody_reads_its_parts_any_more(last: str, is_shared: bool) -> None:
    text = OVERWRITTEN.format(last=last)
    plan = {v.name: p for v, p in assert_same_in_memory(graph(text), placed(text)).buffers.items()}
    assert plan["d"].shares(plan["c"]) is is_shared


def test_nor_by_a_kernel_that_reads_a_part_in_another_place() -> None:
    text = """
    graph main(%x: float32[2, 16], %p: float32[2, 2]) -> (%y, %m) {
      %a: float32[2, 16] = MatMul(%p, %x)
      %b: float32[2, 16] = MatMul(%p, %a)
      %c: float32[2, 32] = Concat(%a, %b) {axis=1}
      %m: float32[2, 32] = MatMul(%p, %c)
      %s: float32[2, 32] = Concat(%x, %a) {axis=1}
      %d: float32[2, 32] = Sub(%c, %s)
      %y: float32[2, 32] = MatMul(%p, %d)
    }
    """
    after = placed(text)
    assert kinds(after) == ["MatMul", "MatMul", "parts", "MatMul", "Concat+Sub", "MatMul"]
    plan = {v.name: p for v, p in assert_same_in_memory(graph(text), after).buffers.items()}
    assert not plan["d"].shares(plan["c"])


def test_parts_of_two_wholes_are_not_side_by_side() -> None:
    text = """
    graph main(%x: float32[2, 16], %p: float32[2, 2]) -> (%y, %z, %w) {
      %a: float32[2, 16] = MatMul(%p, %x)
      %b: float32[2, 16] = MatMul(%p, %a)
      %c: float32[2, 16] = MatMul(%p, %b)
      %d: float32[2, 16] = MatMul(%p, %c)
      %ab: float32[2, 32] = Concat(%a, %b) {axis=1}
      %cd: float32[2, 32] = Concat(%c, %d) {axis=1}
      %ad: float32[2, 32] = Concat(%a, %d) {axis=1}
      %y: float32[2, 32] = MatMul(%p, %ab)
      %z: float32[2, 32] = MatMul(%p, %cd)
      %w: float32[2, 32] = MatMul(%p, %ad)
    }
    """
    after = placed(text)
    assert "view" not in kinds(after)
    assert_same_in_memory(graph(text), after)


def test_groups_are_cut_around_what_need_not_be_copied() -> None:
    text = """
    graph main(%x: float32[2, 32], %p: float32[2, 2]) -> (%y) {
      const %zero: int64[1] = [0]
      const %half: int64[1] = [16]
      const %one: int64[1] = [1]
      %a: float32[2, 32] = MatMul(%p, %x)
      %b: float32[2, 16] = Slice(%x, %zero, %half, %one)
      %c: float32[2, 48] = Concat(%b, %a) {axis=1}
      %y: float32[2, 48] = MatMul(%p, %c)
    }
    """
    after = placed(text)
    assert kinds(after) == ["MatMul", "Slice", "parts", "MatMul"]
    assert_same_in_memory(graph(text), after)
    assert kinds(placed(text, PlaceParts(least_run=256))) == ["MatMul", "Slice+Concat", "MatMul"]


def test_what_follows_is_cut_off_where_nothing_is_made_apart() -> None:
    text = """
    graph main(%x: float32[2, 16], %p: float32[2, 2]) -> (%y) {
      %a: float32[2, 16] = MatMul(%p, %x)
      %b: float32[2, 16] = MatMul(%p, %a)
      %c: float32[2, 32] = Concat(%a, %b) {axis=1}
      %y: float32[2, 32] = Exp(%c)
    }
    """
    assert kinds(placed(text)) == ["MatMul", "MatMul", "parts", "Exp"]
    assert_same_in_memory(graph(text), placed(text))
    kept = text.replace("Concat(%a, %b)", "Concat(%a, %x)")
    assert "Concat+Exp" in kinds(placed(kept))


def test_few_bytes_are_not_worth_a_launch() -> None:
    text = """
    graph main(%x: float32[2, 16], %p: float32[2, 2]) -> (%y) {
      %a: float32[2, 16] = MatMul(%p, %x)
      %c: float32[2, 48] = Concat(%x, %a, %x) {axis=1}
      %y: float32[2, 48] = MatMul(%p, %c)
    }
    """
    assert kinds(placed(text, PlaceParts())) == ["MatMul", "Concat", "MatMul"]
    assert kinds(placed(text)) == ["MatMul", "Identity", "Identity", "parts", "MatMul"]


@pytest.mark.parametrize("reader", ["Softmax", "Reshape"])
def test_views_see_through_gaps_where_they_can(reader: str) -> None:
    shape = {"Softmax": "2, 4, 16", "Reshape": "2, 64"}[reader]
    text = f"""
    graph main(%x: float32[2, 4, 16]) -> (%y, %z) {{
      const %flat: int64[2] = [2, 64]
      const %four: int64[4] = [2, 2, 2, 16]
      %a: float32[2, 4, 16] = Softmax(%x)
      %b: float32[2, 4, 16] = Softmax(%x) {{axis=1}}
      %c: float32[2, 4, 32] = Concat(%a, %b) {{axis=2}}
      %y: float32[2, 4, 32] = Softmax(%c)
      %v: float32[2, 2, 2, 16] = Reshape(%a, %four)
      %m: float32[{shape}] = {"Reshape(%b, %flat)" if reader == "Reshape" else "Softmax(%b)"}
      %n: float32[{shape}] = Softmax(%m)
      %z: float32[2, 2, 2, 16] = Softmax(%v)
    }}
    """.replace("-> (%y, %z)", "-> (%y, %z, %n)")
    after = placed(text)
    assert set(places(after)) == ({"a", "b_placed"} if reader == "Reshape" else {"a", "b"})
    assert next(s for v, s in find_strides(after).items() if v.name == "v") == (128, 64, 32, 1)
    assert_same_in_memory(graph(text), after)


def test_short_runs_stay_apart() -> None:
    text = CHANNELS.replace("16]", "15]").replace("32]", "30]")
    assert "Concat" in kinds(placed(text, PlaceParts(launch_bytes=0)))
    assert "Concat" not in kinds(placed(CHANNELS, PlaceParts(launch_bytes=0)))


def _anchored(make: Builder, value: Value, axis: int) -> Value:
    """``value`` through a reduction, so that it is made by a kernel of its own."""
    return make.node("Softmax", value, axis=axis)


@st.composite
def concatenations(draw: st.DrawFn) -> Graph:
    """Graphs of concatenations of concatenations, along any axis, of values that are read elsewhere too."""
    count = 0

    def fresh(base: str) -> str:
        nonlocal count
        count += 1
        return f"{base}_{count}"

    make = Builder(fresh=fresh)
    firsts: list[Dim] = [1, 2, Var("batch")]
    seconds: list[Dim] = [1, 3, Var("n")]
    dims: list[Dim] = [draw(st.sampled_from(firsts)), draw(st.sampled_from(seconds)), 2]
    x = Value("x", TensorType(DType.FLOAT64, tuple(dims)))
    values = [x]
    for _ in range(draw(st.integers(3, 14))):
        source = draw(st.sampled_from(values))
        axis = draw(st.integers(0, 2))
        kind = draw(st.sampled_from(["softmax", "softmax", "neg", "concat", "concat", "concat", "slice", "view"]))
        if kind == "softmax":
            values.append(_anchored(make, source, axis))
        elif kind == "neg":
            values.append(make.node("Neg", source))
        elif kind == "slice" and isinstance(source.shape[2], int) and source.shape[2] > 1:
            values.append(make.slice(source, 2, draw(st.integers(0, 1)), source.shape[2]))
        elif kind == "view":
            values.append(
                make.node("Relu", make.reshape(source, (source.shape[0], source.shape[1], 1, source.shape[2])))
            )
            values.append(make.reshape(values.pop(), source.shape))
        elif kind == "concat":
            others = [v for v in values if _without(v, axis) == _without(source, axis)]
            chosen = draw(st.lists(st.sampled_from(others), min_size=1, max_size=4))
            joined = make.node("Concat", source, *chosen, axis=axis)
            if all(not isinstance(d, int) or d <= 64 for d in joined.shape):
                values.append(joined)
    outputs = draw(st.lists(st.sampled_from(values), max_size=2))
    read = {v for n in make.nodes for v in n.operands}
    outputs += [v for n in make.nodes for v in n.results if v not in read]
    return Graph("main", (x,), tuple(dict.fromkeys(outputs)) or (x,), tuple(make.nodes), make.added)


def _without(value: Value, axis: int) -> tuple[Dim, ...]:
    return tuple(d for i, d in enumerate(value.shape) if i != axis)


def test_a_body_hands_on_an_outer_value_beside_a_concatenation() -> None:
    before = graph(
        """
        graph main(%x: float32[4, 8], %p: bool[]) -> (%y, %z) {
          %y: float32[8, 8], %z: float32[4, 8] = If(%p) {
            then_branch=graph a() -> (%c, %x) { %e: float32[4, 8] = Exp(%x) %c: float32[8, 8] = Concat(%e, %x) {axis=0} },
            else_branch=graph b() -> (%d, %x) { %d: float32[8, 8] = Concat(%x, %x) {axis=0} }
          } "choice"
        }
        """
    )
    Planned.of(run_passes(before, Fuse(), SeparateOutputs(), EAGER)).verify()


@pytest.mark.slow
@pytest.mark.parametrize("merge", [True, False])
@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(before=concatenations())
def test_values_keep_what_was_written_to_them(merge: bool, before: Graph) -> None:
    after = run_passes(before, Fuse(merge=merge), SeparateOutputs(), EAGER)
    assert_same_in_memory(before, after)
