"""Elementwise kernels whose last axis is half a register."""

from __future__ import annotations

import pytest

from compiler_service.schedule.rules import default_schedule
from compiler_service.schedule.steps import Unroll, Vectorize
from compiler_service.tensor_expr.tensor import Tensor, compute, placeholder
from shared_ir.dim import Dim, symbol
from shared_ir.dtype import DType
from tests.compiler_service.schedule.kernels import AVX512, TARGETS, check

F32 = DType.FLOAT32


def scaled(rows: Dim, channels: int) -> Tensor:
    x, y = placeholder("x", (3, rows, channels), F32), placeholder("y", (channels,), F32)
    return compute((3, rows, channels), lambda b, i, c: x[b, i, c] * y[c], name="scaled")


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("channels", [2, 3, 4, 8])
@pytest.mark.parametrize("rows", [16, 37, 72])
def test_few_channels(rows: int, channels: int, target: str) -> None:
    check(scaled(rows, channels), {}, TARGETS[target], frozenset(), after_passes=True)


def test_few_channels_of_any_number_of_rows() -> None:
    for rows in (1, 5, 40):
        check(scaled(symbol("n"), 8), {"n": rows}, AVX512, frozenset(), after_passes=True)


def test_half_a_register_is_a_vector() -> None:
    schedule = default_schedule(scaled(72, 8), frozenset(), AVX512)
    assert [s.loop for s in schedule if isinstance(s, Vectorize)] == ["i2"]
    assert any(isinstance(s, Unroll) for s in schedule)
