"""Operators that read at positions given by data. Positions are brought into bounds: a request must not read beyond a tensor."""

from __future__ import annotations

from compiler_service.compiler.tensor_expr.axes import normal_axis, replaced
from compiler_service.compiler.tensor_expr.broadcast import must_equal
from compiler_service.compiler.tensor_expr.meaning.known import known_counts
from compiler_service.compiler.tensor_expr.operator import Operator
from compiler_service.compiler.tensor_expr.refusal import unknown_extent
from compiler_service.compiler.tensor_expr.scalar import clamped
from compiler_service.compiler.tensor_expr.tensor import Tensor, compute
from shared_ir.dtype import DType
from shared_ir.expr import Expr, cast, equal, lift, select
from shared_ir.expr.dim import Dim


def position(indices: Tensor, at: tuple[Expr, ...], extent: Dim) -> Expr:
    """An element of ``indices`` as a position in ``[0, extent)``, counted from the end when negative."""
    i = cast(indices[at], DType.INT64)
    if not _all_natural(indices):
        i = select(i < 0, i + extent, i)
    if not _all_below(indices, extent):
        i = clamped(i, extent)
    return i


def _all_natural(indices: Tensor) -> bool:
    known = indices.value
    return known is not None and all(isinstance(i, int) and i >= 0 for i in known.reshape(-1).tolist())


def _all_below(indices: Tensor, extent: Dim) -> bool:
    known = indices.value
    if known is None or not isinstance(extent, int):
        return False
    return all(isinstance(i, int) and -extent <= i < extent for i in known.reshape(-1).tolist())


def gather(x: Tensor, indices: Tensor, *, axis: int = 0) -> Tensor:
    """``y[before, indices..., after] = x[before, indices[...], after]``."""
    axis = normal_axis(axis, x.rank)

    def body(*index: Expr) -> Expr:
        at = index[axis : axis + indices.rank]
        return x[(*index[:axis], position(indices, at, x.shape[axis]), *index[axis + indices.rank :])]

    return compute(replaced(x.shape, axis, *indices.shape), body, name="gather")


def gather_elements(x: Tensor, indices: Tensor, *, axis: int = 0) -> Tensor:
    axis = normal_axis(axis, x.rank)

    def body(*index: Expr) -> Expr:
        return x[replaced(index, axis, position(indices, index, x.shape[axis]))]

    return compute(indices.shape, body, name="gather_elements", partial=True)


def gather_nd(x: Tensor, indices: Tensor, *, batch_dims: int = 0) -> Tensor:
    """The last axis of ``indices`` holds a position along the axes of ``x`` that follow the batch axes."""
    depth = indices.shape[-1]
    if not isinstance(depth, int):
        raise unknown_extent("indices", indices.name, indices.shape, "the last one decides the axes of the result")
    outer = indices.rank - 1
    first, last = batch_dims, batch_dims + depth

    def body(*index: Expr) -> Expr:
        own = tuple(position(indices, (*index[:outer], lift(k)), x.shape[first + k]) for k in range(depth))
        return x[(*index[:batch_dims], *own, *index[outer:])]

    return compute((*indices.shape[:-1], *x.shape[last:]), body, name="gather_nd")


def one_hot(indices: Tensor, depth: Tensor, values: Tensor, *, axis: int = -1) -> Tensor:
    """``values`` are the element for "off" and that for "on"; indices out of range switch nothing on."""
    (extent,) = known_counts(depth, "depth")
    axis = normal_axis(axis, indices.rank + 1)
    pairs = must_equal((values.shape[0], 2))

    def body(*index: Expr) -> Expr:
        i = cast(indices[replaced(index, axis)], DType.INT64)
        return select(equal(select(i < 0, i + extent, i), index[axis]), values[1], values[0])

    return compute((*indices.shape[:axis], extent, *indices.shape[axis:]), body, name="one_hot", assumes=pairs)


OPERATORS = (
    Operator("Gather", gather),
    Operator("GatherElements", gather_elements),
    Operator("GatherND", gather_nd),
    Operator("OneHot", one_hot),
)
