"""The operators of scalar expressions (:mod:`shared_ir.expr`)."""

from __future__ import annotations

import enum
import operator
from collections.abc import Callable, Mapping
from typing import Any

from shared_ir.dtype import DType


class UnaryOp(enum.StrEnum):
    """Operators of one operand, each called as C and numpy call it."""

    __hash__ = str.__hash__

    NEG = "neg"
    NOT = "not"  # logical on bool
    BIT_NOT = "bit_not"
    ABS = "abs"
    FLOOR = "floor"
    CEIL = "ceil"
    ROUND = "round"  # half to even
    TRUNC = "trunc"
    SQRT = "sqrt"
    RSQRT = "rsqrt"
    RECIPROCAL = "reciprocal"
    EXP = "exp"
    EXPM1 = "expm1"  # exp(x) - 1 without loss near 0
    LOG = "log"
    SIN = "sin"
    COS = "cos"
    TAN = "tan"
    ASIN = "asin"
    ACOS = "acos"
    ATAN = "atan"
    SINH = "sinh"
    COSH = "cosh"
    TANH = "tanh"
    ASINH = "asinh"
    ACOSH = "acosh"
    ATANH = "atanh"
    ERF = "erf"
    SIGMOID = "sigmoid"
    IS_NAN = "is_nan"
    IS_INF = "is_inf"
    POPCOUNT = "popcount"


class BinaryOp(enum.StrEnum):
    """Operators of two operands of one element type."""

    __hash__ = str.__hash__

    ADD = "add"
    SUB = "sub"
    MUL = "mul"
    DIV = "div"  # floats
    FLOOR_DIV = "floor_div"  # integers
    FLOOR_MOD = "floor_mod"
    TRUNC_DIV = "trunc_div"
    TRUNC_MOD = "trunc_mod"  # C fmod on floats
    MIN = "min"  # NaN in either operand gives NaN
    MAX = "max"
    MAX_NUMBER = "max_number"  # the larger; where rhs is NaN lhs, where lhs is NaN either: one instruction everywhere
    POW = "pow"
    ATAN2 = "atan2"
    DOT4 = "dot4"  # words of four bytes: unsigned ones of lhs times signed ones of rhs, added up in int32
    SIGNED_DOT4 = "signed_dot4"  # the same of signed bytes in both
    AND = "and"  # logical on bool, bitwise on integers
    OR = "or"
    XOR = "xor"
    SHL = "shl"
    SHR = "shr"
    LT = "lt"
    LE = "le"
    GT = "gt"
    GE = "ge"
    EQ = "eq"
    NE = "ne"


COMPARISONS = frozenset({BinaryOp.LT, BinaryOp.LE, BinaryOp.GT, BinaryOp.GE, BinaryOp.EQ, BinaryOp.NE})
PREDICATES = frozenset({UnaryOp.NOT, UnaryOp.IS_NAN, UnaryOp.IS_INF})

DOT4_OF: Mapping[DType, BinaryOp] = {DType.UINT8: BinaryOp.DOT4, DType.INT8: BinaryOp.SIGNED_DOT4}
"""Dot products of four bytes, by the type of the left ones."""

INFIX = {
    BinaryOp.ADD: ("+", 4), BinaryOp.SUB: ("-", 4), BinaryOp.MUL: ("*", 5), BinaryOp.DIV: ("/", 5),
    BinaryOp.FLOOR_DIV: ("//", 5), BinaryOp.FLOOR_MOD: ("%", 5), BinaryOp.LT: ("<", 3), BinaryOp.LE: ("<=", 3),
    BinaryOp.GT: (">", 3), BinaryOp.GE: (">=", 3), BinaryOp.EQ: ("==", 3), BinaryOp.NE: ("!=", 3),
    BinaryOp.AND: ("and", 2), BinaryOp.OR: ("or", 1),
}  # fmt: skip
"""How binary operators that have a sign are written: the sign, and how tightly it binds."""

INTEGER_MEANING: Mapping[BinaryOp, Callable[[Any, Any], Any]] = {
    BinaryOp.ADD: operator.add,
    BinaryOp.SUB: operator.sub,
    BinaryOp.MUL: operator.mul,
    BinaryOp.FLOOR_DIV: operator.floordiv,
    BinaryOp.FLOOR_MOD: operator.mod,
    BinaryOp.MIN: min,
    BinaryOp.MAX: max,
    BinaryOp.LT: operator.lt,
    BinaryOp.LE: operator.le,
    BinaryOp.GT: operator.gt,
    BinaryOp.GE: operator.ge,
    BinaryOp.EQ: operator.eq,
    BinaryOp.NE: operator.ne,
}
"""What binary operators do to integers. Division by 0 means nothing."""
