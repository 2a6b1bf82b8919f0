"""Pooling over windows and over whole images."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce as fold

from compiler_service.compiler.tensor_expr.broadcast import converted, elementwise, widen
from compiler_service.compiler.tensor_expr.layout import Layout
from compiler_service.compiler.tensor_expr.operator import Operator
from compiler_service.compiler.tensor_expr.operators.reduction import mean_of, reduced
from compiler_service.compiler.tensor_expr.operators.window import Window, pad_for, spatial_names, windows
from compiler_service.compiler.tensor_expr.scalar import absolute, inverse, is_nan, power, sqrt
from compiler_service.compiler.tensor_expr.tensor import ReduceOp, Tensor, compute, identity_of, reduce
from shared_ir.expr import Expr, equal, lift, logical_and, logical_or, select

Ints = tuple[int, ...]


def _pooled(
    op: ReduceOp, image: Tensor, found: Sequence[Window], images: Layout, name: str, term: Callable[[Expr], Expr]
) -> Tensor:
    """``op`` of ``term`` over the windows of a padded image."""
    rank = len(found)
    n, c, _ = images.parts(image.shape)

    def body(*index: Expr) -> Expr:
        i, channel, o = images.parts(index[: rank + 2])
        k = index[rank + 2 :]
        at = [window.position(a, b) for window, a, b in zip(found, o, k, strict=True)]
        return term(image[images.arrange(i, channel, at)])

    return reduce(
        op,
        images.arrange(n, c, [window.count for window in found]),
        [window.kernel for window in found],
        body,
        name=name,
        axes=images.arrange("n", "c", spatial_names(rank, "o")),
        reduced=spatial_names(rank, "k"),
        assumes=[pair for window in found for pair in window.assumes],
    )


def max_pool(
    x: Tensor,
    *,
    kernel_shape: Ints,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: Ints | None = None,
    pads: Ints | None = None,
    storage_order: int = 0,
    strides: Ints | None = None,
    layout: str = "NCHW",
) -> tuple[Tensor, Tensor]:
    """The largest element of every window, and its row-major position in ``x`` (column-major by ``storage_order``)."""
    images = Layout.of(layout, x)
    spatial = images.parts(x.shape)[2]
    found = windows(
        spatial,
        kernel_shape,
        auto_pad=auto_pad,
        strides=strides,
        dilations=dilations,
        pads=pads,
        ceil_mode=bool(ceil_mode),
        clips=True,
    )
    lowest = lift(identity_of(ReduceOp.MAX, x.dtype), x.dtype)
    image = pad_for(x, images, found, lowest)
    largest = _pooled(ReduceOp.MAX, image, found, images, "max_pool", lambda v: v)
    return largest, _positions(x, image, largest, found, images, bool(storage_order))


def _positions(
    x: Tensor, image: Tensor, largest: Tensor, found: Sequence[Window], images: Layout, column_major: bool
) -> Tensor:
    """The first place of each window that holds ``largest``: never one of the padding, and of NaN the first NaN."""
    rank, nowhere = len(found), 2**63 - 1
    _, channels, spatial = images.parts(x.shape)
    pixels = fold(lambda total, d: total * d, spatial, lift(1))

    def body(*index: Expr) -> Expr:
        i, c, o = images.parts(index[: rank + 2])
        k = index[rank + 2 :]
        at = [window.position(a, b) for window, a, b in zip(found, o, k, strict=True)]
        own = [position - window.before for position, window in zip(at, found, strict=True)]
        order = list(zip(own, spatial, strict=True))
        flat = fold(lambda total, axis: total * axis[1] + axis[0], order[::-1] if column_major else order, lift(0))
        flat = flat + (i * channels + c) * pixels
        element, most = image[images.arrange(i, c, at)], largest[index[: rank + 2]]
        holds = equal(element, most)
        if x.dtype.is_float:
            holds = logical_or(holds, logical_and(is_nan(element), is_nan(most)))
        for (place, extent), window in zip(order, found, strict=True):
            if window.is_padded:
                holds = logical_and(holds, logical_and(place >= 0, place < extent))
        return select(holds, flat, lift(nowhere))

    over = [window.kernel for window in found]
    first = reduce(ReduceOp.MIN, largest.shape, over, body, name="max_pool_position")

    def inside(*index: Expr) -> Expr:
        i, c, _ = images.parts(index)
        return select(equal(first[index], nowhere), (i * channels + c) * pixels, first[index])

    return compute(largest.shape, inside, name="max_pool_inside")


def average_pool(
    x: Tensor,
    *,
    kernel_shape: Ints,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    count_include_pad: int = 0,
    dilations: Ints | None = None,
    pads: Ints | None = None,
    strides: Ints | None = None,
    layout: str = "NCHW",
) -> Tensor:
    """The mean of every window: of its elements in the image, or in the padded image by ``count_include_pad``."""
    images = Layout.of(layout, x)
    found = windows(
        images.parts(x.shape)[2],
        kernel_shape,
        auto_pad=auto_pad,
        strides=strides,
        dilations=dilations,
        pads=pads,
        ceil_mode=bool(ceil_mode),
    )
    image = pad_for(x, images, found, lift(0, x.dtype))
    total = _pooled(ReduceOp.SUM, image, found, images, "average_pool", widen)

    def body(*index: Expr) -> Expr:
        _, _, o = images.parts(index)
        size: Expr = lift(1)
        for window, position in zip(found, o, strict=True):
            always_whole = not window.is_padded or (count_include_pad and not ceil_mode)
            whole = lift(window.kernel)
            size = size * (whole if always_whole else window.valid(position, count_padding=bool(count_include_pad)))
        return total[index] * inverse(size, total.dtype)

    return converted(compute(total.shape, body, name="mean"), x.dtype)


def lp_pool(
    x: Tensor,
    *,
    kernel_shape: Ints,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: Ints | None = None,
    p: int = 2,
    pads: Ints | None = None,
    strides: Ints | None = None,
) -> Tensor:
    """The p-norm of every window."""
    images = Layout.of("NCHW", x)
    found = windows(
        x.shape[2:],
        kernel_shape,
        auto_pad=auto_pad,
        strides=strides,
        dilations=dilations,
        pads=pads,
        ceil_mode=bool(ceil_mode),
    )
    image = pad_for(x, images, found, lift(0, x.dtype))
    total = _pooled(ReduceOp.SUM, image, found, images, "lp_pool", lambda v: raised(widen(v), p))
    return converted(elementwise("root", lambda v: root(v, p), total), x.dtype)


def raised(x: Expr, p: int) -> Expr:
    """``|x| ** p``"""
    match p:
        case 1:
            return absolute(x)
        case 2:
            return x * x
    return power(absolute(x), lift(p, x.dtype))


def root(x: Expr, p: int) -> Expr:
    """``x ** (1 / p)``"""
    match p:
        case 1:
            return x
        case 2:
            return sqrt(x)
    return power(x, lift(1 / p, x.dtype))


def _spatial_axes(x: Tensor, layout: str) -> tuple[int, ...]:
    return Layout.of(layout, x).parts(range(x.rank))[2]


def global_average_pool(x: Tensor, *, layout: str = "NCHW") -> Tensor:
    axes = _spatial_axes(x, layout)
    return converted(mean_of(reduced(ReduceOp.SUM, x, axes, "global_average_pool"), x, axes), x.dtype)


def global_max_pool(x: Tensor, *, layout: str = "NCHW") -> Tensor:
    return converted(reduced(ReduceOp.MAX, x, _spatial_axes(x, layout), "global_max_pool"), x.dtype)


def global_lp_pool(x: Tensor, *, p: int = 2, layout: str = "NCHW") -> Tensor:
    total = reduced(ReduceOp.SUM, x, _spatial_axes(x, layout), "global_lp_pool", lambda v: raised(v, p))
    return converted(elementwise("root", lambda v: root(v, p), total), x.dtype)


OPERATORS = (
    Operator("MaxPool", max_pool),
    Operator("AveragePool", average_pool),
    Operator("LpPool", lp_pool),
    Operator("GlobalAveragePool", global_average_pool),
    Operator("GlobalMaxPool", global_max_pool),
    Operator("GlobalLpPool", global_lp_pool),
)
