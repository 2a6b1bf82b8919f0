"""Comparisons and tests."""

from __future__ import annotations

from collections.abc import Callable

from compiler_service.compiler.tensor_expr.broadcast import elementwise
from compiler_service.compiler.tensor_expr.operator import Operator
from compiler_service.compiler.tensor_expr.refusal import mismatch
from compiler_service.compiler.tensor_expr.scalar import is_inf, is_nan
from compiler_service.compiler.tensor_expr.tensor import Tensor
from shared_ir.dtype import DType
from shared_ir.expr import Expr, equal, lift, logical_and


def _comparison(name: str, function: Callable[[Expr, Expr], Expr]) -> Operator:
    def define(a: Tensor, b: Tensor) -> Tensor:
        if a.dtype is not b.dtype:
            raise mismatch(f"the inputs of {name} have different element types", a.dtype, b.dtype)
        return elementwise(name.lower(), function, a, b)

    return Operator(name, define)


def isnan(x: Tensor) -> Tensor:
    return elementwise("is_nan", is_nan, x)


def isinf(x: Tensor, *, detect_negative: int = 1, detect_positive: int = 1) -> Tensor:
    def body(v: Expr) -> Expr:
        if detect_negative and detect_positive:
            return is_inf(v)
        if not detect_negative and not detect_positive:
            return lift(False, DType.BOOL)
        return logical_and(is_inf(v), v > 0 if detect_positive else v < 0)

    return elementwise("is_inf", body, x)


OPERATORS = (
    _comparison("Equal", equal),
    _comparison("Less", lambda a, b: a < b),
    _comparison("LessOrEqual", lambda a, b: a <= b),
    _comparison("Greater", lambda a, b: a > b),
    _comparison("GreaterOrEqual", lambda a, b: a >= b),
    Operator("IsNaN", isnan),
    Operator("IsInf", isinf),
)
