"""Zeros that change nothing are left out, those that change a sign are not."""

from __future__ import annotations

import numpy as np
import pytest

from tests.compiler_service.compiler.special.special_cases import Case, results

X = np.array([0.0, -0.0, 1, -1, np.inf, -np.inf] * 4, np.float32)


@pytest.mark.parametrize("opt_level", [0, 1, 2, 3])
@pytest.mark.parametrize("zero", [0.0, -0.0])
@pytest.mark.parametrize("op", ["Add", "Sub"])
def test_zero_added_or_subtracted(op: str, zero: float, opt_level: int) -> None:
    c = np.array(zero, np.float32)
    expected = X + c if op == "Add" else X - c
    found = results([Case(op, (X, c))], opt_level)
    for own in (found["run0"], found["folded0"]):
        np.testing.assert_array_equal(own, expected)
        np.testing.assert_array_equal(np.signbit(own), np.signbit(expected))


@pytest.mark.parametrize("opt_level", [0, 3])
def test_larger_of_a_number_and_minus_zero(opt_level: int) -> None:
    found = results([Case("Max", (X, np.array(-0.0, np.float32)))], opt_level)
    for own in (found["run0"], found["folded0"]):
        assert np.signbit(own[X < 0]).all()
