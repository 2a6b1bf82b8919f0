"""Products whose columns leave half a vector over: two steps of the sums side by side."""

from __future__ import annotations

import numpy as np
import pytest

from compiler_service.compiler.codegen.toolchain.host import host_target
from compiler_service.compiler.schedule.algorithms.folded.rule import folded_schedule
from compiler_service.compiler.schedule.algorithms.folded.stages import Laid
from compiler_service.compiler.schedule.algorithms.folded.step import Fold
from compiler_service.compiler.schedule.default import default_schedule
from compiler_service.compiler.schedule.language.schedule import Schedule
from compiler_service.compiler.schedule.language.steps import Parallel
from compiler_service.compiler.schedule.lower import lower
from compiler_service.compiler.schedule.model.analysis import KernelView
from compiler_service.compiler.schedule.records import from_json, to_json
from compiler_service.compiler.tensor_expr.kernel.coalesce import coalesce
from compiler_service.compiler.tensor_expr.meaning.evaluate import evaluate
from compiler_service.compiler.tensor_expr.tensor import ReduceOp, Tensor, compute, placeholder, reduce
from shared_ir.dtype import DType
from shared_ir.errors import IngotError
from shared_ir.expr import maximum
from shared_ir.expr.dim import Dim, symbol
from tests.compiler_service.compiler.schedule.kernels import (
    AVX512,
    ONE_QUICK_TARGET,
    TARGETS,
    arguments_of,
    interpreted,
    native,
    random_feeds,
)

F32 = DType.FLOAT32


def product(
    rows: Dim, depth: int, columns: int, *, turned: bool = False, stride: int = 1
) -> tuple[Tensor, frozenset[Tensor]]:
    """``relu(x w + b)``; the weight is ``[n, k]``, or ``[k, n]`` where it is ``turned``."""
    x = placeholder("x", (rows * stride, depth), F32)
    w, b = placeholder("w", (depth, columns) if turned else (columns, depth), F32), placeholder("b", (columns,), F32)
    total = reduce(
        ReduceOp.SUM,
        (rows, columns),
        (depth,),
        lambda m, n, k: x[m * stride, k] * (w[k, n] if turned else w[n, k]),
        name="mm",
        axes="mn",
        reduced="k",
    )
    made = compute((rows, columns), lambda m, n: maximum(total[m, n] + b[n], 0.0), name="relu", axes="mn")
    output, placeholders = coalesce(made)
    return output, frozenset(new for old, new in placeholders.items() if old.name == "w")


def is_folded(schedule: Schedule) -> bool:
    return any(isinstance(step, Fold) for step in schedule)


HALVES = {"avx512": 24, "avx2": 12, "neon": 6}


@pytest.mark.parametrize("after_passes", [False, True])
@pytest.mark.parametrize("case", [(25, 40, False, 1), (1, 64, True, 1), (9, 96, False, 2)])
@pytest.mark.parametrize("target", ONE_QUICK_TARGET)
def test_folding_computes_the_product(target: str, case: tuple[int, int, bool, int], after_passes: bool) -> None:
    rows, depth, turned, stride = case
    output, constants = product(rows, depth, HALVES[target], turned=turned, stride=stride)
    schedule = default_schedule(output, constants, TARGETS[target])
    if rows > 1:
        assert is_folded(schedule)
    feeds = random_feeds(output, {})
    got = interpreted(output, feeds, {}, TARGETS[target], schedule, after_passes=after_passes)
    (wanted,) = evaluate([output], feeds, {})
    np.testing.assert_allclose(got, wanted, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize(
    ("rows", "depth", "columns"),
    [
        (64, 128, 32),  # whole vectors
        (64, 128, 8),  # less than one
        (64, 128, 20),  # less than a half is left over
        (64, 127, 24),  # an odd number of steps
        (64, 8, 24),  # too few steps to pay for the epilogue
        (symbol("n"), 128, 24),  # as many rows as the run says
    ],
)
def test_other_products_keep_whole_vectors(rows: Dim, depth: int, columns: int) -> None:
    output, constants = product(rows, depth, columns)
    assert not is_folded(default_schedule(output, constants, AVX512))


def test_a_weight_that_the_run_brings_is_not_laid_out() -> None:
    output, _ = product(64, 128, 24)
    assert not is_folded(default_schedule(output, frozenset(), AVX512))


@pytest.mark.parametrize("shape", [(25, 40, 24), (784, 240, 40), (3136, 144, 24)])
def test_native_code_computes_the_product(shape: tuple[int, int, int]) -> None:
    target = host_target()
    output, constants = product(*shape)
    schedule = folded_schedule(KernelView.of(output, constants), target) or default_schedule(output, constants, target)
    feeds = random_feeds(output, {})
    result = native(output, feeds, target, schedule)
    (wanted,) = evaluate([output], feeds, {})
    np.testing.assert_allclose(result, wanted, rtol=2e-4, atol=5e-5)


def test_many_rows_are_tasks_for_all_cores() -> None:
    output, constants = product(3136, 144, 24)
    schedule = default_schedule(output, constants, AVX512)
    assert is_folded(schedule)
    assert any(isinstance(step, Parallel) for step in schedule)
    assert from_json(to_json(schedule)) == schedule


@pytest.mark.parametrize("columns", [0, 1])
def test_weights_are_laid_out_step_by_step(columns: int) -> None:
    weights = np.arange(24, dtype=np.float32).reshape(4, 6)  # 4 columns, 6 steps
    given = weights if columns == 0 else weights.T
    laid = Laid(2, columns)
    assert laid.apply(given).shape == laid.shape(given.shape) == (3, 8)
    for n in range(4):
        for k in range(6):
            assert laid.apply(given)[k // 2, n * 2 + k % 2] == weights[n, k]


def test_steps_that_do_not_divide_the_sum_are_refused() -> None:
    output, _ = product(8, 15, 24)
    with pytest.raises(IngotError):
        lower("kernel", output, arguments_of(output), [], (Fold("mm", "w", 2, 0),), AVX512)
