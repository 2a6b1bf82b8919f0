"""Transposes in squares: sides that fit short axes, overlapping squares instead of gathered tails."""

from __future__ import annotations

import pytest

from compiler_service.compiler.loop_ir import passes
from compiler_service.compiler.loop_ir.ir import Ramp, expressions_of, walk_statements
from compiler_service.compiler.schedule.default import default_schedule
from compiler_service.compiler.schedule.language.steps import ComputeAt, Overlap, Parallel, Unroll, Vectorize
from compiler_service.compiler.schedule.lower import lower
from compiler_service.compiler.tensor_expr.kernel.coalesce import coalesce
from compiler_service.compiler.tensor_expr.operators.matmul import einsum
from compiler_service.compiler.tensor_expr.tensor import Tensor, compute, placeholder
from shared_ir.dtype import DType
from shared_ir.expr import Const, walk
from shared_ir.expr.dim import Dim, symbol
from tests.compiler_service.compiler.schedule.kernels import AVX512, ONE_QUICK_TARGET, TARGETS, check

F32 = DType.FLOAT32


def transposed(images: Dim, rows: Dim, columns: Dim, *, plus: bool = False) -> Tensor:
    x = placeholder("x", (images, rows, columns), F32)
    y = placeholder("y", (images, columns, rows), F32)
    return compute(
        (images, columns, rows), lambda b, i, j: x[b, j, i] + y[b, i, j] if plus else x[b, j, i], name="transpose"
    )


SIZES = [(1, 16, 16), (3, 28, 96), (2, 14, 40), (1, 7, 70), (2, 9, 5), (1, 33, 17), (1, 3, 50), (5, 4, 4), (1, 200, 31)]


@pytest.mark.parametrize("target", ONE_QUICK_TARGET)
@pytest.mark.parametrize("plus", [False, True])
@pytest.mark.parametrize("sizes", SIZES)
def test_transposes_of_known_sizes(sizes: tuple[int, int, int], plus: bool, target: str) -> None:
    check(transposed(*sizes, plus=plus), {}, TARGETS[target], frozenset(), after_passes=True)


@pytest.mark.parametrize("target", ONE_QUICK_TARGET)
def test_transposes_of_any_size(target: str) -> None:
    output = transposed(1, symbol("m"), symbol("n"))
    for m, n in [(1, 1), (16, 40), (19, 21)]:
        check(output, {"m": m, "n": n}, TARGETS[target], frozenset(), after_passes=True)


@pytest.mark.parametrize(("rows", "columns", "side"), [(28, 96, 16), (14, 192, 8), (1536, 7, 4)])
def test_nothing_is_gathered(rows: int, columns: int, side: int) -> None:
    output = transposed(2, rows, columns)
    schedule = default_schedule(output, frozenset(), AVX512)
    assert any(isinstance(s, Overlap) for s in schedule)
    assert any(isinstance(s, Vectorize) for s in schedule)
    (x,) = output.producers
    function = passes.run(lower("t", output, [x], [], schedule, AVX512))
    ramps = [e for s in walk_statements(function.body) for own in expressions_of(s) for e in walk(own)]
    vectors = [e for e in ramps if isinstance(e, Ramp)]
    assert vectors
    assert all(e.stride == Const(1) and e.lanes == side for e in vectors)


def test_what_may_stand_in_its_operand_is_computed_once() -> None:
    schedule = default_schedule(transposed(1, 28, 96, plus=True), frozenset(), AVX512)
    assert not any(isinstance(s, Overlap) for s in schedule)


def test_rows_that_are_cut_into_tasks_have_a_tail() -> None:
    """Tiles of a task cannot overlap those of the next."""
    x = placeholder("x", (700, 196), F32)
    output = compute((196, 700), lambda i, j: x[j, i], name="transpose")
    schedule = default_schedule(output, frozenset(), AVX512)
    assert any(isinstance(s, Parallel) for s in schedule)
    check(output, {}, AVX512, frozenset(), after_passes=True)


@pytest.mark.sampled
@pytest.mark.parametrize("target", ONE_QUICK_TARGET)
@pytest.mark.parametrize(("columns", "depth"), [(48, 32), (40, 24), (37, 16), (64, 12), (130, 7)])
def test_weights_of_the_run_are_turned_in_squares(columns: int, depth: int, target: str) -> None:
    x, w = placeholder("x", (2, 9, depth), F32), placeholder("w", (2, columns, depth), F32)
    output, _ = coalesce(einsum(x, w, equation="bmk,bnk->bmn"))
    schedule = default_schedule(output, frozenset(), TARGETS[target])
    copies = {s.stage for s in schedule if isinstance(s, ComputeAt)}
    unrolled = {s.stage for s in schedule if isinstance(s, Unroll)}
    assert "w.local" in copies
    assert ("w.local" in unrolled) == (depth % 4 == 0 and columns > 16)
    for after_passes in (False, True):
        check(output, {}, TARGETS[target], frozenset(), after_passes=after_passes)
