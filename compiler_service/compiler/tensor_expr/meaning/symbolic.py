"""Tensor expressions on dims: the same definitions evaluated element by element while compiling."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from compiler_service.compiler.tensor_expr.meaning.known import MOST_KNOWN_ELEMENTS
from compiler_service.compiler.tensor_expr.meaning.scalar_semantics import (
    BINARY,
    DIVISIONS,
    EXTREMA,
    UNARY,
    has_both_zeros,
    is_left_to_target,
    reinterpret,
)
from compiler_service.compiler.tensor_expr.meaning.scalar_semantics import cast as cast_array
from compiler_service.compiler.tensor_expr.ratio import Ratio, ratio_of
from compiler_service.compiler.tensor_expr.tensor import Axis, Compute, Load, Placeholder, ReduceOp, Tensor, identity_of
from shared_ir.arrays import storage_dtype
from shared_ir.dtype import DType
from shared_ir.expr import (
    COMPARISONS,
    RECURSIVE_LEVELS,
    Binary,
    BinaryOp,
    Cast,
    Const,
    Expr,
    Reinterpret,
    Select,
    Unary,
    UnaryOp,
    Var,
    binary,
    lift,
    walk,
)
from shared_ir.expr.dim import as_dim, numbers_of
from shared_ir.expr.simplify import unbounded

_MAX_STEPS = 1 << 18
_MOST_LEVELS = 128
"""Of expressions in expressions: an element is looked for by recursion, and one that is deeper is none of a shape."""

Element: TypeAlias = "int | float | bool | Expr"
"""A Python number, or an expression over dim symbols (for floats: one that :mod:`ratio` reads)."""

_COMBINE: Mapping[ReduceOp, BinaryOp] = {
    ReduceOp.SUM: BinaryOp.ADD,
    ReduceOp.PROD: BinaryOp.MUL,
    ReduceOp.MIN: BinaryOp.MIN,
    ReduceOp.MAX: BinaryOp.MAX,
    ReduceOp.MAX_NUMBER: BinaryOp.MAX,
    ReduceOp.AND: BinaryOp.AND,
    ReduceOp.OR: BinaryOp.OR,
}


def evaluate_symbolic(tensor: Tensor) -> np.ndarray | None:
    """The elements of a small tensor whose inputs have a ``value``, as an object array.

    None when they are not known before the run: an input without value, a comparison of dims that holds for some sizes
    only, float arithmetic on dims that rounds, or more than :data:`MOST_KNOWN_ELEMENTS` elements.
    """
    shape = numbers_of(tensor.shape)
    if shape is None or math.prod(shape) > MOST_KNOWN_ELEMENTS:
        return None
    result = np.empty(shape, object)
    if result.size == 0:  # NOTE: ndindex would list the other axes, however long
        return result
    evaluator = _Symbolic()
    try:
        for index in np.ndindex(*shape):
            result[index] = evaluator.element(tensor, index)
    except (_Unknown, IndexError):
        return None
    return result


_OF_DIMS = (Const, Var, Unary, Binary, Select)


class _Unknown(Exception):
    """The value is not known before the run."""


@dataclass
class _Symbolic:
    _elements: dict[tuple[Tensor, tuple[int, ...]], Element] = field(default_factory=dict)
    _steps: int = 0
    _level: int = 0

    def element(self, tensor: Tensor, index: tuple[int, ...]) -> Element:
        key = (tensor, index)
        if key not in self._elements:
            self._elements[key] = self._element(tensor, index)
        return self._elements[key]

    def _element(self, tensor: Tensor, index: tuple[int, ...]) -> Element:
        if any(i < 0 for i in index):
            raise IndexError(f"{tensor.name}{list(index)}")
        if tensor.value is not None:
            value = tensor.value[index]
            return _number(as_dim(value)) if isinstance(value, Expr) and value.dtype is DType.INT64 else _number(value)
        if isinstance(tensor.op, Placeholder):
            raise _Unknown
        own = _bind(tensor.op.axes, index)
        return self._reduce(tensor.op, tensor.dtype, own) if tensor.op.reduction else self._scalar(tensor.op.body, own)

    def _reduce(self, op: Compute, dtype: DType, own: dict[Var, int]) -> Element:
        assert op.reduction is not None
        combine = _COMBINE[op.reduction.op]
        total: Element = lift(identity_of(op.reduction.op, dtype), dtype).value  # type: ignore[attr-defined]
        domain = [range(a.extent) for a in op.reduction.axes if isinstance(a.extent, int)]
        if len(domain) != len(op.reduction.axes) or math.prod(map(len, domain)) > _MAX_STEPS:
            raise _Unknown  # NOTE: product would list every axis first, however long
        for position, index in enumerate(itertools.product(*domain)):
            item = self._scalar(op.body, own | _bind(op.reduction.axes, index))
            total = item if position == 0 else _binary(combine, dtype, total, item)
        return total

    def _scalar(self, expr: Expr, own: Mapping[Var, int]) -> Element:
        self._steps += 1
        if self._steps > _MAX_STEPS:
            raise _Unknown
        if expr.depth > RECURSIVE_LEVELS and _is_dim(expr, own):
            return _number(as_dim(expr))
        if self._level + expr.depth > _MOST_LEVELS:
            raise _Unknown
        self._level += 1
        try:
            return self._computed(expr, own)
        finally:
            self._level -= 1

    def _computed(self, expr: Expr, own: Mapping[Var, int]) -> Element:
        match expr:
            case Const(value=value):
                return value
            case Var():
                return own.get(expr, expr)
            case Load(tensor=tensor, indices=indices):
                return self.element(tensor, tuple(_integer(self._scalar(i, own)) for i in indices))
            case Unary(op=op, x=x):
                return _unary(op, x.dtype, self._scalar(x, own))
            case Binary(op=op, lhs=lhs, rhs=rhs):
                return _binary(op, lhs.dtype, self._scalar(lhs, own), self._scalar(rhs, own))
            case Cast(type=dtype, x=x):
                return _cast(self._scalar(x, own), x.dtype, dtype)
            case Reinterpret(type=dtype, x=x):
                return _reinterpret(self._scalar(x, own), x.dtype, dtype)
            case Select():
                return self._selected(expr, own)
        raise _Unknown

    def _selected(self, expr: Select, own: Mapping[Var, int]) -> Element:
        try:
            chosen = expr.then if self._scalar(expr.cond, own) else expr.otherwise
        except _Unknown:
            if _is_dim(expr, own):
                return expr  # a dim that depends on others
            raise
        return self._scalar(chosen, own)


def _is_dim(expr: Expr, own: Mapping[Var, int]) -> bool:
    """Whether it depends on dims alone."""
    return expr.dtype is DType.INT64 and all(isinstance(e, _OF_DIMS) and e not in own for e in walk(expr))


def _bind(axes: tuple[Axis, ...], index: tuple[int, ...]) -> dict[Var, int]:
    return {axis.var: i for axis, i in zip(axes, index, strict=True)}


def _number(value: Any) -> Element:
    """numpy scalars as Python numbers."""
    if isinstance(value, (bool, int, float, Expr)):
        return value
    item = value.item()
    return item if isinstance(item, (bool, int, float)) else float(item)


def _integer(value: Element) -> int:
    if not isinstance(value, int):
        raise _Unknown
    return value


def _array(value: Element, dtype: DType) -> np.ndarray:
    return np.asarray(value).astype(storage_dtype(dtype))


def _agreed(op: UnaryOp | BinaryOp | None, result: np.ndarray) -> Element:
    if is_left_to_target(op, result):
        raise _Unknown
    return _number(result[()])


def _unary(op: UnaryOp, dtype: DType, x: Element) -> Element:
    if not isinstance(x, Expr):
        return _agreed(op, UNARY[op](_array(x, dtype)))
    if dtype.is_float:
        return _ratio_unary(op, dtype, _ratio(x))
    if op is UnaryOp.NEG:
        return as_dim(0 - x)
    low, high = unbounded().interval(x)
    if op is UnaryOp.ABS and low is not None and low >= 0:
        return x
    if op is UnaryOp.ABS and high is not None and high <= 0:
        return as_dim(0 - x)
    raise _Unknown


def _binary(op: BinaryOp, dtype: DType, a: Element, b: Element) -> Element:
    if not isinstance(a, Expr) and not isinstance(b, Expr):
        x, y = _array(a, dtype), _array(b, dtype)
        if (op in EXTREMA and has_both_zeros(x, y)) or (op in DIVISIONS and dtype.is_integer and not y):
            raise _Unknown
        return _agreed(op, BINARY[op](x, y))
    if dtype.is_float:
        return _ratio_binary(op, dtype, _ratio(a), _ratio(b))
    m, n = (v if isinstance(v, Expr) else Const(int(v)) for v in (a, b))
    if op in COMPARISONS:
        return _decided(op, m, n)
    if op in _EXACT:
        return as_dim(binary(op, m, n))
    if op in _TRUNCATING and _is_natural(m) and _is_natural(n):
        return as_dim(binary(_TRUNCATING[op], m, n))
    raise _Unknown


_EXACT = frozenset(
    {BinaryOp.ADD, BinaryOp.SUB, BinaryOp.MUL, BinaryOp.MIN, BinaryOp.MAX, BinaryOp.FLOOR_DIV, BinaryOp.FLOOR_MOD}
)
_TRUNCATING = {BinaryOp.TRUNC_DIV: BinaryOp.FLOOR_DIV, BinaryOp.TRUNC_MOD: BinaryOp.FLOOR_MOD}


def _is_natural(x: Expr) -> bool:
    low, _ = unbounded().interval(unbounded()(x))
    return low is not None and low >= 0


def _decided(op: BinaryOp, x: Expr, y: Expr) -> bool:
    verdict = unbounded()(binary(op, x, y))
    if not isinstance(verdict, Const):
        raise _Unknown
    return bool(verdict.value)


def _ratio(value: Element) -> Ratio:
    found = ratio_of(value)
    if found is None:
        raise _Unknown
    return found


def _ratio_element(value: Ratio, dtype: DType) -> Element:
    if isinstance(value.numerator, int) and isinstance(value.denominator, int):
        return value.numerator / value.denominator
    return value.expression(dtype)


def _ratio_unary(op: UnaryOp, dtype: DType, x: Ratio) -> Element:
    functions: dict[UnaryOp, Callable[[], Ratio]] = {
        UnaryOp.NEG: lambda: -x,
        UnaryOp.FLOOR: lambda: Ratio(x.floor),
        UnaryOp.CEIL: lambda: Ratio(x.ceil),
    }
    if op in functions:
        return _ratio_element(functions[op](), dtype)
    if op in (UnaryOp.ROUND, UnaryOp.TRUNC) and x.denominator == 1:
        return _ratio_element(x, dtype)
    raise _Unknown


def _ratio_binary(op: BinaryOp, dtype: DType, a: Ratio, b: Ratio) -> Element:
    if not (a.is_dyadic and b.is_dyadic):  # the run would round
        raise _Unknown
    if op in COMPARISONS:
        return _decided(op, lift(as_dim(a.numerator * b.denominator)), lift(as_dim(b.numerator * a.denominator)))
    match op:
        case BinaryOp.ADD:
            result = a + b
        case BinaryOp.SUB:
            result = a + -b
        case BinaryOp.MUL:
            result = a * b
        case BinaryOp.DIV if _is_natural(lift(b.numerator)) and b.numerator != 0:
            result = a / b
        case _:
            raise _Unknown
    return _ratio_element(result, dtype)


def _reinterpret(x: Element, source: DType, target: DType) -> Element:
    if isinstance(x, Expr):
        raise _Unknown
    return _number(reinterpret(_array(x, source), target)[()])


def _cast(x: Element, source: DType, target: DType) -> Element:
    if not isinstance(x, Expr):
        return _agreed(None, cast_array(_array(x, source), target))
    if target is DType.BOOL:
        if source.is_float:
            raise _Unknown
        return _decided(BinaryOp.NE, x, Const(0))
    if target.bits < 32:
        raise _Unknown
    if source.is_float and target.is_float:
        return _ratio_element(_ratio(x), target)
    if source.is_float:
        if not _is_natural(lift(_ratio(x).numerator)):
            raise _Unknown
        return _ratio(x).floor
    return _ratio_element(Ratio(as_dim(x)), target) if target.is_float else as_dim(x)
