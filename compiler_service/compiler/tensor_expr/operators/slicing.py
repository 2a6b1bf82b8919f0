"""Slices along axes, or with steps, that only the run knows."""

from __future__ import annotations

from dataclasses import replace

from compiler_service.compiler.tensor_expr.axes import require_few_axes
from compiler_service.compiler.tensor_expr.meaning.known import known_dims, vector
from compiler_service.compiler.tensor_expr.operator import Operator
from compiler_service.compiler.tensor_expr.refusal import unknown_extent
from compiler_service.compiler.tensor_expr.tensor import Tensor, compute
from shared_ir.dtype import DType
from shared_ir.expr import Expr, cast, ceil_div, equal, lift, logical_or, maximum, minimum, select
from shared_ir.expr.dim import Dim, as_dim

STEP_BIAS = 1 << 48
"""Added to steps, so that they are at least 0, as symbols are."""


def slice_bounds(
    x: Tensor, starts: Tensor, ends: Tensor, axes: Tensor | None = None, steps: Tensor | None = None
) -> Tensor:
    """int64 ``[3 * rank]``: for every axis of ``x`` the first element, then the counts, then the steps plus the bias."""
    lengths = [x.shape[0] for x in (starts, ends, axes, steps) if x is not None]
    count = next((n for n in lengths if isinstance(n, int)), None)
    if count is None:
        raise unknown_extent("starts", starts.name, starts.shape, "nothing says how many axes are sliced")
    require_few_axes(count)

    def element(operand: Tensor | None, position: int, default: int) -> Expr:
        return lift(default) if operand is None else cast(operand[lift(position)], DType.INT64)

    def chosen(axis: int, operand: Tensor | None, default: Expr, missing: int) -> Expr:
        found = default
        for position in range(count):
            number = element(axes, position, position)
            is_here = logical_or(equal(number, axis), equal(number + x.rank, axis))
            found = select(is_here, element(operand, position, missing), found)
        return found

    firsts, counts, strides = [], [], []
    for axis, extent in enumerate(x.shape):
        step = chosen(axis, steps, lift(1), 1)
        step = minimum(maximum(select(equal(step, 0), 1, step), 1 - STEP_BIAS), STEP_BIAS)
        start = chosen(axis, starts, lift(0), 0)
        end = chosen(axis, ends, lift(extent), 0)
        first, length = _range(start, end, step, extent)
        firsts.append(first)
        counts.append(length)
        strides.append(step + STEP_BIAS)
    found = vector([*firsts, *counts, *strides], DType.INT64, name="slice_bounds")
    return replace(found, assumes=tuple((n, count) for n in lengths if n != count))


def _range(start: Expr, end: Expr, step: Expr, extent: Dim) -> tuple[Expr, Expr]:
    """First element and number of elements, as numpy has them."""
    size = lift(extent)
    backwards = step < 0
    low = select(backwards, lift(-1), lift(0))
    high = select(backwards, size - 1, size)
    first, last = (minimum(maximum(select(v < 0, v + size, v), low), high) for v in (start, end))
    distance = select(backwards, first - last, last - first)
    length = maximum(ceil_div(distance, select(backwards, 0 - step, step)), 0)
    return maximum(minimum(first, size - 1), 0), length


def slice_at(x: Tensor, bounds: Tensor) -> Tensor:
    """``x`` sliced along all axes by ``bounds`` as :func:`slice_bounds` gives them."""
    found = known_dims(bounds, "bounds")
    firsts, counts, strides = (found[k * x.rank : (k + 1) * x.rank] for k in range(3))

    def body(*index: Expr) -> Expr:
        places = zip(index, firsts, strides, strict=True)
        return x[tuple(lift(first) + i * (lift(stride) - STEP_BIAS) for i, first, stride in places)]

    return compute([as_dim(c) for c in counts], body, name="slice", partial=True)


OPERATORS = (
    Operator("ingot.SliceBounds", slice_bounds),
    Operator("ingot.SliceAt", slice_at),
)
