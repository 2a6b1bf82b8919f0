"""Schedules that a tuner measures: the default first, whatever rule it comes from."""

from __future__ import annotations

import numpy as np
import pytest

from compiler_service.compiler.schedule.algorithms.byte_dots.step import DotBytes
from compiler_service.compiler.schedule.algorithms.diagonals.step import Diagonals
from compiler_service.compiler.schedule.algorithms.winograd.step import Winograd
from compiler_service.compiler.schedule.default import candidate_schedules, default_schedule
from compiler_service.compiler.tensor_expr.kernel.coalesce import coalesce
from compiler_service.compiler.tensor_expr.meaning.evaluate import evaluate
from compiler_service.compiler.tensor_expr.operators.convolution import conv
from compiler_service.compiler.tensor_expr.operators.quantized import matmul_integer
from compiler_service.compiler.tensor_expr.tensor import Tensor, placeholder
from shared_ir.dtype import DType
from tests.compiler_service.compiler.schedule.algorithms.test_byte_dot_schedules import bytes_of
from tests.compiler_service.compiler.schedule.kernels import VNNI, interpreted


def convolution(channels: int, group: int) -> Tensor:
    x = placeholder("x", (1, 14, 14, channels), DType.FLOAT32)
    w = placeholder("w", (channels, channels // group, 3, 3), DType.FLOAT32)
    return conv(x, w, group=group, pads=(1,) * 4, layout="NHWC")


def product() -> Tensor:
    x, w = placeholder("x", (24, 64), DType.UINT8), placeholder("w", (64, 48), DType.INT8)
    return matmul_integer(x, w)


@pytest.mark.parametrize(
    ("kernel", "step"),
    [(convolution(256, 1), Winograd), (convolution(32, 8), Diagonals), (product(), DotBytes)],
    ids=["winograd", "grouped", "bytes"],
)
def test_the_default_is_measured_first(kernel: Tensor, step: type) -> None:
    output, placeholders = coalesce(kernel)
    constants = frozenset(new for old, new in placeholders.items() if old.name == "w")
    found = candidate_schedules(output, constants, VNNI, methods=("winograd",))
    assert found[0] == default_schedule(output, constants, VNNI, methods=("winograd",))
    assert any(isinstance(s, step) for s in found[0])
    assert len(set(found)) == len(found)


def test_candidates_for_bytes_multiply_bytes() -> None:
    output, placeholders = coalesce(product())
    constants = frozenset(new for old, new in placeholders.items() if old.name == "w")
    found = candidate_schedules(output, constants, VNNI)
    feeds = bytes_of(output, {})
    (wanted,) = evaluate([output], feeds, {})
    assert len(found) > 2
    for schedule in found[:6]:
        assert any(isinstance(s, DotBytes) for s in schedule)
        got = interpreted(output, feeds, {}, VNNI, schedule, after_passes=False)
        np.testing.assert_array_equal(got, wanted)
