"""Scalar arithmetic in the bodies of computations, beside ``+ - * / // % < <= > >=`` of the expressions themselves.

Operands are expressions or Python numbers; a number takes the element type of the operand beside it. The functions of
:mod:`math` take floats (float16, bfloat16, float32, float64) and compute in the type of their operand.
"""

from __future__ import annotations

from functools import reduce as fold

from compiler_service.compiler.tensor_expr import scalar
from shared_ir.dtype import DType
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.expr import BinaryOp, Expr, Scalar, Unary, UnaryOp, Var, binary, lift, logical_and, logical_or
from shared_ir.expr import cast as convert
from shared_ir.expr import equal as is_equal
from shared_ir.expr import maximum as larger
from shared_ir.expr import minimum as smaller
from shared_ir.expr import not_equal as is_not_equal
from shared_ir.expr import select as choose
from shared_ir.expr.dim import symbol

Dim = int | Expr
"""An extent: a number, or arithmetic (``+ - * // %``) on the symbols that :func:`var` makes."""


def var(name: str) -> Var:
    """A symbol for an extent that is known when the function is called, an integer of at least 0.

    Raises:
        IngotError: INVALID_ARGUMENT, ``name`` is no identifier.
    """
    if not isinstance(name, str) or not name.isidentifier():
        raise IngotError(
            ErrorCode.INVALID_ARGUMENT,
            "the name of a symbol is no identifier",
            expected="a name such as 'n'",
            received=str(name),
        )
    return symbol(name)


def dtype_of(name: str | DType) -> DType:
    """The element type called ``name``, such as ``float32``.

    Raises:
        IngotError: UNSUPPORTED_DTYPE.
    """
    try:
        return DType(name)
    except ValueError:
        raise IngotError(
            ErrorCode.UNSUPPORTED_DTYPE,
            "there is no such element type",
            expected="float32, int64, ...",
            received=str(name),
            remedy="Give the name of a type of numpy or ONNX.",
        ) from None


def const(value: Scalar, dtype: str | DType = DType.FLOAT32) -> Expr:
    """A number of the given element type."""
    return lift(value, dtype_of(dtype))


def cast(x: Expr, dtype: str | DType) -> Expr:
    """``x`` converted as ONNX ``Cast`` does it."""
    return convert(x, dtype_of(dtype))


def select(condition: Expr, then: Expr | Scalar, otherwise: Expr | Scalar) -> Expr:
    """``then`` where ``condition`` holds, else ``otherwise``; what is not chosen is not read from memory.

    Raises:
        IngotError: TYPE_MISMATCH, the condition is no expression, such as what ``==`` of two expressions gives.
    """
    return choose(_condition(condition), then, otherwise)


def equal(a: Expr | Scalar, b: Expr | Scalar) -> Expr:
    """Whether both are equal (``==`` of expressions compares them as Python objects)."""
    return is_equal(a, b)


def not_equal(a: Expr | Scalar, b: Expr | Scalar) -> Expr:
    """Whether they differ; NaN differs from everything."""
    return is_not_equal(a, b)


def all_of(*conditions: Expr) -> Expr:
    """Whether every condition holds. Raises as :func:`select`."""
    return fold(logical_and, map(_condition, conditions))


def any_of(*conditions: Expr) -> Expr:
    """Whether a condition holds. Raises as :func:`select`."""
    return fold(logical_or, map(_condition, conditions))


def _condition(given: Expr) -> Expr:
    if isinstance(given, Expr):
        return given
    raise IngotError(
        ErrorCode.TYPE_MISMATCH,
        "a condition is no expression",
        expected="a comparison of expressions: a < b, te.equal(a, b), te.not_equal(a, b)",
        received=repr(given)[:80],
        remedy="`==` and `!=` of expressions compare them as Python objects.",
    )


def maximum(a: Expr | Scalar, b: Expr | Scalar) -> Expr:
    """The larger one; NaN where one is NaN."""
    return larger(a, b)


def minimum(a: Expr | Scalar, b: Expr | Scalar) -> Expr:
    """The smaller one; NaN where one is NaN."""
    return smaller(a, b)


def power(x: Expr | Scalar, exponent: Expr | Scalar) -> Expr:
    """``x`` to the power of ``exponent``, as C ``pow``."""
    return binary(BinaryOp.POW, x, exponent)


def exp(x: Expr) -> Expr:
    """``e`` to the power of ``x``."""
    return scalar.exp(x)


def log(x: Expr) -> Expr:
    """The natural logarithm."""
    return scalar.log(x)


def sqrt(x: Expr) -> Expr:
    """The square root; NaN of what is below 0."""
    return scalar.sqrt(x)


def rsqrt(x: Expr) -> Expr:
    """``1 / sqrt(x)``."""
    return scalar.rsqrt(x)


def sin(x: Expr) -> Expr:
    """The sine of ``x`` radians."""
    return Unary(UnaryOp.SIN, x)


def cos(x: Expr) -> Expr:
    """The cosine of ``x`` radians."""
    return Unary(UnaryOp.COS, x)


def tanh(x: Expr) -> Expr:
    """The hyperbolic tangent."""
    return scalar.tanh(x)


def erf(x: Expr) -> Expr:
    """The error function."""
    return scalar.erf(x)


def sigmoid(x: Expr) -> Expr:
    """``1 / (1 + exp(-x))``."""
    return scalar.sigmoid(x)


def absolute(x: Expr) -> Expr:
    """``x`` without its sign."""
    return scalar.absolute(x)


def floor(x: Expr) -> Expr:
    """The largest whole number that is not above ``x``."""
    return scalar.floored(x)


def ceil(x: Expr) -> Expr:
    """The smallest whole number that is not below ``x``."""
    return scalar.ceiling(x)


def round_to_even(x: Expr) -> Expr:
    """The nearest whole number; of two, the even one."""
    return scalar.rounded(x)
