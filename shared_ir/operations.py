"""The operators of scalar expressions (:mod:`shared_ir.expr`)."""

from __future__ import annotations

import enum


class UnaryOp(enum.StrEnum):
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
    POW = "pow"
    ATAN2 = "atan2"
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
