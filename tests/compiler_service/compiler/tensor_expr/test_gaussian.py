"""The normal distribution against the complementary error function in double precision."""

from __future__ import annotations

import math

import numpy as np
import pytest

from compiler_service.compiler.tensor_expr.gaussian import normal_distribution
from compiler_service.compiler.tensor_expr.meaning.evaluate import evaluate
from compiler_service.compiler.tensor_expr.operators.activation import gelu
from compiler_service.compiler.tensor_expr.tensor import compute, placeholder
from shared_ir.dtype import DType


@pytest.mark.parametrize(("dtype", "error"), [(DType.FLOAT32, 3.5e-7), (DType.FLOAT64, 1e-15)])
def test_normal_distribution(dtype: DType, error: float) -> None:
    values = np.concatenate([np.linspace(-9, 9, 20001), [0.0, 1e-30, -1e-30, 1e30, -1e30]]).astype(dtype.numpy)
    x = placeholder("x", (len(values),), dtype)
    (found,) = evaluate([compute(x.shape, lambda i: normal_distribution(x[i]))], {x: values}, {})
    wanted = np.array([math.erfc(-v / math.sqrt(2)) / 2 for v in values.astype(np.float64)])
    assert np.abs(found - wanted).max() < error
    if dtype is DType.FLOAT32:
        assert set(found[values < -5.45].tolist()) == {0.0}
        assert set(found[values > 5.45].tolist()) == {1.0}


def test_gelu_of_special_values() -> None:
    values = np.array([0.0, -0.0, np.inf, np.nan, -1e4, 1e4], np.float32)
    x = placeholder("x", values.shape, DType.FLOAT32)
    (found,) = evaluate([gelu(x)], {x: values}, {})
    np.testing.assert_array_equal(found, np.array([0.0, 0.0, np.inf, np.nan, 0.0, 1e4], np.float32))
