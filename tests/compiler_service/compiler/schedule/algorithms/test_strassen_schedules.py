"""Products of matrices by Strassen's algorithm: when, in what loops, and that they compute the product."""

from __future__ import annotations

import numpy as np
import pytest

from compiler_service.compiler.codegen.toolchain.host import host_target
from compiler_service.compiler.schedule.algorithms.strassen.rule import StrassenBlocking, strassen_schedule
from compiler_service.compiler.schedule.algorithms.strassen.step import Strassen
from compiler_service.compiler.schedule.default import METHODS, default_schedule, methods_of
from compiler_service.compiler.schedule.language.apply import apply_schedule
from compiler_service.compiler.schedule.language.schedule import Schedule
from compiler_service.compiler.schedule.language.steps import Pack, Parallel
from compiler_service.compiler.schedule.model.analysis import KernelView
from compiler_service.compiler.schedule.records import from_json, to_json
from compiler_service.compiler.tensor_expr.kernel.coalesce import coalesce
from compiler_service.compiler.tensor_expr.meaning.evaluate import evaluate
from compiler_service.compiler.tensor_expr.tensor import ReduceOp, Tensor, compute, placeholder, reduce
from shared_ir.dtype import DType
from shared_ir.errors import IngotError
from shared_ir.expr import maximum
from shared_ir.expr.dim import Dim, symbol
from shared_ir.machine.target import Target
from tests.compiler_service.compiler.schedule.kernels import (
    AVX512,
    NEON,
    ONE_QUICK_TARGET,
    TARGETS,
    interpreted,
    native,
    random_feeds,
)

NAMES = [row.name for row in METHODS]
F32 = DType.FLOAT32
LANES = {"avx512": 16, "avx2": 8, "neon": 4}


def product(
    shape: tuple[Dim, ...], depth: int, columns: int, *, turned: bool = False, dtype: DType = F32
) -> tuple[Tensor, frozenset[Tensor]]:
    """``relu(x w + b) + x2``; the weight is ``[n, k]``, or ``[k, n]`` where it is ``turned``."""
    x, residual = placeholder("x", (*shape, depth), dtype), placeholder("residual", (*shape, columns), dtype)
    w = placeholder("w", (depth, columns) if turned else (columns, depth), dtype)
    b = placeholder("b", (columns,), dtype)
    total = reduce(
        ReduceOp.SUM,
        (*shape, columns),
        (depth,),
        lambda *i: x[(*i[:-2], i[-1])] * (w[i[-1], i[-2]] if turned else w[i[-2], i[-1]]),
        name="mm",
    )
    made = compute((*shape, columns), lambda *i: maximum(total[i] + b[i[-1]], 0.0) + residual[i], name="relu")
    output, placeholders = coalesce(made)
    return output, frozenset(new for old, new in placeholders.items() if old.name == "w")


def planned(output: Tensor, constants: frozenset[Tensor], target: Target, blocking: StrassenBlocking) -> Schedule:
    schedule = strassen_schedule(KernelView.of(output, constants), target, blocking)
    assert schedule is not None
    assert methods_of(schedule) == {"strassen"}
    return schedule


def is_chosen(output: Tensor, constants: frozenset[Tensor], target: Target = AVX512) -> bool:
    return any(isinstance(step, Strassen) for step in default_schedule(output, constants, target, NAMES))


BLOCKINGS = [  # rows, vectors of half the columns, then the blocking in pairs and vectors
    ((8,), 2, (4, 2, 2, 3, 1)),
    ((9,), 4, (5, 4, 4, 2, 2)),  # a row hangs over the end
    ((14,), 4, (3, 2, 2, 2, 1)),  # three tasks of rows, the last with one pair, by two of columns
    ((13,), 6, (4, 6, 2, 4, 2)),  # chunks of columns
    ((3, 5), 4, (3, 4, 2, 1, 1)),  # one row accumulates
    ((6,), 3, (3, 3, 3, 2, 2)),  # tiles that half of the columns are no multiple of
]


@pytest.mark.sampled
@pytest.mark.parametrize("after_passes", [False, True])
@pytest.mark.parametrize("case", BLOCKINGS)
@pytest.mark.parametrize("target", ONE_QUICK_TARGET)
def test_any_blocking_computes_the_product(
    target: str, case: tuple[tuple[int, ...], int, tuple[int, int, int, int, int]], after_passes: bool
) -> None:
    (*outer, rows), vectors, (pairs, share, columns, height, wide) = case
    width = LANES[target]
    shape = (*outer, rows)
    output, constants = product(shape, 2 * width, 2 * vectors * width, turned=bool(rows % 2))
    blocking = StrassenBlocking(pairs, share * width, columns * width, height, wide)
    schedule = planned(output, constants, TARGETS[target], blocking)
    feeds = random_feeds(output, {})
    got = interpreted(output, feeds, {}, TARGETS[target], schedule, after_passes=after_passes)
    (wanted,) = evaluate([output], feeds, {})
    np.testing.assert_allclose(got, wanted, rtol=2e-4, atol=5e-5)
    assert from_json(to_json(schedule)) == schedule


