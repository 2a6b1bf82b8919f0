"""Answers are the same but for rounding, and what is no float is the same."""

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


@pytest.mark.parametrize("dtype", ["bool", "int64", "float32"])
@pytest.mark.parametrize("tolerance", [TOLERANCE, NARROW])
@pytest.mark.parametrize("size", [1, 2, 1000])
def test_one_element_that_is_something_else_is_a_mismatch(dtype: str, tolerance: float, size: int) -> None:
    spec, right = TensorSpec("y", DType(dtype), (size,)), np.zeros(size, dtype)
    found = right.copy()
    assert compare((spec,), [found], [right], tolerance)[0].max_abs_error == 0.0
    found[0] = 1
    with pytest.raises(IngotError) as caught:
        compare((spec,), [found], [right], tolerance)
    assert caught.value.code is ErrorCode.NUMERIC_MISMATCH


def test_a_rounding_of_floats_is_told() -> None:
    right = np.array([1.0, -4.0], np.float32)
    (report,) = compare((TensorSpec("y", DType.FLOAT32, (2,)),), [right + np.float32(2**-9)], [right], TOLERANCE)
    assert (report.max_abs_error, report.max_rel_error) == (2**-9, 2**-11)
