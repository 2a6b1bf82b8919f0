"""Answers are the same but for rounding; what numbers that nearly tie decide may be told otherwise where a narrow type rounds."""

from __future__ import annotations

import numpy as np
import pytest

from compiler_service.compiler.reference.comparison import compare
from compiler_service.compiler.reference.precision import TOLERANCE
from shared_ir.dtype import DType
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.plan.program import TensorSpec

NARROW = 2.0**-5
"""What bfloat16 allows."""


def other(size: int, wrong: int, dtype: str) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """An answer of which ``wrong`` elements are something else, and the right one."""
    right = np.zeros(size, dtype)
    found = right.copy()
    found[:wrong] = 1
    return [found], [right]


@pytest.mark.parametrize("dtype", ["bool", "int64"])
@pytest.mark.parametrize(
    ("size", "wrong", "tolerance", "agrees"),
    [
        (1000, 0, TOLERANCE, True),
        (1000, 1, TOLERANCE, False),  # of float32 nothing ties by chance
        (1000, 32, NARROW, True),
        (1000, 33, NARROW, False),
        (2, 1, NARROW, True),
        (2, 2, NARROW, False),
        (1, 1, NARROW, False),
    ],
)
def test_numbers_that_nearly_tie(dtype: str, size: int, wrong: int, tolerance: float, agrees: bool) -> None:
    spec = TensorSpec("y", DType(dtype), (size,))
    found, right = other(size, wrong, dtype)
    if agrees:
        (report,) = compare((spec,), found, right, tolerance)
        assert report.max_abs_error == (1.0 if wrong else 0.0), "what was found is told"
        return
    with pytest.raises(IngotError) as caught:
        compare((spec,), found, right, tolerance)
    assert caught.value.code is ErrorCode.NUMERIC_MISMATCH


def test_floats_are_not_counted() -> None:
    found, right = other(1000, 1, "float32")
    with pytest.raises(IngotError):
        compare((TensorSpec("y", DType.FLOAT32, (1000,)),), found, [right[0] + 0.5], NARROW)
