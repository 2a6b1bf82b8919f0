"""The numpy meaning of every scalar operator: what the evaluator and the loop-IR interpreter compute.

Floats keep their own width. Integers wrap. Where C leaves an answer undefined, this is ours: a division or modulo by
zero gives 0 (operators of a model are checked before, see ``frontend/requirements/operand_checks.py``), a shift by the width or more
(or by a negative count) gives 0, an integer to a negative power is truncated like ``1 / x``, a float beyond the range of an
integer becomes the end of that range, and NaN 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np

from compiler_service.compiler.tensor_expr.meaning.rounding import EXACT, Array, correctly_rounded
from shared_ir.arrays import dtype_of, storage_dtype
from shared_ir.dtype import DType
from shared_ir.expr import BinaryOp, UnaryOp

UnaryFunction: TypeAlias = Callable[[Array], Array]
BinaryFunction: TypeAlias = Callable[[Array, Array], Array]
AnyFunction: TypeAlias = Callable[..., Any]


def cast(array: Array, dtype: DType) -> Array:
    """``array`` converted: to floats by rounding to nearest even, to integers by truncation, to bool by ``!= 0``.

    Integers out of range wrap; floats saturate in integers, of which those below a byte keep the low bits, and become infinite
    in floats (NaN in formats without infinity).
    """
    array = np.asarray(array)
    target = storage_dtype(dtype)
    if array.dtype == target:
        return array
    with np.errstate(all="ignore"):
        if _is_float(array.dtype):
            if dtype.is_integer:
                return _saturated(array, DType.INT32 if dtype.bits < 8 else dtype).astype(target)
            if array.dtype == np.float64 and dtype.arithmetic is not dtype:
                array = _rounded_to_odd(array)
        elif array.dtype.kind in "iu" and array.dtype.itemsize > 2 and dtype.arithmetic is not dtype:
            array = array.astype(np.float32)  # as kernels do: rounded twice
        return array.astype(target)


def _is_float(dtype: np.dtype[Any]) -> bool:
    return dtype.kind == "f" or dtype_of(np.empty(0, dtype)).is_float


def _saturated(array: Array, dtype: DType) -> Array:
    """Floats as integers of ``dtype``: truncated, at the ends of the range beyond it, 0 for NaN."""
    least, largest = dtype.limits
    wide = array.astype(np.float64, copy=False)
    inside = (wide > least - 1.0) & (wide < largest + 1.0)
    whole = np.where(inside, wide, 0.0).astype(dtype.numpy)
    whole[wide >= largest + 1.0] = largest
    whole[wide <= least - 1.0] = least
    return whole


def _rounded_to_odd(x: Array) -> Array:
    """float64 as float32 with the last bit set where it is inexact: rounded once more, the result is that of one rounding."""
    near = x.astype(np.float32)
    pattern = near.view(np.uint32)
    towards_zero = np.where(np.abs(near.astype(np.float64)) > np.abs(x), pattern - 1, pattern)
    inexact = (near != x) & ~np.isnan(x)
    return np.where(inexact, towards_zero | 1, pattern).astype(np.uint32).view(np.float32).reshape(x.shape)


def reinterpret(array: Array, dtype: DType) -> Array:
    """The bit patterns of ``array`` as ``dtype`` of the same width; any pattern but 0 is true."""
    if dtype is DType.BOOL:
        return np.not_equal(np.ascontiguousarray(array).view(np.uint8), 0)
    return np.ascontiguousarray(array).view(storage_dtype(dtype)).reshape(np.shape(array))


_erf = np.frompyfunc(math.erf, 1, 1)


def _keep(function: AnyFunction) -> AnyFunction:
    """``function`` with its result brought back to the dtype of the first operand."""

    def kept(x: Array, *rest: Array) -> Array:
        return np.asarray(function(x, *rest)).astype(np.asarray(x).dtype, copy=False)

    return kept


def _erf_array(x: Array) -> Array:
    return np.asarray(_erf(np.asarray(x, np.float64)), np.float64)


def _precise(function: AnyFunction, exact: AnyFunction, wide: type[np.floating[Any]] | None = None) -> AnyFunction:
    return correctly_rounded(function, exact, cast, wide=wide)


def _sigmoid(x: Array) -> Array:
    small = np.exp(-np.abs(x))  # never overflows
    one = np.ones((), x.dtype)
    return np.asarray(np.where(x >= 0, one / (one + small), small / (one + small)))


def _popcount(x: Array) -> Array:
    x = np.asarray(x)
    return np.asarray(np.bitwise_count(x.view(f"u{x.dtype.itemsize}")))  # numpy counts the bits of |x| on signed types


def _truncated_quotient(a: Array, b: Array) -> Array:
    return np.asarray(np.floor_divide(a - np.fmod(a, b), b))


def _floor_quotient(a: Array, b: Array) -> Array:
    return np.where(b == 0, np.zeros((), a.dtype), np.floor_divide(a, b))


_float_power = _precise(np.power, EXACT.power)


def _power(a: Array, b: Array) -> Array:
    if not np.issubdtype(a.dtype, np.integer):
        return np.asarray(_float_power(a, b))
    # 1 / a truncated is a itself for 1, -1 (to an odd power) and 0, and 0 for the rest
    inverse = np.where(np.abs(a) == 1, np.power(a, b & 1), np.zeros((), a.dtype))
    return np.where(b < 0, inverse, np.power(a, np.maximum(b, 0)))


def _shift(function: AnyFunction) -> BinaryFunction:
    def shift(a: Array, b: Array) -> Array:
        inside = (b >= 0) & (b < np.asarray(a).dtype.itemsize * 8)
        return np.where(inside, function(a, np.where(inside, b, np.zeros((), b.dtype))), np.zeros((), a.dtype))

    return shift


def _total(function: AnyFunction) -> AnyFunction:
    """``function`` on values of every kind, without warnings about the answers fixed above."""

    def total(*operands: Array) -> Array:
        with np.errstate(all="ignore"):
            return np.asarray(function(*operands))

    return total


_UNARY: Mapping[UnaryOp, AnyFunction] = MappingProxyType(
    {
        UnaryOp.NEG: _keep(np.negative),
        UnaryOp.NOT: np.logical_not,
        UnaryOp.BIT_NOT: np.invert,
        UnaryOp.ABS: _keep(np.abs),
        UnaryOp.FLOOR: _keep(np.floor),
        UnaryOp.CEIL: _keep(np.ceil),
        UnaryOp.ROUND: _keep(np.rint),
        UnaryOp.TRUNC: _keep(np.trunc),
        UnaryOp.SQRT: _keep(np.sqrt),
        UnaryOp.RSQRT: _keep(lambda x: np.ones((), x.dtype) / np.sqrt(x)),
        UnaryOp.RECIPROCAL: _keep(lambda x: np.ones((), x.dtype) / x),
        UnaryOp.EXP: _precise(np.exp, EXACT.exp),
        UnaryOp.EXPM1: _precise(np.expm1, EXACT.expm1),
        UnaryOp.LOG: _precise(np.log, EXACT.log),
        UnaryOp.SIN: _precise(np.sin, EXACT.sin, np.longdouble),
        UnaryOp.COS: _precise(np.cos, EXACT.cos, np.longdouble),
        UnaryOp.TAN: _precise(np.tan, EXACT.tan, np.longdouble),
        UnaryOp.ASIN: _precise(np.arcsin, EXACT.asin),
        UnaryOp.ACOS: _precise(np.arccos, EXACT.acos),
        UnaryOp.ATAN: _precise(np.arctan, EXACT.atan),
        UnaryOp.SINH: _precise(np.sinh, EXACT.sinh),
        UnaryOp.COSH: _precise(np.cosh, EXACT.cosh),
        UnaryOp.TANH: _precise(np.tanh, EXACT.tanh),
        UnaryOp.ASINH: _precise(np.arcsinh, EXACT.asinh),
        UnaryOp.ACOSH: _precise(np.arccosh, EXACT.acosh),
        UnaryOp.ATANH: _precise(np.arctanh, EXACT.atanh),
        UnaryOp.ERF: _precise(_erf_array, EXACT.erf, np.float64),
        UnaryOp.SIGMOID: _precise(_sigmoid, lambda x: 1 / (1 + EXACT.exp(-x))),
        UnaryOp.IS_NAN: np.isnan,
        UnaryOp.IS_INF: np.isinf,
        UnaryOp.POPCOUNT: _keep(_popcount),
    }
)
UNARY: Mapping[UnaryOp, UnaryFunction] = MappingProxyType({op: _total(f) for op, f in _UNARY.items()})
"""Result dtype = operand dtype, but bool for NOT, IS_NAN and IS_INF."""


def _dot4(lhs: Array, rhs: Array, kind: type[np.generic] = np.uint8) -> Array:
    total = np.zeros(np.broadcast_shapes(lhs.shape, rhs.shape), np.int32)
    for byte in range(4):
        left, right = (np.asarray(word) >> (8 * byte) for word in (lhs, rhs))
        total += left.astype(kind).astype(np.int32) * right.astype(np.int8).astype(np.int32)
    return total


_BINARY: Mapping[BinaryOp, AnyFunction] = MappingProxyType(
    {
        BinaryOp.ADD: _keep(np.add),
        BinaryOp.SUB: _keep(np.subtract),
        BinaryOp.MUL: _keep(np.multiply),
        BinaryOp.DIV: _keep(np.divide),
        BinaryOp.FLOOR_DIV: _keep(_floor_quotient),
        BinaryOp.FLOOR_MOD: _keep(np.mod),
        BinaryOp.TRUNC_DIV: _keep(_truncated_quotient),
        BinaryOp.TRUNC_MOD: _keep(np.fmod),
        BinaryOp.MIN: _keep(np.minimum),
        BinaryOp.MAX: _keep(np.maximum),
        BinaryOp.MAX_NUMBER: _keep(np.fmax),
        BinaryOp.POW: _keep(_power),
        BinaryOp.ATAN2: _precise(np.arctan2, EXACT.atan2),
        BinaryOp.DOT4: _keep(_dot4),
        BinaryOp.SIGNED_DOT4: _keep(lambda lhs, rhs: _dot4(lhs, rhs, np.int8)),
        BinaryOp.AND: np.bitwise_and,
        BinaryOp.OR: np.bitwise_or,
        BinaryOp.XOR: np.bitwise_xor,
        BinaryOp.SHL: _shift(np.left_shift),
        BinaryOp.SHR: _shift(np.right_shift),
        BinaryOp.LT: np.less,
        BinaryOp.LE: np.less_equal,
        BinaryOp.GT: np.greater,
        BinaryOp.GE: np.greater_equal,
        BinaryOp.EQ: np.equal,
        BinaryOp.NE: np.not_equal,
    }
)
BINARY: Mapping[BinaryOp, BinaryFunction] = MappingProxyType({op: _total(f) for op, f in _BINARY.items()})
"""Both operands have one dtype, which is the dtype of the result; comparisons give bool."""


EXTREMA = frozenset({BinaryOp.MIN, BinaryOp.MAX, BinaryOp.MAX_NUMBER})
DIVISIONS = frozenset({BinaryOp.FLOOR_DIV, BinaryOp.FLOOR_MOD, BinaryOp.TRUNC_DIV, BinaryOp.TRUNC_MOD})
_MOVES = frozenset({UnaryOp.NEG, UnaryOp.ABS, *EXTREMA})
_LEAST_NORMAL: Mapping[DType, float] = MappingProxyType(
    {DType.FLOAT32: 2.0**-126, DType.BFLOAT16: 2.0**-126, DType.FLOAT64: 2.0**-1022}
)


def is_left_to_target(op: UnaryOp | BinaryOp | None, array: Array) -> bool:
    """Whether ``array``, computed by ``op`` (None: a conversion), has elements below the least normal number: targets differ
    in whether they are kept (``codegen/native/float_mode.c``)."""
    least = None if op in _MOVES else _LEAST_NORMAL.get(dtype_of(array)) if array.dtype.kind in "fV" else None
    return least is not None and bool(np.any((array != 0) & (np.abs(array) < least)))


def has_both_zeros(a: Array, b: Array) -> bool:
    """Whether a maximum or minimum would choose between 0 and -0: targets differ in which they take."""
    if a.dtype.kind not in "fV":
        return False
    return any(
        bool(np.any(p & q)) for p, q in ((_zeros(a, False), _zeros(b, True)), (_zeros(a, True), _zeros(b, False)))
    )


def _zeros(x: Array, negative: bool) -> Array:
    return np.asarray((x == 0) & (np.signbit(x) == negative))


def largest_finite(dtype: DType) -> float:
    """The largest number of a floating-point type."""
    return float(ml_dtypes.finfo(storage_dtype(dtype)).max)
