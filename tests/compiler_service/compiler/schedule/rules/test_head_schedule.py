"""The mean of many rows and its normalisation: one kernel, sums in vectors of channels, for any number of rows and channels."""

from __future__ import annotations

import pytest

from compiler_service.compiler.schedule.default import default_schedule
from compiler_service.compiler.schedule.language.steps import ComputeAt, Parallel, Vectorize
from compiler_service.compiler.schedule.model.analysis import KernelView
from compiler_service.compiler.schedule.rules.head import head_schedule
from compiler_service.compiler.tensor_expr.kernel.coalesce import coalesce
from compiler_service.compiler.tensor_expr.operators.normalization import (
    layer_normalization,
    rms_normalization,
    softmax,
)
from compiler_service.compiler.tensor_expr.operators.pooling import global_average_pool
from compiler_service.compiler.tensor_expr.tensor import ReduceOp, Tensor, compute, placeholder, reduce
from shared_ir.dtype import DType
from shared_ir.expr.dim import Dim, symbol
from shared_ir.machine.target import Target
from tests.compiler_service.compiler.schedule.kernels import AVX512, NEON, ONE_QUICK_TARGET, TARGETS, check

F32 = DType.FLOAT32
b, h = symbol("b"), symbol("h")


def head(batch: Dim, height: Dim, width: int, channels: int) -> Tensor:
    """The mean of all pixels of channels-last data, ``[batch, 1, 1, channels]``, normalised."""
    x, scale = placeholder("x", (batch, height, width, channels), F32), placeholder("scale", (channels,), F32)
    return layer_normalization(global_average_pool(x, layout="NHWC"), scale, placeholder("bias", (channels,), F32))[0]


def largest(batch: int, rows: int, channels: int) -> Tensor:
    """The largest of some rows, ``[batch, channels]``, normalised by its square and cut off."""
    x, scale = placeholder("x", (batch, rows, channels), F32), placeholder("scale", (channels,), F32)
    most = reduce(ReduceOp.MAX, (batch, channels), (rows,), lambda i, c, j: x[i, j, c], name="most")
    normal = rms_normalization(most, scale)
    return compute(normal.shape, lambda i, j: normal[i, j] * 2.0, name="twice")


CASES: list[tuple[Tensor, list[dict[str, int]]]] = [
    (head(1, 7, 7, 768), [{}]),
    (head(3, 2, 3, 40), [{}]),
    (head(1, 5, 1, 150), [{}]),
    (head(2, 1, 1, 7), [{}]),
    (head(b, h, 3, 40), [{"b": 1, "h": 1}, {"b": 3, "h": 4}]),
    (largest(2, 9, 33), [{}]),
]


@pytest.mark.slow
@pytest.mark.parametrize("target", ONE_QUICK_TARGET)
@pytest.mark.parametrize("case", range(len(CASES)))
def test_heads_are_what_the_expression_says(case: int, target: str) -> None:
    tensor, sizes = CASES[case]
    output, _ = coalesce(tensor)
    for symbols in sizes:
        for after_passes in (False, True):
            check(output, symbols, TARGETS[target], frozenset(), after_passes=after_passes)


@pytest.mark.parametrize("case", [head(1, 7, 7, 768), head(8, 7, 7, 768), head(b, h, 3, 64), largest(2, 9, 64)])
@pytest.mark.parametrize("target", [AVX512, NEON])
def test_every_sum_has_vectors_and_all_are_computed_for_one_row(case: Tensor, target: Target) -> None:
    output, _ = coalesce(case)
    kernel = KernelView.of(output, frozenset())
    schedule = default_schedule(output, frozenset(), target)
    assert schedule == head_schedule(kernel, target)
    wide = {s.stage for s in schedule if isinstance(s, Vectorize)}
    assert {s.name for s in kernel.state.stages.values() if s.reduction is not None} <= wide
    assert len({s.loop for s in schedule if isinstance(s, ComputeAt)}) == 1


def test_cores_have_rows_of_a_batch() -> None:
    output, _ = coalesce(head(64, 7, 7, 768))
    schedule = default_schedule(output, frozenset(), AVX512)
    assert any(isinstance(s, Parallel) for s in schedule)


@pytest.mark.parametrize(
    "tensor",
    [
        softmax(placeholder("x", (6, 40), F32)),
        softmax(placeholder("x", (2, 5, 40), F32), axis=1),
        layer_normalization(placeholder("x", (6, 40), F32), placeholder("scale", (40,), F32))[0],
        global_average_pool(placeholder("x", (2, 3, 3, 64), F32), layout="NHWC"),
    ],
)
def test_kernels_with_sums_of_one_kind_are_no_heads(tensor: Tensor) -> None:
    output, _ = coalesce(tensor)
    assert head_schedule(KernelView.of(output, frozenset()), AVX512) is None
