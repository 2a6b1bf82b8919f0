"""Work is estimated from what is computed; small kernels are one task."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from compiler_service.compiler.schedule.default import default_schedule
from compiler_service.compiler.schedule.language.apply import apply_schedule
from compiler_service.compiler.schedule.language.knobs import Knobs
from compiler_service.compiler.schedule.language.state import LoopKind
from compiler_service.compiler.schedule.language.steps import Pack, Parallel
from compiler_service.compiler.schedule.model.analysis import KernelView
from compiler_service.compiler.schedule.model.tasks import (
    LEAST_CYCLES_OF_TASK,
    LEAST_SHARED_BYTES,
    alone_cycles,
    arithmetic_cycles,
    body_cycles,
    task_loops,
)
from compiler_service.compiler.tensor_expr.kernel.coalesce import coalesce
from compiler_service.compiler.tensor_expr.tensor import Axis, ReduceOp, Tensor, compute, placeholder, reduce
from shared_ir.dtype import DType
from shared_ir.expr import Expr, Unary, UnaryOp, lift, logical_and, select
from shared_ir.expr.dim import Dim, symbol
from tests.compiler_service.compiler.schedule.kernels import AVX512

F32 = DType.FLOAT32
n = symbol("n")


@pytest.mark.parametrize(
    ("extents", "cycles", "parallel", "serial"),
    [
        ((10, 10), 1.0, (), ("a", "b")),
        ((8, 10), LEAST_CYCLES_OF_TASK, ("a",), ("b",)),
        ((2, 100), LEAST_CYCLES_OF_TASK, ("a", "b.25"), ("b",)),
        ((100,), LEAST_CYCLES_OF_TASK / 10, ("a.13",), ("a",)),
        ((3, 100), LEAST_CYCLES_OF_TASK / 100, ("a.2",), ("a", "b")),
        ((n, 10), 1.0, (f"a.{LEAST_CYCLES_OF_TASK // 10}",), ("a", "b")),
        ((n, 8), LEAST_CYCLES_OF_TASK, ("a", "b"), ()),
        ((4, n), LEAST_CYCLES_OF_TASK / 600, ("a.2",), ("a", "b")),
    ],
)
def test_task_loops(
    extents: tuple[Dim, ...], cycles: float, parallel: tuple[str, ...], serial: tuple[str, ...]
) -> None:
    axes = [Axis(name, extent) for name, extent in zip("ab", extents, strict=False)]
    loops = task_loops("s", axes, cycles, AVX512, Knobs())
    assert loops.parallel == parallel
    assert loops.serial == serial


def test_tasks_may_be_asked_for() -> None:
    """Of 10 x 10 places, each worth a task: one, or some for each of two cores, and never more than there are places."""
    knobs, axes = Knobs(), [Axis(name, 10) for name in "ab"]
    task_loops("s", axes, LEAST_CYCLES_OF_TASK, AVX512, knobs)
    assert knobs.asked["tasks"].options == (1, 2, 4, 6, 8, 12, 16, 24, 32, 64)
    one = task_loops("s", axes, LEAST_CYCLES_OF_TASK, AVX512, Knobs({"tasks": 1}))
    assert (one.parallel, one.serial) == ((), ("a", "b"))
    many = task_loops("s", axes, LEAST_CYCLES_OF_TASK, AVX512, Knobs({"tasks": 64}))
    assert many.parallel == ("a", "b.2")
    longer = task_loops("s", [Axis("a", n)], 1.0, AVX512, Knobs({"cycles of a task": 4 * LEAST_CYCLES_OF_TASK}))
    assert longer.parallel == (f"a.{4 * LEAST_CYCLES_OF_TASK}",)


def test_functions_cost_more_than_sums_and_indices_nothing() -> None:
    x = placeholder("x", (100,), F32)
    i = Axis("i", 100).var
    plain = x[i] + x[(i * 7 + 3) % 100]
    assert arithmetic_cycles(plain, 16) == arithmetic_cycles(x[i] + 1.0, 16)
    assert arithmetic_cycles(Unary(UnaryOp.EXP, x[i]), 16) > 5 * arithmetic_cycles(plain, 16)
    assert body_cycles(x[i], 16) == pytest.approx(4 / 32)


def test_much_data_that_other_cores_made_is_worth_a_launch_sooner() -> None:
    alone, two = replace(AVX512, cores=1), replace(AVX512, cores=2)
    slow = replace(two, memory_bytes=4)
    many, few = LEAST_SHARED_BYTES // 4, LEAST_SHARED_BYTES // 4 - 1
    assert alone_cycles(4, 4, many, alone) == 0
    assert alone_cycles(4, 4, few, two) == 0
    assert 0 < alone_cycles(4, 4, many, two) < alone_cycles(4, 4, many, slow)


def depthwise(h: Dim, w: Dim, c: int, kernel: int = 3) -> Tensor:
    x, weight = placeholder("x", (h, w, c), F32), placeholder("w", (c, kernel, kernel), F32)
    pad = kernel // 2

    def padded(i: Expr, j: Expr, ch: Expr) -> Expr:
        inside = logical_and(logical_and(i >= pad, i < pad + h), logical_and(j >= pad, j < pad + w))
        return select(inside, x[i - pad, j - pad, ch], lift(0.0, F32))

    source = compute((h + 2 * pad, w + 2 * pad, c), padded, name="pad")
    return reduce(
        ReduceOp.SUM,
        (h, w, c),
        (kernel, kernel),
        lambda i, j, ch, kh, kw: source[i + kh, j + kw, ch] * weight[ch, kh, kw],
        name="conv",
        axes=("oh", "ow", "c"),
        reduced=("kh", "kw"),
    )


def tasks(output: Tensor) -> int:
    state = apply_schedule(output, default_schedule(output, frozenset(), AVX512))
    found = [o for o in state.output.loops if o.kind is LoopKind.PARALLEL]
    extents = {a.name: a.extent for a in state.output.compute.axes}
    return math.prod(-(-int(str(extents[o.axis])) // o.step) for o in found)


def test_a_small_depthwise_convolution_is_one_task() -> None:
    assert tasks(depthwise(7, 7, 96)) == 1
    assert 2 <= tasks(depthwise(112, 112, 64)) <= 8


def test_a_window_tile_reuses_columns() -> None:
    output = depthwise(28, 28, 64)
    state = KernelView.of(output, frozenset()).after(default_schedule(output, frozenset(), AVX512))
    unrolled = {o.axis for s in state.stages.values() for o in s.loops if o.kind is LoopKind.UNROLLED}
    assert {"ow", "kw"} <= unrolled


def test_tasks_of_a_large_window_are_as_few_as_there_are_cores() -> None:
    """Each would read again the lines that its window shares with the next task's."""
    assert tasks(depthwise(14, 14, 960, 5)) == AVX512.cores
    assert tasks(depthwise(112, 112, 256, 3)) > AVX512.cores


def test_weights_of_a_depthwise_tile_lie_together() -> None:
    output, placeholders = coalesce(depthwise(14, 14, 96, 5))
    constants = frozenset(new for old, new in placeholders.items() if old.name == "w")
    (pack,) = (s for s in default_schedule(output, constants, AVX512) if isinstance(s, Pack))
    (axis, tile, _), *_, last = pack.order
    assert axis == 0
    assert last == (0, 1, tile)


def test_rows_of_a_strided_product_share_weights() -> None:
    """Tasks are not lines of the image, each of which would read all weights."""
    x, w = placeholder("x", (14, 14, 256), F32), placeholder("w", (512, 256), F32)
    output = reduce(
        ReduceOp.SUM,
        (7, 7, 512),
        (256,),
        lambda i, j, oc, ic: x[i * 2, j * 2, ic] * w[oc, ic],
        name="conv",
        axes=("oh", "ow", "oc"),
        reduced=("ic",),
    )
    (parallel,) = (s for s in default_schedule(output, frozenset({w}), AVX512) if isinstance(s, Parallel))
    assert "oh" not in parallel.loops
