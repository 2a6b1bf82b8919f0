"""Elementwise kernels whose last axis is half a register, or ends within one."""

from __future__ import annotations

import pytest

from compiler_service.compiler.loop_ir import passes
from compiler_service.compiler.loop_ir.ir import Store, walk_statements
from compiler_service.compiler.schedule.default import default_schedule
from compiler_service.compiler.schedule.language.steps import Unroll, Vectorize
from compiler_service.compiler.schedule.lower import lower
from compiler_service.compiler.tensor_expr.scalar import exp
from compiler_service.compiler.tensor_expr.tensor import Tensor, compute, placeholder
from shared_ir.dtype import DType
from shared_ir.expr.dim import Dim, symbol
from tests.compiler_service.compiler.schedule.kernels import AVX512, TARGETS, arguments_of, check

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


def gated(rows: int, channels: int, steep: bool = False) -> Tensor:
    x, y = placeholder("x", (rows, channels), F32), placeholder("y", (channels,), F32)
    return compute((rows, channels), lambda i, c: (exp(x[i, c]) if steep else x[i, c]) * y[c], name="gated")


def masked_stores(kernel: Tensor) -> int:
    schedule = default_schedule(kernel, frozenset(), AVX512)
    function = passes.run(lower("kernel", kernel, arguments_of(kernel), (), schedule, AVX512))
    return sum(isinstance(s, Store) and s.mask is not None for s in walk_statements(function.body))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("steep", [False, True])
@pytest.mark.parametrize("channels", [24, 28, 31, 49, 88, 120, 126])
def test_rows_that_end_within_a_vector(channels: int, steep: bool, target: str) -> None:
    check(gated(20, channels, steep), {}, TARGETS[target], frozenset(), after_passes=True)


@pytest.mark.parametrize("channels", [24, 40, 49, 56, 120, 196])
def test_a_row_ends_in_a_smaller_vector(channels: int) -> None:
    assert masked_stores(gated(20, channels)) == masked_stores(gated(20, channels, steep=True)) == 0


def test_several_smaller_vectors_take_the_place_of_a_masked_one_where_operations_are_few() -> None:
    assert masked_stores(gated(20, 28)) == 0  # 8 and 4
    assert masked_stores(gated(20, 28, steep=True)) == 1
    assert masked_stores(gated(20, 31)) == 1  # 8, 4, 2 and 1 would be too many
