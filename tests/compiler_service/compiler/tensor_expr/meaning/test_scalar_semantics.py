"""The scalar operators on the values where numpy, C and ONNX differ."""

import math
from typing import Any

import numpy as np
import pytest

from compiler_service.compiler.tensor_expr.meaning.scalar_semantics import (
    BINARY,
    UNARY,
    cast,
    has_both_zeros,
    is_left_to_target,
)
from shared_ir.arrays import dtype_of, storage_dtype
from shared_ir.dtype import DType
from shared_ir.expr import COMPARISONS, BinaryOp, UnaryOp

NUMERIC = [d for d in DType if d.is_float or d.is_integer]


def test_every_operator_has_a_meaning() -> None:
    assert set(UNARY) == set(UnaryOp)
    assert set(BINARY) == set(BinaryOp)


@pytest.mark.parametrize("dtype", NUMERIC)
def test_storage_dtype_round_trips(dtype: DType) -> None:
    assert dtype_of(np.zeros(1, storage_dtype(dtype))) is dtype


@pytest.mark.parametrize("op", [BinaryOp.ADD, BinaryOp.MUL, BinaryOp.MIN, BinaryOp.MAX, BinaryOp.LT, BinaryOp.EQ])
@pytest.mark.parametrize("dtype", NUMERIC)
def test_arithmetic_keeps_the_dtype(op: BinaryOp, dtype: DType) -> None:
    x = np.ones(3, storage_dtype(dtype))
    assert dtype_of(BINARY[op](x, x)) is (DType.BOOL if op in COMPARISONS else dtype)


@pytest.mark.parametrize("dtype", [DType.FLOAT16, DType.BFLOAT16, DType.FLOAT32, DType.FLOAT64])
@pytest.mark.parametrize("op", list(UnaryOp))
def test_float_functions_keep_the_dtype(op: UnaryOp, dtype: DType) -> None:
    if op in (UnaryOp.POPCOUNT, UnaryOp.BIT_NOT):
        return
    result = UNARY[op](np.full(3, 0.5, storage_dtype(dtype)))
    assert dtype_of(result) is (DType.BOOL if op in (UnaryOp.NOT, UnaryOp.IS_NAN, UnaryOp.IS_INF) else dtype)


def test_division_truncates_or_floors() -> None:
    a, b = np.array([7, -7, 7, -7, 5], np.int64), np.array([2, 2, -2, -2, 0], np.int64)
    assert BINARY[BinaryOp.TRUNC_DIV](a, b).tolist() == [3, -3, -3, 3, 0]
    assert BINARY[BinaryOp.TRUNC_MOD](a, b).tolist() == [1, -1, 1, -1, 0]
    assert BINARY[BinaryOp.FLOOR_DIV](a, b).tolist() == [3, -4, -4, 3, 0]
    assert BINARY[BinaryOp.FLOOR_MOD](a, b).tolist() == [1, 1, -1, -1, 0]


def test_shift_by_the_width_gives_zero() -> None:
    a, b = np.array([1, 1, 1, -1, -1], np.int8), np.array([3, 8, -1, 1, 100], np.int8)
    assert BINARY[BinaryOp.SHL](a, b).tolist() == [8, 0, 0, -2, 0]
    assert BINARY[BinaryOp.SHR](a, b).tolist() == [0, 0, 0, -1, 0]


def test_extrema_propagate_nan() -> None:
    nan, one = np.array([math.nan]), np.array([1.0])
    assert np.isnan(BINARY[BinaryOp.MIN](nan, one)).all()
    assert np.isnan(BINARY[BinaryOp.MAX](one, nan)).all()


def test_integer_power_with_negative_exponent_truncates() -> None:
    a, b = np.array([2, 1, -1, -1, 3]), np.array([-1, -5, -3, -2, 3])
    assert BINARY[BinaryOp.POW](a, b).tolist() == [0, 1, -1, 1, 27]


def test_rounding_is_half_to_even() -> None:
    assert UNARY[UnaryOp.ROUND](np.array([0.5, 1.5, -2.5])).tolist() == [0.0, 2.0, -2.0]


def test_sigmoid_and_erf_at_the_ends() -> None:
    assert UNARY[UnaryOp.SIGMOID](np.array([-800.0, 0.0, 800.0])).tolist() == [0.0, 0.5, 1.0]
    assert UNARY[UnaryOp.ERF](np.array([-9.0, 0.0, 9.0], np.float32)).tolist() == [-1.0, 0.0, 1.0]


def test_popcount_of_negative_numbers() -> None:
    assert UNARY[UnaryOp.POPCOUNT](np.array([-1, 3, 0], np.int16)).tolist() == [16, 2, 0]


@pytest.mark.parametrize("dtype", [d for d in DType if d.is_integer and d.bits >= 8])
@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
def test_floats_saturate_in_integers(dtype: DType, kind: type[np.floating[Any]]) -> None:
    least, largest = dtype.limits
    x = np.array([math.inf, -math.inf, math.nan, 1e30, -1e30, -0.9, 100.5]).astype(kind)
    assert cast(x, dtype).tolist() == [largest, least, 0, largest, least, 0, 100]


def test_doubles_are_rounded_once() -> None:
    tie = 1 + 2.0**-8  # of bfloat16, between 1 and 1 + 2^-7
    x = np.array([tie, tie + 2.0**-40, tie - 2.0**-40, -tie - 2.0**-40, math.nan, math.inf])
    expected = [1.0, 1 + 2.0**-7, 1.0, -1 - 2.0**-7, math.nan, math.inf]
    np.testing.assert_array_equal(cast(x, DType.BFLOAT16).astype(np.float64), expected)


def test_functions_are_rounded_once() -> None:
    x = np.random.default_rng(0).uniform(-5, 5, 1000).astype(np.float32)
    assert np.array_equal(UNARY[UnaryOp.EXP](x), np.exp(x.astype(np.float64)).astype(np.float32))


def test_what_targets_differ_in() -> None:
    small = np.array([1.0, 1e-40], np.float32)
    assert is_left_to_target(BinaryOp.MUL, small)
    assert is_left_to_target(None, small.astype(storage_dtype(DType.BFLOAT16)))
    assert not is_left_to_target(BinaryOp.MAX, small)
    assert not is_left_to_target(BinaryOp.MUL, small.astype(np.float64))
    assert not is_left_to_target(BinaryOp.MUL, np.array([1, 2]))
    zeros = np.array([0.0, -0.0])
    assert has_both_zeros(zeros, zeros[::-1])
    assert not has_both_zeros(zeros, zeros)


def test_casts_truncate_wrap_and_test_for_zero() -> None:
    assert cast(np.array([-1.9, 1.9]), DType.INT32).tolist() == [-1, 1]
    assert cast(np.array([300]), DType.UINT8).tolist() == [44]
    assert cast(np.array([0.0, -0.5]), DType.BOOL).tolist() == [False, True]
    assert cast(np.array([7, 9, -1]), DType.INT4).tolist() == [7, -7, -1]
