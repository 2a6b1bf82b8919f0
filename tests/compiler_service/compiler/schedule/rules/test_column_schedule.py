"""Reductions across vectors: what is contiguous stays in vectors, for any number of channels and rows."""

from __future__ import annotations

import pytest

from compiler_service.compiler.schedule.default import default_schedule
from compiler_service.compiler.schedule.language.steps import Vectorize
from compiler_service.compiler.schedule.model.analysis import KernelView
from compiler_service.compiler.schedule.rules.column import column_schedule
from compiler_service.compiler.tensor_expr.kernel.coalesce import coalesce
from compiler_service.compiler.tensor_expr.operators.normalization import softmax
from compiler_service.compiler.tensor_expr.scalar import rsqrt
from compiler_service.compiler.tensor_expr.tensor import ReduceOp, Tensor, compute, placeholder, reduce
from shared_ir.dtype import DType
from shared_ir.expr.dim import Dim, symbol
from tests.compiler_service.compiler.schedule.kernels import AVX512, ONE_QUICK_TARGET, TARGETS, check

F32 = DType.FLOAT32
b, r, c = symbol("b"), symbol("r"), symbol("c")


def instance_normalization(batch: Dim, rows: int, channels: Dim) -> Tensor:
    """Each channel of each image has mean 0 and variance 1, in channels-last layout; then ``max(x, 0)``."""
    x = placeholder("x", (batch, rows, channels), F32)
    total = reduce(ReduceOp.SUM, (batch, channels), (rows,), lambda i, k, j: x[i, j, k], name="sum")
    mean = compute((batch, channels), lambda i, k: total[i, k] * (1 / rows), name="mean")
    centred = compute((batch, rows, channels), lambda i, j, k: x[i, j, k] - mean[i, k], name="centred")
    square = reduce(
        ReduceOp.SUM, (batch, channels), (rows,), lambda i, k, j: centred[i, j, k] * centred[i, j, k], name="square"
    )
    inverse = compute((batch, channels), lambda i, k: rsqrt(square[i, k] * (1 / rows) + 1e-5), name="inverse")
    return compute((batch, rows, channels), lambda i, j, k: centred[i, j, k] * inverse[i, k], name="normal")


CASES: list[tuple[Tensor, list[dict[str, int]]]] = [
    (instance_normalization(2, 9, 16), [{}]),
    (instance_normalization(1, 5, 150), [{}]),
    (instance_normalization(3, 4, 7), [{}]),
    (instance_normalization(b, 6, c), [{"b": 1, "c": 33}, {"b": 2, "c": 1}, {"b": 1, "c": 128}]),
    (softmax(placeholder("x", (2, 5, 40), F32), axis=1), [{}]),
    (softmax(placeholder("x", (b, r, 19), F32), axis=1), [{"b": 2, "r": 3}, {"b": 1, "r": 1}]),
]


@pytest.mark.slow
@pytest.mark.parametrize("target", ONE_QUICK_TARGET)
@pytest.mark.parametrize("case", range(len(CASES)))
def test_columns_are_what_the_expression_says(case: int, target: str) -> None:
    tensor, sizes = CASES[case]
    output, _ = coalesce(tensor)
    assert column_schedule(KernelView.of(output, frozenset()), TARGETS[target]) is not None
    for symbols in sizes:
        for after_passes in (False, True):
            check(output, symbols, TARGETS[target], frozenset(), after_passes=after_passes)


def test_every_stage_has_vectors_of_channels() -> None:
    output, _ = coalesce(instance_normalization(1, 50, 64))
    found = {s.stage: s.loop for s in default_schedule(output, frozenset(), AVX512) if isinstance(s, Vectorize)}
    assert set(found) == {"sum", "mean", "square", "inverse", "normal"}


def test_sums_along_what_is_contiguous_are_rows() -> None:
    output, _ = coalesce(softmax(placeholder("x", (6, 40), F32)))
    assert column_schedule(KernelView.of(output, frozenset()), AVX512) is None
