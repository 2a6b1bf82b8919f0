"""Operators whose elements come from shapes and numbers alone, or from where they stand: AffineGrid."""

from __future__ import annotations

import math
from functools import reduce as fold

from compiler_service.compiler.tensor_expr.broadcast import converted, must_equal
from compiler_service.compiler.tensor_expr.meaning.known import known_dims, known_elements, vector
from compiler_service.compiler.tensor_expr.operator import Operator
from compiler_service.compiler.tensor_expr.ratio import ratio_of
from compiler_service.compiler.tensor_expr.refusal import mismatch, unknown_value
from compiler_service.compiler.tensor_expr.tensor import Tensor, compute
from shared_ir.dtype import DType
from shared_ir.expr import Expr, Scalar, cast, ceil_div, equal, lift, maximum, select
from shared_ir.expr.dim import Dim, as_dim, dims_text, product


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


def affine_grid(theta: Tensor, size: Tensor, *, align_corners: int = 0) -> Tensor:
    """``[n, (d,) h, w, axes]``: where the affine maps ``theta`` [n, axes, axes + 1] take the pixels of an image of ``size`` (n, c,
    (d,) h, w), whose axes run from -1 to 1."""
    n, _, *extents = known_dims(size, "size")
    axes = len(extents)
    if axes not in (2, 3) or theta.rank != 3 or theta.shape[1:] != (axes, axes + 1):
        expected = "[n, 2, 3] and 4 sizes, or [n, 3, 4] and 5"
        raise mismatch("AffineGrid takes a matrix per image", expected, f"[{dims_text(theta.shape)}] and {axes + 2}")
    x = converted(theta, theta.dtype.arithmetic)

    def coordinate(i: Expr, extent: Dim) -> Expr:
        count = cast(lift(extent), x.dtype)
        if align_corners:
            step = select(equal(lift(extent), 1), lift(0.0, x.dtype), 2 / (count - 1))
            return cast(i, x.dtype) * step - 1
        return cast(i, x.dtype) * (2 / count) + (1 / count - 1)

    def body(image: Expr, *index: Expr) -> Expr:
        *pixel, row = index
        places = [coordinate(i, extent) for i, extent in zip(pixel, extents, strict=True)]
        terms = [x[image, row, lift(k)] * place for k, place in enumerate(reversed(places))]
        return fold(lambda a, b: a + b, terms) + x[image, row, lift(axes)]

    assumes = must_equal((theta.shape[0], n))
    return converted(compute((n, *extents, axes), body, name="affine_grid", assumes=assumes), theta.dtype)


OPERATORS = (
    Operator("AffineGrid", affine_grid),
    Operator("Shape", shape),
    Operator("Size", size),
    Operator("ingot.Dims", dims_),
    Operator("ConstantOfShape", constant_of_shape),
    Operator("Range", range_),
    Operator("EyeLike", eye_like),
)
