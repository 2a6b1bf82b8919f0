"""Operators whose elements come from shapes and numbers alone."""

from __future__ import annotations

import math

from compiler_service.compiler.tensor_expr.meaning.known import known_dims, known_elements, vector
from compiler_service.compiler.tensor_expr.operator import Operator
from compiler_service.compiler.tensor_expr.ratio import ratio_of
from compiler_service.compiler.tensor_expr.refusal import mismatch, unknown_value
from compiler_service.compiler.tensor_expr.tensor import Tensor, compute
from shared_ir.dtype import DType
from shared_ir.expr import Expr, Scalar, cast, ceil_div, equal, lift, maximum, select
from shared_ir.expr.dim import Dim, as_dim, product


def shape(x: Tensor, *, start: int = 0, end: int | None = None) -> Tensor:
    return vector(x.shape[slice(start, end)], DType.INT64, name="shape")


def size(x: Tensor) -> Tensor:
    return compute((), lambda: lift(product(x.shape)), name="size")


def dims_(*, dims: tuple[Dim, ...]) -> Tensor:
    """The vector of ``dims``: what the pass ``fold-shapes`` leaves of arithmetic on shapes."""
    return vector(dims, DType.INT64, name="dims")


def constant_of_shape(shape: Tensor, *, value: Scalar = 0.0, dtype: DType = DType.FLOAT32) -> Tensor:
    """``value`` everywhere. ONNX gives ``value`` as a tensor of one element; ``dtype`` is its element type."""
    return compute(known_dims(shape, "input"), lambda *_: lift(value, dtype), name="constant_of_shape")


def range_(start: Tensor, limit: Tensor, delta: Tensor) -> Tensor:
    """``start + i * delta`` up to, but without, ``limit``; all three are known at compile time or arithmetic on dims."""
    first, last, step = (known_elements(t, n)[0] for t, n in ((start, "start"), (limit, "limit"), (delta, "delta")))
    if isinstance(step, Expr) or not math.isfinite(step) or step == 0:
        raise unknown_value("delta", delta.name)
    length: Dim
    if start.dtype.is_float:
        begin, end, each = (ratio_of(v) for v in (first, last, abs(step)))
        if begin is None or end is None or each is None:
            raise unknown_value("limit", limit.name)
        length = as_dim(maximum(((end + -begin if step > 0 else begin + -end) / each).ceil, 0))
    else:
        distance = lift(last) - lift(first) if step > 0 else lift(first) - lift(last)
        length = as_dim(maximum(ceil_div(distance, abs(step)), 0))

    def body(i: Expr) -> Expr:
        wide = DType.INT64 if start.dtype.is_integer else start.dtype.arithmetic
        return cast(lift(first, wide) + cast(i, wide) * step, start.dtype)

    return compute((length,), body, name="range")


def eye_like(x: Tensor, *, dtype: DType | None = None, k: int = 0) -> Tensor:
    if x.rank != 2:
        raise mismatch("EyeLike takes a matrix", "2 axes", str(x.rank))
    kind = dtype or x.dtype

    def body(row: Expr, column: Expr) -> Expr:
        return select(equal(column, row + k), lift(1, kind), lift(0, kind))

    return compute(x.shape, body, name="eye_like")


OPERATORS = (
    Operator("Shape", shape),
    Operator("Size", size),
    Operator("ingot.Dims", dims_),
    Operator("ConstantOfShape", constant_of_shape),
    Operator("Range", range_),
    Operator("EyeLike", eye_like),
)
