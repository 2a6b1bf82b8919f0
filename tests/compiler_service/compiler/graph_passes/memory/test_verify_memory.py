"""The proof of memory plans: what is planned holds, and every way to spoil it is found and named."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from compiler_service.compiler.graph_passes.fusion.fuse import Fuse
from compiler_service.compiler.graph_passes.memory.lifetimes import Home, Survey
from compiler_service.compiler.graph_passes.memory.pad_rows import PadRows
from compiler_service.compiler.graph_passes.memory.place_parts import PlaceParts
from compiler_service.compiler.graph_passes.memory.plan_memory import Placement, plan_memory
from compiler_service.compiler.graph_passes.memory.separate_outputs import SeparateOutputs
from compiler_service.compiler.graph_passes.normal_form.fold_shapes import FoldShapes
from compiler_service.compiler.graph_passes.normal_form.lower_loops import LowerLoops
from compiler_service.compiler.graph_passes.rewriting.pass_manager import Pass
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.expr import Var
from shared_ir.expr.dim import as_dim
from shared_ir.graph.ir import Graph, Value
from shared_ir.plan.program import Branch, Copy, Launch, Repeat, Reserve, Step, Storage, Swap
from tests.compiler_service.compiler.graph_passes.memory.memory_plans import Planned
from tests.compiler_service.compiler.graph_passes.pass_graphs import graph, run_passes

N = Var("n")


def planned(text: str, *more: Pass) -> Planned:
    return Planned.of(run_passes(graph(text), LowerLoops(), FoldShapes(), Fuse(merge=False), SeparateOutputs(), *more))


def refused(found: Planned, message: str) -> None:
    with pytest.raises(IngotError, match=message) as error:
        found.verify()
    assert error.value.code is ErrorCode.COMPILER_FAULT


CHAIN = """
    graph main(%x: float32[n, 8]) -> (%y) {
      %a: float32[n, 8] = Exp(%x)
      %b: float32[n, 8] = Neg(%a)
      %t: float32[8, n] = Transpose(%a) {perm=(1, 0)}
      %u: float32[n, 8] = Transpose(%t) {perm=(1, 0)}
      %c: float32[n, 8] = Add(%b, %u)
      %y: float32[n, 8] = Add(%c, %x)
    }
    """
LOOP = """
    graph main(%x: float32[4], %n: int64[], %p: bool[]) -> (%y, %z, %s) {
      %w: float32[4] = Exp(%x)
      %y: float32[4], %z: float32[4], %s: float32[k, 4] = Loop(%n, %p, %x, %w) {
        body=graph b(%i: int64[], %c: bool[], %a: float32[4], %b: float32[4]) -> (%c, %a2, %b2, %r) {
          %a2: float32[4] = Add(%a, %b)
          %b2: float32[4] = Mul(%a2, %w)
          %r: float32[4] = Neg(%b2)
        }
      } "again"
    }
    """
BRANCH = """
    graph main(%x: float32[4], %p: bool[]) -> (%y) {
      %w: float32[4] = Exp(%x)
      %o: float32[4] = If(%p) {
        then_branch=graph a() -> (%a) { %a: float32[4] = Neg(%w) },
        else_branch=graph b() -> (%b) { %h: float32[4] = Exp(%x) %b: float32[4] = Abs(%h) }
      } "choice"
      %y: float32[4] = Add(%o, %w)
    }
    """
PARTS = """
    graph main(%x: float32[2, 32], %z: float32[2, 64]) -> (%y) {
      %a: float32[2, 32] = Exp(%x)
      %b: float32[2, 32] = Neg(%x)
      %c: float32[2, 64] = Concat(%a, %b) {axis=1}
      %y: float32[2, 64] = Add(%c, %z)
    }
    """


@pytest.mark.parametrize("text", [CHAIN, LOOP, BRANCH, PARTS])
def test_what_is_planned_holds(text: str) -> None:
    planned(text).verify()
    planned(text, PlaceParts()).verify()


def test_a_value_written_over_before_its_last_reader() -> None:
    found = planned(CHAIN)
    refused(found.moved(b=found.place("a")), r"the kernel of %t.* needs %a: .* but it was written over by %b")


def test_sizes_that_overlap_for_some_inputs_only() -> None:
    found = planned(CHAIN)
    near, *apart = (Placement(Storage.ARENA, as_dim(N * 32), i << 20) for i in range(4))
    others = dict(zip("tuc", apart, strict=True))
    far = replace(near, offset=4096)
    refused(found.moved(a=near, b=far, **others), r"reads %a: .* in memory that it writes")
    found.moved(a=near, b=replace(near, offset=as_dim(N * 32)), **others).verify()


def test_memory_behind_the_end_of_the_arena() -> None:
    found = planned(CHAIN)
    refused(Planned.of(found.graph, replace(found.memory, arena_size=as_dim(N * 32))), r"writes %\w.* behind the end")


def test_sizes_below_none() -> None:
    found = planned(CHAIN)
    moved = {n: replace(found.place(n), size=as_dim(N * 32 - 64), offset=i << 20) for i, n in enumerate("abtuc")}
    refused(found.moved(**moved), "may be fewer than none")


def test_rows_with_gaps_take_nothing_where_there_are_none() -> None:
    """One byte lives beside rows with gaps, in an arena whose sizes have no common unit."""
    text = """
    graph main(%x: float32[n, 4], %h: float32[n, 4, k], %v: float32[4, 16], %w: float32[16, 4], %p: int64[]) -> (%y, %z, %u) {
      const %two: int64[] = [2]
      %q: bool[] = Equal(%p, %two)
      %a: float32[n, 16] = MatMul(%x, %v)
      %y: float32[n, 4] = MatMul(%a, %w)
      %m: float32[n, 4, k - 1] = MaxPool(%h) {kernel_shape=(2,)}
      %u: float32[n, 4, k - 1] = Softmax(%m)
      %z: float32[n, 4] = Where(%q, %y, %x)
    }
    """
    found = planned(text, PadRows(way=1, sets=1, padding=24))
    assert found.place("q").storage is Storage.ARENA
    found.verify()


def test_a_result_over_an_operand_that_is_read_elsewhere_first() -> None:
    found = planned(CHAIN)
    refused(found.moved(u=found.place("t")), r"the kernel of %u.* reads %t.* in memory that it writes")


def test_a_result_that_overlaps_its_operand_in_part() -> None:
    found = planned(CHAIN)
    start = found.place("b")
    refused(found.moved(c=replace(start, offset=as_dim(start.offset + 64))), r"kernel of %c.* reads %[bu]: ")


def test_inputs_are_not_ours_to_write() -> None:
    found = planned(CHAIN)
    refused(found.moved(a=Placement(Storage.INPUT, as_dim(N * 32))), r"kernel of %a.* writes .* input 0")


def test_an_outer_value_written_over_in_a_loop_that_reads_it_again() -> None:
    found = planned(LOOP)
    outer = found.place("w")
    assert outer.storage is Storage.ARENA
    refused(found.moved(b2=outer), r"%w: .* written over by %b2")


def test_the_old_value_updated_in_place_though_it_is_handed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fault that this was written for: `a, b = b, a + b` gave 32, 32 for 8, 13."""
    text = LOOP.replace("(%c, %a2, %b2, %r)", "(%c, %b, %a2, %a)")
    found = planned(text)
    found.verify()

    def following(self: Survey, body: Graph, carried: Value, result: Value, *_: object) -> Value:
        self._claim(body, result, Home(carried))
        return carried

    monkeypatch.setattr(Survey, "_following", following)
    refused(planned(text), r"a copy needs %b: .* but it was written over by")


