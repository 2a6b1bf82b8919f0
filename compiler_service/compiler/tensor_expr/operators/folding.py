"""Col2Im: the sum of overlapping windows, the inverse of taking an image apart; and the same for windows in steps of one."""

from __future__ import annotations

from functools import reduce as fold

from compiler_service.compiler.tensor_expr.broadcast import converted, must_equal, widen
from compiler_service.compiler.tensor_expr.meaning.known import known_dims
from compiler_service.compiler.tensor_expr.operator import Operator
from compiler_service.compiler.tensor_expr.operators.movement import padded
from compiler_service.compiler.tensor_expr.operators.window import spatial_names, windows
from compiler_service.compiler.tensor_expr.tensor import ReduceOp, Tensor, reduce
from shared_ir.dtype import DType
from shared_ir.expr import Expr, equal, lift, logical_and, select
from shared_ir.expr.dim import as_dim, product

Ints = tuple[int, ...]


def col2im(
    x: Tensor,
    image_shape: Tensor,
    block_shape: Tensor,
    *,
    dilations: Ints | None = None,
    pads: Ints | None = None,
    strides: Ints | None = None,
) -> Tensor:
    """``x`` is ``[n, channels * block elements, blocks]``; element k of block o lies at ``o * stride + k * dilation - pad``."""
    image, block = known_dims(image_shape, "image_shape"), known_dims(block_shape, "block_shape")
    rank = len(image)
    dilations, strides, pads = dilations or (1,) * rank, strides or (1,) * rank, pads or (0,) * (2 * rank)
    size = product(block)
    blocks = [
        as_dim((lift(extent) + low + high - (lift(k) - 1) * d - 1) // s + 1)
        for extent, k, d, s, low, high in zip(image, block, dilations, strides, pads[:rank], pads[rank:], strict=True)
    ]

    def body(*index: Expr) -> Expr:
        n, c, *i = index[: rank + 2]
        k = index[rank + 2 :]
        inside = lift(True, DType.BOOL)
        number = lift(0)
        for axis in range(rank):
            start = i[axis] + pads[axis] - k[axis] * dilations[axis]
            o = start // strides[axis]
            inside = logical_and(inside, equal(start % strides[axis], 0))
            inside = logical_and(inside, logical_and(start >= 0, o < lift(blocks[axis])))
            number = number * blocks[axis] + o
        element = fold(lambda flat, axis: flat * axis[1] + axis[0], zip(k, block, strict=True), lift(0))
        return select(inside, widen(x[(n, c * size + element, number)]), 0)

    shape = (x.shape[0], as_dim(lift(x.shape[1]) // lift(size)), *image)
    pairs = must_equal((x.shape[2], product(blocks)))
    return converted(reduce(ReduceOp.SUM, shape, block, body, name="col2im", assumes=pairs), x.dtype)


def sum_taps(x: Tensor, *, kernel_shape: Ints, dilations: Ints, pads: Ints) -> Tensor:
    """``y[n, c, o] = sum over k of x[n, k, c, o + k * dilation - pad]``; the elements ``k`` of the window are one axis of ``x``."""
    (batch, _, channels), spatial = x.shape[:3], x.shape[3:]
    rank = len(spatial)
    found = windows(spatial, kernel_shape, auto_pad="NOTSET", strides=None, dilations=dilations, pads=pads)
    before, after = (0, 0, 0, *(w.before for w in found)), (0, 0, 0, *(w.after for w in found))
    image = padded(x, before, after, lift(0, x.dtype))

    def body(*index: Expr) -> Expr:
        n, c, *rest = index
        at = [window.position(o, k) for window, o, k in zip(found, rest[:rank], rest[rank:], strict=True)]
        tap = fold(lambda flat, axis: flat * axis[1] + axis[0], zip(rest[rank:], kernel_shape, strict=True), lift(0))
        return image[(n, tap, c, *at)]

    shape = (batch, channels, *(window.count for window in found))
    names = ("n", "c", *spatial_names(rank, "o"))
    taps = spatial_names(rank, "k")
    return reduce(ReduceOp.SUM, shape, kernel_shape, body, name="sum_taps", axes=names, reduced=taps)


OPERATORS = (Operator("Col2Im", col2im), Operator("ingot.SumTaps", sum_taps))
