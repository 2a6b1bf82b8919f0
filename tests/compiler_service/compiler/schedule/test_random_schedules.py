"""Any legal schedule computes the same as the expression; a step that does not fit is refused with a sentence."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler_service.compiler.schedule.language.apply import apply_schedule
from compiler_service.compiler.schedule.language.schedule import Schedule, Step
from compiler_service.compiler.schedule.language.steps import (
    ROOT,
    CacheWrite,
    ComputeAt,
    Inline,
    Pack,
    Parallel,
    Reorder,
    Split,
    Unroll,
    Vectorize,
)
from compiler_service.compiler.schedule.records import from_json, to_json, to_text
from compiler_service.compiler.tensor_expr.meaning.evaluate import evaluate
from compiler_service.compiler.tensor_expr.tensor import Tensor, compute, placeholder
from shared_ir.dtype import DType
from shared_ir.errors import ErrorCode, IngotError
from tests.compiler_service.compiler.schedule.kernels import AVX2, AVX512, NEON, arguments_of, interpreted, random_feeds
from tests.compiler_service.compiler.schedule.test_default_schedules import broadcast_add, matmul


@st.composite
def loops_of(draw: st.DrawFn, stage: str, axes: tuple[str, ...], reduced: tuple[str, ...] = ()) -> list[Step]:
    """Random splits and a random order of a stage; constant inner loops may be unrolled, one may be a vector."""
    steps: list[Step] = []
    loops: list[tuple[str, int]] = []
    for axis in (*axes, *reduced):
        sizes = draw(st.lists(st.sampled_from([2, 3, 4, 6, 8, 16]), max_size=2, unique=True))
        for size in sorted(sizes, reverse=True):
            steps.append(Split(stage, axis, size))
            loops.append((axis, size))
        loops.append((axis, 1))
    order: list[tuple[str, int]] = []
    pending = {a: [s for b, s in loops if a == b] for a, _ in loops}
    while pending:
        axis = draw(st.sampled_from(sorted(pending)))
        order.append((axis, pending[axis].pop(0)))
        if not pending[axis]:
            del pending[axis]
    names = [a if s == 1 else f"{a}.{s}" for a, s in order]
    steps.append(Reorder(stage, tuple(names)))
    if order[-1][1] == 1 and order[-1][0] not in reduced and (order[-1][0], 16) in loops and draw(st.booleans()):
        steps.append(Vectorize(stage, names[-1]))
    if not reduced and draw(st.booleans()):
        steps.append(Parallel(stage, (names[0],)))
    return steps


def same(output: Tensor, schedule: Schedule, symbols: dict[str, int], target: str) -> None:
    chosen = {"avx512": AVX512, "avx2": AVX2, "neon": NEON}[target]
    feeds = random_feeds(output, symbols)
    (wanted,) = evaluate([output], feeds, symbols)
    for after_passes in (False, True):
        got = interpreted(output, feeds, symbols, chosen, schedule, after_passes=after_passes)
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_any_order_of_loops_of_an_elementwise_kernel(data: st.DataObject) -> None:
    extents = data.draw(st.tuples(st.integers(1, 4), st.integers(1, 20)))
    steps = data.draw(loops_of("add", ("i0", "i1", "i2")))
    same(broadcast_add(*extents), tuple(steps), {}, data.draw(st.sampled_from(["avx512", "avx2", "neon"])))


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(st.data())
def test_any_order_of_loops_of_a_reduction(data: st.DataObject) -> None:
    m, n, k = (data.draw(st.integers(1, 19)) for _ in range(3))
    output = matmul(m, n, k)
    outer = data.draw(loops_of("relu", ("m", "n")))
    order = next(s for s in outer if isinstance(s, Reorder))
    inner = data.draw(loops_of("matmul", ("m", "n"), ("k",)))
    vectors = {s.loop for s in outer if isinstance(s, Vectorize)}
    at = data.draw(st.sampled_from([n for n in order.loops if n not in vectors]))
    same(
        output,
        (*outer, *inner, ComputeAt("matmul", "relu", at, "scratch")),
        {},
        data.draw(st.sampled_from(["avx512", "neon"])),
    )


def test_the_last_element_of_a_tile_may_lie_behind_the_limit() -> None:
    """The only column is computed for 16 lanes, by threes: the sixteenth is a piece of its own, and not wanted."""
    schedule: Schedule = (
        Split("relu", "n", 16),
        Reorder("relu", ("m", "n.16", "n")),
        Vectorize("relu", "n"),
        Split("matmul", "n", 3),
        Reorder("matmul", ("k", "m", "n.3", "n")),
        ComputeAt("matmul", "relu", "n.16", "scratch"),
    )
    same(matmul(1, 1, 1), schedule, {}, "avx512")


def test_the_last_vector_may_begin_anywhere() -> None:
    """16 elements by vectors of three: the last one reads two elements behind the tile, and the tile after it begins at 16."""
    schedule: Schedule = (
        Split("relu", "m", 16),
        Split("relu", "m", 3),
        Reorder("relu", ("n", "m.16", "m.3", "m")),
        Vectorize("relu", "m"),
        ComputeAt("matmul", "relu", "n", "scratch"),
    )
    same(matmul(17, 1, 1), schedule, {}, "avx512")


@pytest.mark.parametrize("step", [1, 2, 3])
@pytest.mark.parametrize("extent", [1, 15, 16, 17, 33])
@pytest.mark.parametrize("at", [ROOT, "i.16"])
def test_a_producer_stops_where_a_masked_vector_does(at: str, extent: int, step: int) -> None:
    """The last vector reads ``p[step * i]`` and ``p[step * i + 3]`` in part only: no element of ``p`` behind that is computed."""
    x = placeholder("x", (step * extent + 3,), DType.FLOAT32)
    p = compute(x.shape, lambda j: x[j] * 2.0, name="p", axes=["j"])
    out = compute((extent,), lambda i: p[step * i] + p[step * i + 3], name="out", axes=["i"])
    schedule: Schedule = (Split("out", "i", 16), Vectorize("out", "i"), ComputeAt("p", "out", at, "scratch"))
    for target in ("avx512", "avx2"):
        same(out, schedule, {}, target)


REFUSED: dict[str, tuple[Callable[[], Schedule], str]] = {
    "unknown stage": (lambda: (Split("nothing", "m", 4),), "no such stage"),
    "unknown loop": (lambda: (Unroll("relu", "q"),), "has no loop q"),
    "factor of one": (lambda: (Split("relu", "m", 1),), "cannot split relu.m by 1"),
    "factor of a tile that there is": (
        lambda: (Split("relu", "m", 4), Split("relu", "m", 4)),
        "cannot split relu.m by 4",
    ),
    "order without a loop": (lambda: (Reorder("relu", ("m",)),), "must name every loop once"),
    "inner tile outside": (
        lambda: (Split("relu", "m", 4), Reorder("relu", ("m", "m.4", "n"))),
        "loop m.4 must stay outside m",
    ),
    "parallel inside": (lambda: (Parallel("relu", ("n",)),), "must be the outermost"),
    "parallel producer": (lambda: (Parallel("matmul", ("m",)),), "only the output stage"),
    "computed inside a vector": (
        lambda: (Split("relu", "n", 4), Vectorize("relu", "n"), ComputeAt("matmul", "relu", "n")),
        "cannot be computed inside the vector loop of relu",
    ),
    "inlined reduction": (lambda: (Inline("matmul"),), "only a stage without reduction"),
    "cache_write of a producer": (lambda: (CacheWrite("matmul"),), "cache_write takes the output stage"),
    "pack of a stage": (lambda: (Pack("relu", ((0, 1, 0),)),), "no such argument"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_step_that_does_not_fit_is_refused(case: str) -> None:
    make, sentence = REFUSED[case]
    with pytest.raises(IngotError, match=sentence) as caught:
        apply_schedule(matmul(8, 8, 8), make())
    assert caught.value.code is ErrorCode.INVALID_ARGUMENT


def test_a_schedule_survives_json() -> None:
    schedule: Schedule = (
        Split("relu", "n", 16),
        Reorder("relu", ("m", "n.16", "n")),
        Vectorize("relu", "n"),
        ComputeAt("matmul", "relu", "n.16"),
        Pack("b", ((1, 16, 0), (0, 1, 0), (1, 1, 16))),
    )
    assert from_json(to_json(schedule)) == schedule
    assert to_text(schedule).splitlines()[0] == "split('relu', 'n', 16)"
    with pytest.raises(IngotError, match="not a schedule step"):
        from_json([{"step": "explode"}])


def test_arguments_come_in_order_of_first_use() -> None:
    assert [t.name for t in arguments_of(matmul(2, 2, 2))] == ["a", "b", "bias"]
