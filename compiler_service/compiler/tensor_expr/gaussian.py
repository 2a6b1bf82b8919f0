"""The normal distribution in single precision, as a quotient of polynomials: half the price of the error function."""

from __future__ import annotations

import math
from collections.abc import Sequence

from compiler_service.compiler.tensor_expr.scalar import erf
from shared_ir.dtype import DType
from shared_ir.expr import Expr, lift, maximum, minimum

_LARGEST = 5.444722215136417
_SCALE = 1 + 1.2e-7
"""Enough for the quotient to reach 1/2 at the ends, whatever way it is rounded."""
_NUMERATOR = (
    0.39894235134124756,
    0.033215977251529694,
    0.004638596437871456,
    0.00016236651572398841,
    6.312557161436416e-06,
    2.3293239337363048e-08,
)
_DENOMINATOR = (
    1.0,
    0.24992646276950836,
    0.02828226052224636,
    0.0018481126753613353,
    7.159371307352558e-05,
    1.2103647577532683e-06,
)
"""erf(x / sqrt(2)) / 2 / x = N(x^2) / D(x^2), Remez on [0, 5.44]."""


def normal_distribution(x: Expr) -> Expr:
    """``(1 + erf(x / sqrt(2))) / 2``; for float32 within 3.5e-7, and exactly 0 and 1 beyond +-5.45."""
    if x.dtype is not DType.FLOAT32:
        return (erf(x * math.sqrt(0.5)) + 1) * 0.5
    near = maximum(minimum(x, _LARGEST), -_LARGEST)
    square = near * near
    quotient = near * _polynomial(square, [c * _SCALE for c in _NUMERATOR]) / _polynomial(square, _DENOMINATOR)
    return maximum(minimum(quotient, 0.5), -0.5) + 0.5


def _polynomial(x: Expr, coefficients: Sequence[float]) -> Expr:
    total = lift(coefficients[-1], x.dtype)
    for c in reversed(coefficients[:-1]):
        total = total * x + c
    return total
