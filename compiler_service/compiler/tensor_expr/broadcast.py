"""Elementwise computes: numpy broadcasting and the width that scalar arithmetic is done in."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from compiler_service.compiler.tensor_expr.extents import (
    fitting,
    is_repeated,
    is_stretched,
    joint_extent,
    stretched_index,
)
from compiler_service.compiler.tensor_expr.refusal import mismatch
from compiler_service.compiler.tensor_expr.tensor import Tensor, compute
from shared_ir.dtype import DType
from shared_ir.expr import Expr, cast, lift
from shared_ir.expr.dim import Dim, dims_text


def broadcast_shape(*shapes: Sequence[Dim]) -> tuple[Dim, ...]:
    """Numpy broadcasting: shapes aligned at their last axis.

    Raises:
        IngotError: TYPE_MISMATCH.
    """
    rank = max(map(len, shapes), default=0)
    result: list[Dim] = [1] * rank
    try:
        for shape in shapes:
            for axis, extent in enumerate(shape, rank - len(shape)):
                result[axis] = joint_extent(result[axis], extent)
    except ValueError:
        received = " and ".join(f"[{dims_text(s)}]" for s in shapes)
        rule = "equal extents or 1, aligned at the last axis"
        raise mismatch("the shapes do not broadcast", rule, received) from None
    return tuple(result)


Pairs: TypeAlias = list[tuple[Dim, Dim]]
"""Dims that are taken to be equal."""


def broadcast_pairs(shape: Sequence[Dim], *shapes: Sequence[Dim]) -> Pairs:
    """What broadcasting ``shapes`` to ``shape`` takes for granted: that extents are 1 or those of the result."""
    return [
        fitting(own, full)
        for operand in shapes
        for own, full in zip(reversed(operand), reversed(shape), strict=False)
        if own not in (1, full)
    ]


def must_equal(*pairs: tuple[Dim, Dim]) -> Pairs:
    """The pairs, for a definition to assume, that are not equal as they stand."""
    return [(a, b) for a, b in pairs if a != b]


def vector_along(x: Tensor, extent: Dim) -> Tensor:
    """The vector ``x``, which has to have ``extent`` elements: it does not broadcast."""
    if x.shape == (extent,):
        return x
    return compute((extent,), lambda i: x[i], name="along", assumes=must_equal((x.shape[0], extent)))


def common_dim(dims: Iterable[Dim]) -> Dim:
    """The extent that several tensors share along an axis: a number where one of them has a number.

    Raises:
        IngotError: TYPE_MISMATCH, two different numbers.
    """
    found = list(dict.fromkeys(dims))
    numbers = [d for d in found if isinstance(d, int)]
    if len(numbers) > 1:
        raise mismatch("the extents of an axis differ", "equal extents", dims_text(found))
    return (numbers or found)[0]


def broadcast_load(x: Tensor, index: Sequence[Expr], shape: Sequence[Dim]) -> Expr:
    """``x`` at ``index`` of the broadcast ``shape``."""
    skipped = len(shape) - x.rank
    own = zip(x.shape, index[skipped:], shape[skipped:], strict=True)
    return x[tuple(_broadcast_index(i, extent, full) for extent, i, full in own)]


def _broadcast_index(index: Expr, own: Dim, full: Dim) -> Expr:
    if own == full:
        return index
    if is_repeated(own):
        return lift(0)
    return stretched_index(index, own) if is_stretched(own, full) else index


def widen(x: Expr) -> Expr:
    """``x`` in the width that arithmetic is done in."""
    return cast(x, x.dtype.arithmetic)


def converted(x: Tensor, dtype: DType) -> Tensor:
    """``x`` as ``dtype``; the tensor itself when it has it."""
    return x if x.dtype is dtype else compute(x.shape, lambda *i: cast(x[i], dtype), name="convert")


def elementwise(
    name: str,
    function: Callable[..., Expr],
    *tensors: Tensor,
    dtype: DType | None = None,
    shape: Sequence[Dim] | None = None,
) -> Tensor:
    """``function`` of the elements of ``tensors``, broadcast against each other, or all of them to ``shape``.

    Floats narrower than 32 bits are computed in float32 and rounded once, at the end. ``dtype`` of the result: that of
    the first tensor when ``function`` keeps it, else what ``function`` gives.
    """
    shape = broadcast_shape(*(t.shape for t in tensors)) if shape is None else shape
    first = tensors[0].dtype

    def body(*index: Expr) -> Expr:
        result = function(*(widen(broadcast_load(t, index, shape)) for t in tensors))
        kept = first if result.dtype is first.arithmetic else result.dtype
        return cast(result, dtype or kept)

    return compute(shape, body, name=name, assumes=broadcast_pairs(shape, *(t.shape for t in tensors)))
