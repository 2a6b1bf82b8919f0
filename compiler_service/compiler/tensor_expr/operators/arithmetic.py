"""Elementwise arithmetic: numbers and bits."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

from compiler_service.compiler.tensor_expr.broadcast import elementwise
from compiler_service.compiler.tensor_expr.meaning.known import known_scalar
from compiler_service.compiler.tensor_expr.operator import Operator
from compiler_service.compiler.tensor_expr.refusal import mismatch, unsupported_attribute
from compiler_service.compiler.tensor_expr.scalar import absolute, power, sign, sqrt
from compiler_service.compiler.tensor_expr.tensor import Tensor
from shared_ir.dtype import DType
from shared_ir.expr import (
    Binary,
    BinaryOp,
    Expr,
    Unary,
    UnaryOp,
    binary,
    cast,
    logical_and,
    logical_or,
    maximum,
    minimum,
    not_equal,
    select,
)


def _unary(name: str, function: Callable[[Expr], Expr]) -> Operator:
    def define(x: Tensor) -> Tensor:
        return elementwise(name.lower(), function, x)

    return Operator(name, define)


def _math(name: str, op: UnaryOp) -> Operator:
    return _unary(name, lambda x: Unary(op, x))


def _same_dtype(name: str, *tensors: Tensor) -> None:
    if len({t.dtype for t in tensors}) > 1:
        received = ", ".join(t.dtype for t in tensors)
        raise mismatch(f"the inputs of {name} have different element types", "one element type", received)


def _binary(name: str, function: Callable[[Expr, Expr], Expr]) -> Operator:
    def define(a: Tensor, b: Tensor) -> Tensor:
        _same_dtype(name, a, b)
        return elementwise(name.lower(), function, a, b)

    return Operator(name, define)


def _variadic(name: str, function: Callable[[Expr, Expr], Expr]) -> Operator:
    def define(*tensors: Tensor) -> Tensor:
        _same_dtype(name, *tensors)
        return elementwise(name.lower(), lambda *xs: reduce(function, xs), *tensors)

    return Operator(name, define)


def quotient(a: Expr, b: Expr) -> Expr:
    """Integers truncate towards zero."""
    return binary(BinaryOp.DIV if a.dtype.is_float else BinaryOp.TRUNC_DIV, a, b)


def mean(*tensors: Tensor) -> Tensor:
    _same_dtype("Mean", *tensors)
    return elementwise("mean", lambda *xs: reduce(lambda a, b: a + b, xs) * (1 / len(xs)), *tensors)


def mod(a: Tensor, b: Tensor, *, fmod: int = 0) -> Tensor:
    """With ``fmod`` the sign of the dividend, else that of the divisor."""

    def remainder(x: Expr, y: Expr) -> Expr:
        if not fmod and x.dtype.is_integer:
            return x % y
        truncated = binary(BinaryOp.TRUNC_MOD, x, y)
        if fmod:
            return truncated
        other_sign = not_equal(truncated < 0, y < 0)
        return select(logical_and(not_equal(truncated, 0), other_sign), truncated + y, truncated)

    _same_dtype("Mod", a, b)
    return elementwise("mod", remainder, a, b)


_POWERS: dict[float, Callable[[Expr], Expr]] = {
    0.5: sqrt,
    1: lambda x: x,
    2: lambda x: x * x,
    3: lambda x: x * x * x,
}


def pow_(x: Tensor, y: Tensor) -> Tensor:
    """``x ** y`` in the element type of ``x``; small constant exponents become multiplications."""
    exponent = known_scalar(y)
    if x.dtype.is_float and exponent in _POWERS:
        return elementwise("pow", lambda a, _: _POWERS[exponent](a), x, y)
    common = DType.FLOAT64 if x.dtype.is_integer and y.dtype.is_float else None

    def body(a: Expr, b: Expr) -> Expr:
        return cast(power(cast(a, common or a.dtype), cast(b, common or a.dtype)), a.dtype)

    return elementwise("pow", body, x, y)


def bit_shift(x: Tensor, y: Tensor, *, direction: str) -> Tensor:
    """Shifts by the width or more, or by a negative count, shift everything out."""
    if direction not in ("LEFT", "RIGHT"):
        raise unsupported_attribute("direction", "LEFT or RIGHT", direction)
    _same_dtype("BitShift", x, y)
    op = BinaryOp.SHL if direction == "LEFT" else BinaryOp.SHR

    def shifted(a: Expr, b: Expr) -> Expr:
        if op is BinaryOp.SHR and a.dtype.is_signed:  # far shifts leave the sign
            top = a.dtype.bits - 1
            b = select(logical_or(b < 0, b > top), top, b)
        return Binary(op, a, b)

    return elementwise("bit_shift", shifted, x, y)


OPERATORS = (
    _binary("Add", lambda a, b: a + b),
    _binary("Sub", lambda a, b: a - b),
    _binary("Mul", lambda a, b: a * b),
    _binary("Div", quotient),
    _variadic("Max", maximum),
    _variadic("Min", minimum),
    _variadic("Sum", lambda a, b: a + b),
    Operator("Mean", mean),
    Operator("Mod", mod),
    Operator("Pow", pow_),
    _unary("Neg", lambda x: -x),
    _unary("Abs", absolute),
    _unary("Sign", sign),
    _math("Sqrt", UnaryOp.SQRT),
    _math("Reciprocal", UnaryOp.RECIPROCAL),
    _math("Exp", UnaryOp.EXP),
    _math("Log", UnaryOp.LOG),
    _math("Floor", UnaryOp.FLOOR),
    _math("Ceil", UnaryOp.CEIL),
    _math("Round", UnaryOp.ROUND),
    _math("Erf", UnaryOp.ERF),
    _math("Sin", UnaryOp.SIN),
    _math("Cos", UnaryOp.COS),
    _math("Tan", UnaryOp.TAN),
    _math("Asin", UnaryOp.ASIN),
    _math("Acos", UnaryOp.ACOS),
    _math("Atan", UnaryOp.ATAN),
    _math("Sinh", UnaryOp.SINH),
    _math("Cosh", UnaryOp.COSH),
    _math("Tanh", UnaryOp.TANH),
    _math("Asinh", UnaryOp.ASINH),
    _math("Acosh", UnaryOp.ACOSH),
    _math("Atanh", UnaryOp.ATANH),
    _binary("And", lambda a, b: Binary(BinaryOp.AND, a, b)),
    _binary("Or", lambda a, b: Binary(BinaryOp.OR, a, b)),
    _binary("Xor", lambda a, b: Binary(BinaryOp.XOR, a, b)),
    _math("Not", UnaryOp.NOT),
    _binary("BitwiseAnd", lambda a, b: Binary(BinaryOp.AND, a, b)),
    _binary("BitwiseOr", lambda a, b: Binary(BinaryOp.OR, a, b)),
    _binary("BitwiseXor", lambda a, b: Binary(BinaryOp.XOR, a, b)),
    _math("BitwiseNot", UnaryOp.BIT_NOT),
    Operator("BitShift", bit_shift),
)