@pytest.mark.parametrize("n", [0, 1, 3])
@pytest.mark.parametrize("after_passes", [False, True])
def test_any_number_of_inputs_is_computed(after_passes: bool, n: int) -> None:
    output, constants = product((symbol("d0") * 16,), 32, 64)
    schedule = planned(output, constants, AVX512, StrassenBlocking(4, 32, 32, 2, 1))
    feeds = random_feeds(output, {"d0": n})
    got = interpreted(output, feeds, {"d0": n}, AVX512, schedule, after_passes=after_passes)
    (wanted,) = evaluate([output], feeds, {"d0": n})
    np.testing.assert_allclose(got, wanted, rtol=2e-4, atol=5e-5)


@pytest.mark.parametrize("shape", [(64, 192, 512), (33, 384, 384), (197, 384, 64)])
def test_native_code_computes_the_product(shape: tuple[int, int, int]) -> None:
    target = host_target()
    rows, depth, columns = shape
    output, constants = product((rows,), depth, columns)
    schedule = default_schedule(output, constants, target, NAMES)
    feeds = random_feeds(output, {})
    result = native(output, feeds, target, schedule)
    (wanted,) = evaluate([output], feeds, {})
    np.testing.assert_allclose(result, wanted, rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize(
    ("shape", "depth", "columns"),
    [
        ((128,), 768, 768),
        ((symbol("d0") * 128,), 768, 768),
        ((197,), 384, 1536),
        ((49,), 3072, 768),
        ((4, 64), 512, 512),
        ((784,), 256, 512),
    ],
)
@pytest.mark.parametrize("target", [AVX512, NEON])
def test_large_products_take_seven_of_half_the_size(
    target: Target, shape: tuple[int, ...], depth: int, columns: int
) -> None:
    output, constants = product(shape, depth, columns)
    assert is_chosen(output, constants, target)
    assert methods_of(default_schedule(output, constants, target)) == frozenset()
    assert methods_of(default_schedule(output, constants, target, ["winograd"])) == frozenset()


@pytest.mark.parametrize(
    ("shape", "depth", "columns"),
    [
        ((symbol("n"),), 768, 768),  # as many rows as the run says: they may be few
        ((symbol("n") * 8,), 768, 768),  # or four pairs
        ((symbol("n") * 197,), 768, 768),  # one pair would be of two inputs
        ((1,), 768, 768),
        ((12,), 768, 768),  # the weights are what takes time
        ((3136,), 64, 256),  # sums as short as what they are made of
        ((128,), 768, 1000),  # half of the columns are no whole vectors
        ((128,), 750, 768),
        ((128,), 4096, 8192),  # weights of 128 MB would be 224
    ],
)
def test_others_are_plain_sums(shape: tuple[Dim, ...], depth: int, columns: int) -> None:
    output, constants = product(shape, depth, columns)
    assert not is_chosen(output, constants)


def test_other_types_and_weights_of_the_run_are_plain_sums() -> None:
    output, constants = product((128,), 768, 768, dtype=DType.FLOAT64)
    assert not is_chosen(output, constants)
    output, _ = product((128,), 768, 768)
    assert not is_chosen(output, frozenset())


def test_cores_have_tasks_and_read_weights_in_order() -> None:
    output, constants = product((197,), 384, 1536)
    schedule = default_schedule(output, constants, AVX512, NAMES)
    assert any(isinstance(step, Parallel) for step in schedule)
    (pack,) = (step for step in schedule if isinstance(step, Pack))
    axes = [axis for axis, _, _ in pack.order]
    assert axes[-3:] == [1, 2, 1]  # tiles of columns, the steps of their sums, the columns of a tile
    assert set(axes[: axes.index(0)]) <= {1}  # shares and chunks of columns come before the products


@pytest.mark.parametrize("step", [Strassen("mm", "w", 1, 16), Strassen("mm", "w", 0, 48), Strassen("mm", "x", 0, 16)])
def test_a_step_that_does_not_fit_is_refused(step: Strassen) -> None:
    output, _ = product((8,), 64, 64)
    with pytest.raises(IngotError, match="not a product"):
        apply_schedule(output, (step,))
