"""Operators that write at positions given by data, as what every element of the result reads: the updates that hit it.

Where several updates hit one element without a reduction, the last one in row-major order wins.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce as fold

from compiler_service.compiler.tensor_expr.axes import normal_axis, replaced
from compiler_service.compiler.tensor_expr.broadcast import Pairs, must_equal, widen
from compiler_service.compiler.tensor_expr.meaning.known import known_dims
from compiler_service.compiler.tensor_expr.operator import Operator
from compiler_service.compiler.tensor_expr.refusal import mismatch, unknown_extent, unsupported_attribute
from compiler_service.compiler.tensor_expr.scalar import clamped
from compiler_service.compiler.tensor_expr.tensor import ReduceOp, Tensor, compute, identity_of, reduce
from shared_ir.dtype import DType
from shared_ir.expr import Expr, cast, equal, lift, logical_and, maximum, minimum, select
from shared_ir.expr.dim import Dim, as_dim, dims_text, product

REDUCTIONS: Mapping[str, tuple[ReduceOp, Callable[[Expr, Expr], Expr]]] = {
    "add": (ReduceOp.SUM, lambda a, b: a + b),
    "mul": (ReduceOp.PROD, lambda a, b: a * b),
    "max": (ReduceOp.MAX, maximum),
    "min": (ReduceOp.MIN, minimum),
}

Updates = Callable[[tuple[Expr, ...], tuple[Expr, ...]], tuple[Expr, tuple[Expr, ...]]]
"""(index of the result, number of an update) -> (whether the update hits it, index of the update)."""


def _scattered(
    data: Tensor,
    updates: Tensor,
    over: Sequence[Dim],
    own: Sequence[Dim],
    hits: Updates,
    reduction: str,
    name: str,
    assumes: Pairs,
) -> Tensor:
    """``data`` with every element combined with the updates, numbered by ``over``, that hit it; ``own`` are the same extents as the
    updates have them."""
    if updates.dtype is not data.dtype:
        raise mismatch("data and updates have different element types", data.dtype, updates.dtype)
    if reduction == "none":
        return _overwritten(data, updates, over, own, hits, name, assumes)
    if reduction not in REDUCTIONS:
        raise unsupported_attribute("reduction", f"none, {', '.join(REDUCTIONS)}", reduction)
    op, combine = REDUCTIONS[reduction]

    def term(*index: Expr) -> Expr:
        hit, at = hits(index[: data.rank], index[data.rank :])
        element = widen(updates[at])
        return select(hit, element, lift(identity_of(op, element.dtype), element.dtype))

    total = reduce(op, data.shape, over, term, name=name)

    def body(*index: Expr) -> Expr:
        return cast(combine(widen(data[index]), total[index]), data.dtype)

    return compute(data.shape, body, name=name, assumes=assumes)


def _overwritten(
    data: Tensor,
    updates: Tensor,
    over: Sequence[Dim],
    own: Sequence[Dim],
    hits: Updates,
    name: str,
    assumes: Pairs,
) -> Tensor:
    """The last update that hits, found by its number."""
    last = _last_hit(data.shape, over, hits, name)

    def body(*index: Expr) -> Expr:
        number = last[index]
        _, at = hits(index, _unravelled(number, own))
        new: Expr = updates[at]
        for extent in own:  # of none, none is read
            new = new if isinstance(extent, int) and extent > 0 else select(lift(extent) > 0, new, data[index])
        return select(number >= 0, new, data[index])

    return compute(data.shape, body, name=name, assumes=assumes)


def _last_hit(shape: Sequence[Dim], over: Sequence[Dim], hits: Updates, name: str) -> Tensor:
    """The largest row-major number of an update that hits an element, -1 where there is none."""
    rank = len(shape)

    def number(*index: Expr) -> Expr:
        hit, _ = hits(index[:rank], index[rank:])
        return select(hit, _ravelled(index[rank:], over), -1)

    return reduce(ReduceOp.MAX, shape, over, number, name=f"{name}_last")


def _ravelled(index: Sequence[Expr], shape: Sequence[Dim]) -> Expr:
    return fold(lambda flat, axis: flat * axis[1] + axis[0], zip(index, shape, strict=True), lift(0))


def _unravelled(flat: Expr, shape: Sequence[Dim]) -> tuple[Expr, ...]:
    """The index of the element with the row-major number ``flat``; some index where there is no such element."""
    found: list[Expr] = []
    for axis in range(len(shape)):
        inner = product(shape[axis + 1 :])
        i = flat if inner == 1 else flat // lift(inner)
        found.append(i % lift(shape[axis]) if axis else clamped(i, shape[axis]))
    return tuple(found)


def _position(indices: Tensor, at: tuple[Expr, ...], extent: Dim) -> Expr:
    i = cast(indices[at], DType.INT64)
    return select(i < 0, i + extent, i)


def scatter_elements(
    data: Tensor, indices: Tensor, updates: Tensor, *, axis: int = 0, reduction: str = "none"
) -> Tensor:
    """``y[.., indices[.., k, ..], ..] = updates[.., k, ..]`` along ``axis``."""
    axis = normal_axis(axis, data.rank)
    if indices.rank != data.rank or updates.rank != data.rank:
        raise mismatch("data, indices and updates have different ranks", str(data.rank), str(indices.rank))
    partial = [a for a in range(data.rank) if a != axis and indices.shape[a] != data.shape[a]]

    def hits(index: tuple[Expr, ...], number: tuple[Expr, ...]) -> tuple[Expr, tuple[Expr, ...]]:
        at = replaced(index, axis, number[0])
        hit = equal(_position(indices, at, data.shape[axis]), index[axis])
        for a in partial:  # which may be empty: nothing is read of what is not there
            hit = select(index[a] < lift(indices.shape[a]), hit, False)
        return hit, at

    pairs = must_equal(*zip(updates.shape, indices.shape, strict=True))
    pairs += [_no_more(indices.shape[a], data.shape[a]) for a in partial]
    over, own = [indices.shape[axis]], [updates.shape[axis]]
    return _scattered(data, updates, over, own, hits, reduction, "scatter_elements", pairs)


def _no_more(own: Dim, most: Dim) -> tuple[Dim, Dim]:
    """The dims that must be equal where ``own`` is at most ``most``."""
    return as_dim(maximum(own, most)), most


def scatter_nd(data: Tensor, indices: Tensor, updates: Tensor, *, reduction: str = "none") -> Tensor:
    """The last axis of ``indices`` holds positions along the first axes of ``data``."""
    depth = indices.shape[-1]
    if not isinstance(depth, int):
        raise unknown_extent("indices", indices.name, indices.shape, "the last one decides what an update is")
    over = indices.shape[:-1]

    def hits(index: tuple[Expr, ...], number: tuple[Expr, ...]) -> tuple[Expr, tuple[Expr, ...]]:
        hit = lift(True, DType.BOOL)
        for axis in range(depth):
            position = _position(indices, (*number, lift(axis)), data.shape[axis])
            hit = logical_and(hit, equal(position, index[axis]))
        return hit, (*number, *index[depth:])

    wanted = (*over, *data.shape[depth:])
    if updates.rank != len(wanted):
        raise mismatch("updates do not fit the indices", f"{len(wanted)} axes", str(updates.rank))
    pairs = must_equal(*zip(updates.shape, wanted, strict=True))
    return _scattered(data, updates, over, updates.shape[: len(over)], hits, reduction, "scatter_nd", pairs)


def tensor_scatter(
    past_cache: Tensor,
    update: Tensor,
    write_indices: Tensor | None = None,
    *,
    mode: str = "linear",
    axis: int = -2,
) -> Tensor:
    """A cache with ``update`` written along ``axis`` from ``write_indices[batch]`` on; ``circular``: modulo its length."""
    if mode not in ("linear", "circular"):
        raise unsupported_attribute("mode", "linear or circular", mode)
    axis = normal_axis(axis, past_cache.rank)
    length = past_cache.shape[axis]

    def body(*index: Expr) -> Expr:
        start = lift(0) if write_indices is None else cast(write_indices[index[0]], DType.INT64)
        offset = index[axis] - start
        if mode == "circular":
            offset = offset % lift(length)
        inside = logical_and(offset >= 0, offset < lift(update.shape[axis]))
        return select(inside, update[replaced(index, axis, offset)], past_cache[index])

    if update.rank != past_cache.rank:
        raise mismatch("the update does not fit the cache", f"{past_cache.rank} axes", f"[{dims_text(update.shape)}]")
    pairs = [(new, old) for a, (new, old) in enumerate(zip(update.shape, past_cache.shape, strict=True)) if a != axis]
    if write_indices is not None:
        pairs.append((write_indices.shape[0], past_cache.shape[0]))
    return compute(past_cache.shape, body, name="tensor_scatter", assumes=must_equal(*pairs))


def max_unpool(
    x: Tensor,
    indices: Tensor,
    output_shape: Tensor | None = None,
    *,
    kernel_shape: tuple[int, ...],
    pads: tuple[int, ...] | None = None,
    strides: tuple[int, ...] | None = None,
) -> Tensor:
    """The inverse of MaxPool: elements go to their row-major positions in the whole image batch, the rest is 0.

    Positions are those of the shape that the window implies; ``output_shape`` may be larger, and pads do not count beside it.
    An element stays in its own image and channel.
    """
    rank = len(kernel_shape)
    pads = (0,) * (2 * rank) if pads is None or output_shape is not None else pads
    strides = strides or (1,) * rank
    spatial = [
        as_dim((lift(d) - 1) * s - (low + high) + k)
        for d, s, low, high, k in zip(x.shape[2:], strides, pads[:rank], pads[rank:], kernel_shape, strict=True)
    ]
    own = (*x.shape[:2], *spatial)
    if indices.rank != x.rank:
        raise mismatch(
            "MaxUnpool takes an index per element", f"[{dims_text(x.shape)}]", f"[{dims_text(indices.shape)}]"
        )
    shape = own if output_shape is None else known_dims(output_shape, "output_shape")
    over = x.shape[2:]

    def hits(index: tuple[Expr, ...], number: tuple[Expr, ...]) -> tuple[Expr, tuple[Expr, ...]]:
        at = (*index[:2], *number)
        return equal(cast(indices[at], DType.INT64), _ravelled(index, own)), at

    last = _last_hit(shape, over, hits, "max_unpool")

    def body(*index: Expr) -> Expr:
        number = last[index]
        _, at = hits(index, _unravelled(number, over))
        inside = number >= 0
        for i, extent, full in zip(index[2:], spatial, shape[2:], strict=True):
            inside = inside if extent == full else logical_and(inside, i < lift(extent))
        return select(inside, x[at], lift(0, x.dtype))

    pairs = must_equal(*zip(indices.shape, x.shape, strict=True), *zip(shape[:2], x.shape[:2], strict=True))
    return compute(shape, body, name="max_unpool", assumes=pairs)


OPERATORS = (
    Operator("ScatterElements", scatter_elements),
    Operator("ScatterND", scatter_nd),
    Operator("TensorScatter", tensor_scatter),
    Operator("MaxUnpool", max_unpool),
)
