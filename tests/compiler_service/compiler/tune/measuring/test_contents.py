"""What trials are given, and when two results are the same."""

from __future__ import annotations

import numpy as np
import pytest

from compiler_service.compiler.tune.measuring.contents import disagreement, drawn, proves_something
from shared_ir.arrays import storage_dtype
from shared_ir.dtype import DType


@pytest.mark.parametrize("dtype", [d for d in DType if d is not DType.STRING])
def test_drawn_elements_are_the_same_each_time_and_of_their_type(dtype: DType) -> None:
    one, other = drawn((3, 5), dtype, 1), drawn((3, 5), dtype, 1)
    assert one.dtype == storage_dtype(dtype)
    assert one.tobytes() == other.tobytes()


def test_what_may_be_a_position_is_inside_of_everything() -> None:
    assert not drawn((100,), DType.INT64, 0, is_position=True).any()
    assert len(set(drawn((1000,), DType.INT8, 0).tolist())) > 200


@pytest.mark.parametrize("dtype", [DType.INT16, DType.UINT32, DType.INT64, DType.COMPLEX64])
def test_data_is_something(dtype: DType) -> None:
    """A wrong product of zeros would be right."""
    assert len(set(drawn((1000,), dtype, 0).tolist())) > 8


def test_rounding_is_no_difference_and_a_lost_term_is() -> None:
    rng = np.random.default_rng(3)
    terms = rng.uniform(-1, 1, (50, 4608)).astype(np.float32)
    one = terms.sum(1, dtype=np.float32)
    other = terms[:, ::-1].sum(1, dtype=np.float32)
    assert disagreement(one.tobytes(), other.tobytes(), DType.FLOAT32) == ""
    lost = other.copy()
    lost[7] = terms[7, 1:].sum(dtype=np.float32)
    assert "differs by" in disagreement(one.tobytes(), lost.tobytes(), DType.FLOAT32)


def test_integers_may_be_a_step_off_now_and_then() -> None:
    one = np.zeros(1000, np.int8)
    few, many, far = one.copy(), one.copy(), one.copy()
    few[:4], many[:40], far[0] = 1, 1, 2
    assert disagreement(one.tobytes(), few.tobytes(), DType.INT8) == ""
    assert "a step off" in disagreement(one.tobytes(), many.tobytes(), DType.INT8)
    assert "2 in place of 0" in disagreement(one.tobytes(), far.tobytes(), DType.INT8)


@pytest.mark.parametrize("dtype", [DType.BOOL, DType.UINT8, DType.INT64])
def test_what_nothing_rounds_is_equal(dtype: DType) -> None:
    one = np.zeros(1000, storage_dtype(dtype))
    other = one.copy()
    other[7] = 1
    assert disagreement(one.tobytes(), other.tobytes(), dtype) == ""
    assert "1 in place of 0" in disagreement(one.tobytes(), other.tobytes(), dtype, is_exact=True)


def test_integers_at_both_ends_are_far_apart() -> None:
    ends = np.array([-(2**63), 2**63 - 1])
    assert disagreement(ends.tobytes(), ends[::-1].tobytes(), DType.INT64)


@pytest.mark.parametrize("values", [(np.inf, -np.inf), (np.inf, np.nan)])
def test_what_is_no_number_is_the_same_there(values: tuple[float, float]) -> None:
    one, other = (np.array([1, value, 2], np.float32) for value in values)
    assert disagreement(one.tobytes(), other.tobytes(), DType.FLOAT32)


def test_what_has_no_number_proves_nothing() -> None:
    assert not proves_something(np.full(9, -np.inf, np.float32).tobytes(), DType.FLOAT32)
    assert not proves_something(np.full(9, np.nan, np.float16).tobytes(), DType.FLOAT16)
    assert proves_something(np.array([np.nan, 0], np.float32).tobytes(), DType.FLOAT32)
    assert proves_something(np.zeros(9, np.int8).tobytes(), DType.INT8)
    assert proves_something(b"", DType.FLOAT32)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_no_number_stands_at_the_same_places(value: float) -> None:
    one = np.ones(4, np.float32)
    other = one.copy()
    other[2] = value
    assert disagreement(one.tobytes(), other.tobytes(), DType.FLOAT32)
    assert disagreement(other.tobytes(), other.copy().tobytes(), DType.FLOAT32) == ""
    moved = np.roll(other, 1)
    assert disagreement(other.tobytes(), moved.tobytes(), DType.FLOAT32)


def test_another_length_is_a_difference() -> None:
    assert "4 bytes in place of 8" in disagreement(b"12345678", b"1234", DType.FLOAT32)
