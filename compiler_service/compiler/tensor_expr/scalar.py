"""Functions of one or two scalars, spelled as in a formula."""

from __future__ import annotations

from shared_ir.dtype import DType
from shared_ir.expr import Binary, BinaryOp, Const, Expr, Unary, UnaryOp, cast, equal, lift, maximum, minimum, select
from shared_ir.expr.dim import Dim


def exp(x: Expr) -> Expr:
    return Unary(UnaryOp.EXP, x)


def exp_minus_one(x: Expr) -> Expr:
    return Unary(UnaryOp.EXPM1, x)


def log(x: Expr) -> Expr:
    return Unary(UnaryOp.LOG, x)


def sqrt(x: Expr) -> Expr:
    return Unary(UnaryOp.SQRT, x)


def rsqrt(x: Expr) -> Expr:
    return Unary(UnaryOp.RSQRT, x)


def reciprocal(x: Expr) -> Expr:
    return Unary(UnaryOp.RECIPROCAL, x)


def inverse(count: Expr, dtype: DType) -> Expr:
    """``1 / count`` of an int64, as a float; a number when ``count`` is one."""
    if isinstance(count, Const) and count.value:
        return lift(1 / count.value, dtype)
    return lift(1, dtype) / cast(count, dtype)


def absolute(x: Expr) -> Expr:
    return Unary(UnaryOp.ABS, x) if x.dtype.is_signed else x


def rounded(x: Expr) -> Expr:
    """Half to even."""
    return Unary(UnaryOp.ROUND, x)


def floored(x: Expr) -> Expr:
    return Unary(UnaryOp.FLOOR, x)


def ceiling(x: Expr) -> Expr:
    return Unary(UnaryOp.CEIL, x)


def tanh(x: Expr) -> Expr:
    return Unary(UnaryOp.TANH, x)


def erf(x: Expr) -> Expr:
    return Unary(UnaryOp.ERF, x)


def sigmoid(x: Expr) -> Expr:
    return Unary(UnaryOp.SIGMOID, x)


def is_nan(x: Expr) -> Expr:
    return Unary(UnaryOp.IS_NAN, x)


def is_inf(x: Expr) -> Expr:
    return Unary(UnaryOp.IS_INF, x)


def logical_not(x: Expr) -> Expr:
    return Unary(UnaryOp.NOT, x)


def power(x: Expr, y: Expr) -> Expr:
    return Binary(BinaryOp.POW, x, y)


def clamped(position: Expr, extent: Dim) -> Expr:
    """``position`` brought to the nearest one of ``[0, extent)``."""
    return maximum(minimum(position, lift(extent) - 1), 0)


def sign(x: Expr) -> Expr:
    """-1, 0 or 1; NaN stays."""
    positive = select(x > 0, 1, select(equal(x, 0), 0, x) if x.dtype.is_float else x)  # -0 has no sign
    return select(x < 0, -1, positive) if x.dtype.is_signed else positive


def softplus(x: Expr) -> Expr:
    """``log(1 + exp(x))`` without overflow, and without loss where the exponential is small.

    What is lost of it in the sum is given back, as Kahan does, times ``2 - w`` for ``1 / w``: they differ where it no longer matters.
    """
    power = exp(-absolute(x))
    w = power + 1
    return select(x > 0, x, 0) + (log(w) + (power - (w - 1)) * (2 - w))


def bit_and(a: Expr, b: Expr) -> Expr:
    return Binary(BinaryOp.AND, a, b)


def bit_or(a: Expr, b: Expr) -> Expr:
    return Binary(BinaryOp.OR, a, b)


def bit_xor(a: Expr, b: Expr) -> Expr:
    return Binary(BinaryOp.XOR, a, b)


def shift_left(x: Expr, count: Expr) -> Expr:
    return Binary(BinaryOp.SHL, x, count)


def shift_right(x: Expr, count: Expr) -> Expr:
    return Binary(BinaryOp.SHR, x, count)
