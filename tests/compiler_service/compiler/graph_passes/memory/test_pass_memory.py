"""The memory plan: nothing that is in use is overwritten, whatever the symbols stand for."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from numpy.lib.stride_tricks import as_strided

from compiler_service.compiler.graph_passes.analysis.aliases import runs_no_kernel
from compiler_service.compiler.graph_passes.fusion.fuse import Fuse
from compiler_service.compiler.graph_passes.memory.memory_units import bound_sizes
from compiler_service.compiler.graph_passes.memory.pack_memory import BYTES_OF_PAGE, PAGED, MemoryBlock, pack
from compiler_service.compiler.graph_passes.memory.parts import find_strides
from compiler_service.compiler.graph_passes.memory.plan_memory import MemoryPlan, Placement, plan_memory
from compiler_service.compiler.graph_passes.memory.separate_outputs import SeparateOutputs
from compiler_service.compiler.reference.interpret import run_graph
from shared_ir.errors import IngotError
from shared_ir.expr import Var
from shared_ir.expr.dim import Dim, as_dim, dim_text, evaluate
from shared_ir.graph.ir import Graph, Value
from shared_ir.plan.program import ALIGNMENT_BYTES, Storage
from tests.compiler_service.compiler.graph_passes.memory.memory_plans import Planned
from tests.compiler_service.compiler.graph_passes.pass_graphs import feeds, graph, run_passes

B, H, W = Var("batch"), Var("h"), Var("w")
HALF_H, HALF_W = (H + 1) // 2, (W + 1) // 2
SIZES: dict[str, Callable[[int], Dim]] = {
    "constant": lambda n: n,
    "batch": lambda n: as_dim(B * n),
    "picture": lambda n: as_dim(B * H * W * n),
    "half": lambda n: as_dim(B * HALF_H * HALF_W * n),
    "quarter": lambda n: as_dim(B * ((HALF_H + 1) // 2) * ((HALF_W + 1) // 2) * n),
    "scores": lambda n: as_dim(B * H * H * n),
    "upsampled": lambda n: as_dim(B * (HALF_H * 2) * W * n),
    "padded": lambda n: as_dim(B * (H + 3) * W * n),
}
UNBOUNDED = {"odd": lambda n: as_dim((H % 7 + 1) * W * n)}

symbols = st.fixed_dictionaries({"batch": st.integers(0, 5), "h": st.integers(0, 70), "w": st.integers(0, 70)})


@st.composite
def blocks(draw: st.DrawFn, kinds: Mapping[str, Callable[[int], Dim]]) -> list[MemoryBlock]:
    found = []
    for _ in range(draw(st.integers(1, 12))):
        start = draw(st.integers(0, 10))
        size = kinds[draw(st.sampled_from(sorted(kinds)))](draw(st.integers(1, 300)))
        found.append(MemoryBlock(size, start, start + draw(st.integers(0, 4))))
    return found


def _check(found: list[MemoryBlock], values: dict[str, int]) -> None:
    packing = pack(found)
    total = evaluate(packing.size, values)
    spans = []
    for block, offset in zip(found, packing.offsets, strict=True):
        start, size = evaluate(offset, values), evaluate(block.size, values)
        assert start % ALIGNMENT_BYTES == 0
        assert start + size <= total
        spans.append((start, start + size, block))
    for i, (start, stop, block) in enumerate(spans):
        for other_start, other_stop, other in spans[:i]:
            if block.conflicts(other):
                assert stop <= other_start or other_stop <= start or start == stop or other_start == other_stop


@settings(deadline=None, max_examples=60)
@given(blocks(SIZES), symbols)
def test_blocks_in_use_together_never_overlap(found: list[MemoryBlock], values: dict[str, int]) -> None:
    assert bound_sizes([b.size for b in found]) is not None
    _check(found, values)


@settings(deadline=None, max_examples=30)
@given(blocks({**SIZES, **UNBOUNDED}), symbols)
def test_nor_when_sizes_have_no_common_unit(found: list[MemoryBlock], values: dict[str, int]) -> None:
    _check(found, values)


def test_constant_sizes_are_packed_tightly() -> None:
    found = [MemoryBlock(640, 0, 1), MemoryBlock(64, 1, 2), MemoryBlock(576, 2, 3), MemoryBlock(64, 3, 4)]
    assert pack(found).size == 704


def test_sizes_with_a_common_factor_are_packed_in_units_of_it() -> None:
    found = [MemoryBlock(as_dim(B * 640), 0, 1), MemoryBlock(as_dim(B * 64), 1, 2), MemoryBlock(as_dim(B * 576), 2, 3)]
    assert dim_text(pack(found).size) == "batch * 704"


def test_small_counts_of_a_large_symbol_are_not_rounded_up_each() -> None:
    found = [MemoryBlock(as_dim(B * 4), 0, 1), MemoryBlock(as_dim(B * 8), 1, 2)]
    assert evaluate(pack(found).size, {"batch": 16000}) == 12 * 16000


def test_feature_maps_of_different_sizes_share_memory() -> None:
    sizes = [SIZES[k](64) for k in ("picture", "half", "quarter", "half", "picture")]
    found = [MemoryBlock(s, i, i + 1) for i, s in enumerate(sizes)]
    packing = pack(found)
    values = {"batch": 1, "h": 64, "w": 64}
    assert evaluate(packing.size, values) <= 1.3 * 64 * 64 * 64 * 1.25


def test_sizes_that_may_shrink_have_no_bound() -> None:
    assert bound_sizes([UNBOUNDED["odd"](4)]) is None
    assert bound_sizes([as_dim((H - W) * 4)]) is None


CHAIN = """
    graph main(%x: float32[batch, 8]) -> (%y) {
      const %axis: int64[1] = [1]
      const %flat: int64[1] = [-1]
      %a: float32[batch, 8] = Exp(%x)
      %s: float32[batch, 1] = ReduceSum(%a, %axis)
      %b: float32[batch, 8] = Div(%a, %s)
      %t: float32[8, batch] = Transpose(%b) {perm=(1, 0)}
      %m: float32[8, 1] = ReduceMax(%t, %axis)
      %d: float32[8, batch] = Sub(%t, %m)
      %y: float32[8*batch] = Reshape(%d, %flat)
    }
    """


def _planned(in_place: bool = True) -> tuple[Graph, Graph, MemoryPlan]:
    before = graph(CHAIN)
    after = run_passes(before, Fuse(), SeparateOutputs())
    return before, after, plan_memory(after, in_place=in_place)


def run_in_memory(
    planned: Graph, plan: MemoryPlan, inputs: dict[str, np.ndarray], sizes: dict[str, int]
) -> list[np.ndarray]:
    """Run the groups one by one, with every buffer where the plan puts it; outputs and arena start as garbage. The plan is proved."""
    Planned.of(planned, plan).verify()
    memory = _garbage(plan, sizes)
    strides = find_strides(planned)

    def view(value: Value, place: Placement) -> np.ndarray:
        start, size = evaluate(place.offset, sizes), evaluate(place.size, sizes)
        chunk = memory[place.storage, place.index][start : start + size].view(value.dtype.numpy)
        assert chunk.nbytes == size
        shape = [evaluate(d, sizes) for d in value.shape]
        if value not in strides:
            return chunk.reshape(shape)
        return as_strided(chunk, shape, [evaluate(s, sizes) * chunk.itemsize for s in strides[value]])

    def read(value: Value) -> np.ndarray:
        place = plan.buffers[value]
        if place.storage is Storage.WEIGHT:
            return planned.constants[value]
        if place.storage is Storage.INPUT:
            return inputs[planned.inputs[place.index].name].reshape([evaluate(d, sizes) for d in value.shape])
        return view(value, place)

    for node in planned.nodes:
        if runs_no_kernel(node):
            continue
        (body,) = node.subgraphs
        arguments = {inner.name: read(v) for inner, v in zip(body.inputs, node.operands, strict=True)}
        found = run_graph(body, arguments, sizes)
        for value, array in zip(node.results, found, strict=True):
            view(value, plan.buffers[value])[...] = array
    return [read(v).copy() for v in planned.outputs]


def _garbage(plan: MemoryPlan, sizes: dict[str, int]) -> dict[tuple[Storage, int], np.ndarray]:
    """The arena and the outputs."""
    memory: dict[tuple[Storage, int], np.ndarray] = {}
    for place in plan.buffers.values():
        if place.storage is Storage.OUTPUT:
            end, own = evaluate(place.offset + place.size, sizes), memory.get((Storage.OUTPUT, place.index))
            if own is None or own.size < end:
                memory[Storage.OUTPUT, place.index] = np.full(end, 0xAB, np.uint8)
    memory[Storage.ARENA, 0] = np.full(evaluate(plan.arena_size, sizes), 0xAB, np.uint8)
    return memory


@pytest.mark.parametrize("in_place", [True, False])
def test_running_in_planned_memory_gives_the_same(in_place: bool) -> None:
    before, after, plan = _planned(in_place)
    inputs = feeds(before)
    (found,) = run_in_memory(after, plan, inputs, {"batch": 2})
    np.testing.assert_allclose(found, run_graph(before, inputs)[0], rtol=1e-6)


def test_outputs_are_written_in_place_through_views() -> None:
    _, _, plan = _planned()
    by_name = {v.name: p for v, p in plan.buffers.items()}
    assert by_name["d"].storage is Storage.OUTPUT
    assert by_name["y"].storage is Storage.OUTPUT
    assert by_name["x"] == Placement(Storage.INPUT, as_dim(B * 32))


def test_an_elementwise_group_writes_over_what_it_alone_still_reads() -> None:
    before = graph(
        """
        graph main(%x: float32[batch, 100]) -> (%y) {
          const %axis: int64[1] = [1]
          %a: float32[batch, 100] = Exp(%x)
          %s: float32[batch, 1] = ReduceSum(%a, %axis)
          %b: float32[batch, 100] = Div(%a, %s)
          %m: float32[batch, 1] = ReduceMax(%b, %axis)
          %y: float32[batch, 100] = Sub(%b, %m)
        }
        """
    )
    after = run_passes(before, Fuse(), SeparateOutputs())
    plan, apart = plan_memory(after), plan_memory(after, in_place=False)
    by_name = {v.name: p for v, p in plan.buffers.items()}
    assert by_name["a"] == by_name["b"]
    assert evaluate(plan.arena_size, {"batch": 100}) < 0.6 * evaluate(apart.arena_size, {"batch": 100})
    inputs = feeds(before)
    np.testing.assert_allclose(run_in_memory(after, plan, inputs, {"batch": 2})[0], run_graph(before, inputs)[0])


def test_a_transposed_read_is_never_written_over() -> None:
    before = graph(
        """
        graph main(%x: float32[4, 4]) -> (%y) {
          const %axis: int64[1] = [1]
          %a: float32[4, 4] = Exp(%x)
          %m: float32[4, 1] = ReduceMax(%a, %axis)
          %t: float32[4, 4] = Transpose(%a) {perm=(1, 0)}
          %s: float32[4, 4] = Sub(%t, %m)
          %n: float32[4, 1] = ReduceMax(%s, %axis)
          %y: float32[4, 4] = Sub(%s, %n)
        }
        """
    )
    after = run_passes(before, Fuse(), SeparateOutputs())
    plan = plan_memory(after)
    by_name = {v.name: p for v, p in plan.buffers.items()}
    assert by_name["a"].offset != by_name["s"].offset
    inputs = feeds(before)
    np.testing.assert_allclose(run_in_memory(after, plan, inputs, {})[0], run_graph(before, inputs)[0], rtol=1e-6)


def test_both_branches_write_straight_into_the_output() -> None:
    before = graph(
        """
        graph main(%x: float32[4], %p: bool[]) -> (%y) {
          %y: float32[4] = If(%p) {
            then_branch=graph a() -> (%a) { %a: float32[4] = Neg(%x) },
            else_branch=graph b() -> (%b) { %b: float32[4] = Exp(%x) }
          } "choice"
        }
        """
    )
    plan = plan_memory(run_passes(before, Fuse()))
    places = {v.name: p for v, p in plan.buffers.items()}
    assert places["a"] == places["b"] == places["y"] == Placement(Storage.OUTPUT, 16)
    assert plan.arena_size == 0
    assert plan.slots == 0


def test_loops_that_were_not_lowered_are_refused_by_name() -> None:
    before = graph(
        """
        graph main(%x: float32[4], %n: int64[], %p: bool[]) -> (%y) {
          %y: float32[4] = Loop(%n, %p, %x) {
            body=graph b(%i: int64[], %c: bool[], %a: float32[4]) -> (%c, %z) { %z: float32[4] = Neg(%a) }
          } "again"
        }
        """
    )
    with pytest.raises(IngotError, match=r"Loop cannot be placed .* 'again \(Loop\)'"):
        plan_memory(run_passes(before, Fuse()))


def test_large_blocks_start_at_whole_pages() -> None:
    large, larger, small = (
        MemoryBlock(PAGED + 1, 0, 1),
        MemoryBlock(PAGED + BYTES_OF_PAGE + 1, 1, 2),
        MemoryBlock(100, 0, 2),
    )
    packing = pack([small, large, larger])
    assert [as_dim(offset) for offset in packing.offsets] == [
        2 * PAGED + 3 * BYTES_OF_PAGE,
        PAGED + 2 * BYTES_OF_PAGE,
        0,
    ]
    assert packing.size == 2 * PAGED + 3 * BYTES_OF_PAGE + 2 * ALIGNMENT_BYTES