def test_a_row_in_the_place_of_another() -> None:
    found = planned(LOOP)
    ((counter, loop),) = found.memory.loops.items()
    rows = tuple(replace(r, offset=as_dim(Var(counter) * 8)) for r in loop.rows)
    buffers = dict(found.memory.buffers)
    (row,) = (v for v in buffers if v.name == "r")
    buffers[row] = replace(buffers[row], offset=rows[0].offset)
    spoilt = replace(found.memory, buffers=buffers, loops={counter: replace(loop, rows=rows)})
    refused(Planned.of(found.graph, spoilt), r"a row of again .* needs %r")


def test_an_arm_that_writes_over_what_is_read_behind_the_branch() -> None:
    found = planned(BRANCH)
    refused(found.moved(h=found.place("w")), r"the kernel of %y.* needs %w.* written over by %h")


def test_a_branch_that_leaves_its_result_elsewhere() -> None:
    found = planned(BRANCH)
    (branch,) = (s for s in found.program.steps if isinstance(s, Branch))
    steps = [replace(s, then=()) if s is branch else s for s in found.program.steps]
    refused(found.stepping(steps), r"%o.* of choice.* needs %a.* but it is not there")


def test_parts_out_of_place() -> None:
    found = planned(PARTS, PlaceParts())
    part = found.place("b")
    assert part.storage is found.place("c").storage
    refused(found.moved(b=replace(part, offset=as_dim(part.offset + 64))), r"%b: .*, of %c")


def test_parts_written_over_as_a_whole() -> None:
    text = PARTS.replace(
        "%y: float32[2, 64] = Add(%c, %z)", "%k: float32[2, 64] = Exp(%z) %y: float32[2, 64] = Add(%c, %k)"
    )
    found = planned(text, PlaceParts())
    refused(found.moved(k=replace(found.place("c"), size=512)), r"the kernel of %y.* needs %[ab].* written over by %k")


def _changed(steps: Sequence[Step], change: Callable[[Step], tuple[Step, ...]]) -> tuple[Step, ...]:
    return tuple(
        new
        for step in steps
        for new in change(replace(step, body=_changed(step.body, change)) if isinstance(step, Repeat) else step)
    )


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (Swap, r"%\w+: .* of again .* in the next iteration needs"),
        (Copy, r"of again .* before the first iteration needs|in the next iteration needs"),
        (Launch, r"needs .* but it is not there"),
    ],
)
def test_steps_that_are_left_out(kind: type[Step], message: str) -> None:
    found = planned(LOOP)
    refused(found.stepping(_changed(found.program.steps, lambda s: () if isinstance(s, kind) else (s,))), message)


def test_rows_that_a_growing_slot_forgets() -> None:
    found = planned(LOOP)

    def forgets(step: Step) -> tuple[Step, ...]:
        return (replace(step, keep=False) if isinstance(step, Reserve) else step,)

    refused(
        found.stepping(_changed(found.program.steps, forgets)), r"%s: .* of again .* after the last iteration needs %s"
    )


def test_lifetimes_that_end_a_step_early(monkeypatch: pytest.MonkeyPatch) -> None:
    planning = sys.modules[plan_memory.__module__]
    survey = planning.survey

    def shortened(*arguments: object) -> Survey:
        found: Survey = survey(*arguments)
        found.spans.update({v: (a, max(a, b - 1)) for v, (a, b) in found.spans.items()})
        return found

    monkeypatch.setattr(planning, "survey", shortened)
    refused(planned(CHAIN), "written over by|in memory that it writes")
