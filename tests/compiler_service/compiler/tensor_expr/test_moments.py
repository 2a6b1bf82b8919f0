"""Mean and variance of rows that are read once: as exact as two sums would be, whatever is in the row."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compiler_service.compiler.tensor_expr.meaning.evaluate import evaluate
from compiler_service.compiler.tensor_expr.operators.moments import moments
from compiler_service.compiler.tensor_expr.tensor import Tensor, placeholder, topological
from shared_ir.dtype import DType
from shared_ir.expr.dim import symbol

ROUNDED = 8 * float(np.finfo(np.float32).eps)
"""A few roundings, relative."""


def found(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    x = placeholder("x", rows.shape, DType.FLOAT32)
    result = moments(x, (1,))
    mean, variance = evaluate([result.mean, result.variance], {x: rows}, {})
    return mean, variance


def names(tensor: Tensor) -> set[str]:
    return {t.name for t in topological(tensor)}


@pytest.mark.parametrize(("length", "once"), [(255, False), (256, True), (2048, True), (2049, False), ("n", False)])
def test_short_rows_of_known_length_are_read_once(length: int | str, once: bool) -> None:
    extent = symbol(length) if isinstance(length, str) else length
    result = moments(placeholder("x", (4, extent), DType.FLOAT32), (1,))
    assert ("shift" in names(result.variance)) is once


def test_rows_of_several_axes_are_read_twice() -> None:
    result = moments(placeholder("x", (4, 16, 32), DType.FLOAT32), (1, 2))
    assert "shift" not in names(result.variance)


@given(
    st.integers(256, 600),
    st.floats(-1e4, 1e4),
    st.floats(1e-3, 1e3),
    st.lists(st.tuples(st.integers(0, 255), st.floats(-1e6, 1e6)), max_size=9),
    st.integers(0, 2**32 - 1),
)
def test_the_shift_costs_no_more_than_stated(
    length: int, middle: float, spread: float, outliers: list[tuple[int, float]], seed: int
) -> None:
    row = (middle + spread * np.random.default_rng(seed).standard_normal(length)).astype(np.float32)
    for place, value in outliers:
        row[place] = value
    mean, variance = (float(v[0, 0]) for v in found(row[None]))
    wide = row.astype(np.float64)
    exact = float(wide.var())
    assert abs(variance - exact) <= length / 8 * ROUNDED * exact
    assert abs(mean - float(wide.mean())) <= ROUNDED * (abs(float(wide.mean())) + length / 8 * exact**0.5)


@pytest.mark.parametrize("place", [0, 1, 96, 767])
def test_one_large_element_at_any_place(place: int) -> None:
    row = np.ones(768, np.float32)
    row[place] = 1e6
    _, variance = found(row[None])
    np.testing.assert_allclose(variance[0, 0], row.astype(np.float64).var(), rtol=1e-5)


def test_the_variance_of_a_constant_row_is_zero() -> None:
    rows = np.array([[0.1], [-3e30], [1e-30]], np.float32).repeat(768, 1)
    mean, variance = found(rows)
    np.testing.assert_allclose(mean[:, 0], rows[:, 0], rtol=1e-6)
    assert (variance <= (rows[:, :1].astype(np.float64) * ROUNDED) ** 2).all()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [0, 5])
def test_a_row_with_no_variance_has_none(value: float, place: int) -> None:
    rows = np.ones((2, 512), np.float32)
    rows[1, place] = value
    _, variance = found(rows)
    assert variance[0, 0] == 0
    assert np.isnan(variance[1, 0])
