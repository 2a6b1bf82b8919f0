"""What single operations of the interpreter compute: numpy in their own types, Python numbers where that is the same and quicker."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np

from compiler_service.compiler.loop_ir.ir import (
    Broadcast,
    Ramp,
    Shuffle,
    VectorReduce,
)
from compiler_service.compiler.tensor_expr.meaning.scalar_semantics import BINARY, UNARY, cast, reinterpret
from compiler_service.compiler.tensor_expr.tensor import ReduceOp
from shared_ir.arrays import storage_dtype
from shared_ir.dtype import DType
from shared_ir.expr import Binary, BinaryOp, Cast, Const, Expr, Reinterpret, Unary

_PYTHON: Mapping[BinaryOp, Callable[[Any, Any], Any]] = {
    BinaryOp.ADD: operator.add,
    BinaryOp.SUB: operator.sub,
    BinaryOp.MUL: operator.mul,
    BinaryOp.LT: operator.lt,
    BinaryOp.LE: operator.le,
    BinaryOp.GT: operator.gt,
    BinaryOp.GE: operator.ge,
    BinaryOp.EQ: operator.eq,
    BinaryOp.NE: operator.ne,
}
"""The entries of ``BINARY`` that Python's operators compute equally, and faster on scalars."""


_ON_PYTHON = frozenset({DType.INT64, DType.FLOAT32, DType.FLOAT64})


def operation(expr: Expr, parts: list[Thunk]) -> Thunk:
    match expr:
        case Binary(op=op, lhs=lhs):
            return _binary(op, lhs.dtype, *parts)
        case Unary(op=op, x=x):
            return _unary(UNARY[op], x.dtype, *parts)
        case Cast(type=dtype, x=x) | Reinterpret(type=dtype, x=x):
            convert = cast if isinstance(expr, Cast) else reinterpret
            return _unary(lambda array: convert(array, dtype), x.dtype, *parts)
        case Ramp(lanes=lanes):
            steps = np.arange(lanes)
            base, stride = parts
            return lambda: base() + stride() * steps
        case Broadcast(lanes=lanes):
            (scalar,) = parts
            storage = storage_dtype(expr.dtype)
            return lambda: np.full(lanes, scalar(), storage)
        case Shuffle(order=order):
            first, second = parts
            picked = np.array(order)
            return lambda: np.concatenate([first(), second()])[picked]
        case VectorReduce(op=reduce):
            (vector,) = parts
            ufunc = REDUCE[reduce]
            return lambda: ufunc.reduce(vector(), dtype=storage_dtype(expr.dtype))
    raise TypeError(f"no meaning for {type(expr).__name__}")


def _binary(op: BinaryOp, dtype: DType, lhs: Thunk, rhs: Thunk) -> Thunk:
    if op in _PYTHON and dtype in _ON_PYTHON:
        quick = _PYTHON[op]
        return lambda: quick(lhs(), rhs())
    storage = storage_dtype(dtype)
    function = BINARY[op]
    return lambda: function(np.asarray(lhs(), storage), np.asarray(rhs(), storage))[()]


def _unary(function: Callable[[Array], Array], dtype: DType, x: Thunk) -> Thunk:
    storage = storage_dtype(dtype)
    return lambda: function(np.asarray(x(), storage))[()]


def constant(const: Const) -> Value:
    if const.type is DType.INT64:
        return int(const.value)
    return np.asarray(const.value).astype(storage_dtype(const.type))[()]


Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"


Value: TypeAlias = Any
"""A Python or numpy scalar, or a numpy vector with one element per lane."""


Thunk: TypeAlias = Callable[[], Value]


REDUCE: Mapping[ReduceOp, Any] = {
    ReduceOp.SUM: np.add,
    ReduceOp.PROD: np.multiply,
    ReduceOp.MIN: np.minimum,
    ReduceOp.MAX: np.maximum,
    ReduceOp.MAX_NUMBER: np.fmax,
    ReduceOp.AND: np.bitwise_and,
    ReduceOp.OR: np.bitwise_or,
}
