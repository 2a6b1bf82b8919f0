"""Operators that read images between their pixels, at coordinates given by data: GridSample, DeformConv."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce as fold

from compiler_service.compiler.tensor_expr.broadcast import converted, must_equal, widen
from compiler_service.compiler.tensor_expr.extents import inhabited
from compiler_service.compiler.tensor_expr.layout import Layout
from compiler_service.compiler.tensor_expr.operator import Operator
from compiler_service.compiler.tensor_expr.refusal import mismatch, unsupported_attribute
from compiler_service.compiler.tensor_expr.scalar import absolute, floored, rounded
from compiler_service.compiler.tensor_expr.tensor import ReduceOp, Tensor, compute, reduce
from shared_ir.dtype import DType
from shared_ir.expr import Expr, cast, equal, lift, logical_and, logical_or, maximum, minimum, select
from shared_ir.expr.dim import Dim, as_dim, dims_text, numbers_of, product

Ints = tuple[int, ...]
Place = tuple[Expr, ...]
Tap = tuple[Expr, Expr, Expr]
"""A pixel along one axis: its position (in bounds), whether it is in the image, and its weight."""


@dataclass(frozen=True)
class _Border:
    """What lies beyond an axis of ``extent`` pixels; ``aligned``: its ends are the centres of the outer pixels."""

    mode: str
    extent: Dim
    aligned: bool

    def coordinate(self, x: Expr) -> Expr:
        """A coordinate brought into the image, unless what is outside counts as zero."""
        last = cast(lift(self.extent) - 1, x.dtype)
        if self.mode == "border":
            return minimum(maximum(x, 0), last)
        if self.mode == "reflection":
            low = 0.0 if self.aligned else -0.5
            span = last - 2 * low
            distance = absolute(x - low)
            turns = floored(distance / span)
            rest = distance - turns * span
            is_even = equal(turns, floored(turns * 0.5) * 2)
            reflected = select(is_even, rest + low, span - rest + low)
            outside = logical_or(x < low, x > span + low)
            return select(outside, select(span > 0, reflected, lift(low, x.dtype)), x)
        return x

    def pixel(self, i: Expr) -> tuple[Expr, Expr]:
        """A pixel number as a position in bounds, and whether it is in the image."""
        last = lift(self.extent) - 1
        clamped = minimum(maximum(i, 0), last)
        if self.mode == "zeros":
            return clamped, logical_and(i >= 0, i <= last)
        if self.mode == "reflection":
            period = last * 2 if self.aligned else lift(self.extent) * 2
            within = i % maximum(period, 1)
            mirrored = period - within if self.aligned else period - 1 - within
            clamped = minimum(maximum(minimum(within, mirrored), 0), last)
        return clamped, lift(True, DType.BOOL)


def _nearest_taps(x: Expr, border: _Border) -> list[Tap]:
    i, inside = border.pixel(cast(border.coordinate(rounded(x)), DType.INT64))
    return [(i, inside, lift(1, x.dtype))]


def _linear_taps(x: Expr, border: _Border) -> list[Tap]:
    x = border.coordinate(x)
    first = floored(x)
    part = x - first
    start = cast(first, DType.INT64)
    return [(*border.pixel(start), 1 - part), (*border.pixel(start + 1), part)]


def _cubic_taps(x: Expr, border: _Border) -> list[Tap]:
    """Keys, Cubic convolution interpolation for digital image processing (1981), with a = -0.75.

    At the border each tap is brought into the image, not the coordinate: between the outer pixel and what repeats it the
    curve still bends.
    """
    x = x if border.mode == "border" else border.coordinate(x)
    first = floored(x)
    part, start, a = x - first, cast(first, DType.INT64), -0.75

    def far(t: Expr) -> Expr:
        return ((t * a - 5 * a) * t + 8 * a) * t - 4 * a

    def near(t: Expr) -> Expr:
        return (t * (a + 2) - (a + 3)) * t * t + 1

    weights = (far(part + 1), near(part), near(1 - part), far(2 - part))
    return [(*border.pixel(start + k), weight) for k, weight in zip((-1, 0, 1, 2), weights, strict=True)]


_TAPS: Mapping[str, Callable[[Expr, _Border], list[Tap]]] = {
    "nearest": _nearest_taps,
    "linear": _linear_taps,
    "cubic": _cubic_taps,
}


def blend(read: Callable[[Place], Expr], axes: Sequence[Sequence[Tap]]) -> Expr:
    """The weighted sum over one tap of each axis; ``read`` takes their positions."""
    terms = []
    for taps in itertools.product(*axes):
        inside = fold(logical_and, (tap[1] for tap in taps))
        weight = fold(lambda a, b: a * b, (tap[2] for tap in taps))
        terms.append(cast(select(inside, read(tuple(tap[0] for tap in taps)), 0), weight.dtype) * weight)
    return fold(lambda a, b: a + b, terms)


def grid_sample(
    x: Tensor,
    grid: Tensor,
    *,
    align_corners: int = 0,
    mode: str = "linear",
    padding_mode: str = "zeros",
    layout: str = "NCHW",
) -> Tensor:
    """``y[n, c, o] = x[n, c]`` at ``grid[n, o]``: coordinates from -1 to 1, the last axis of ``x`` first. ``layout`` is that of ``x``
    and of the result.

    Jaderberg et al., Spatial Transformer Networks (2015).
    """
    if mode not in _TAPS:
        raise unsupported_attribute("mode", ", ".join(_TAPS), mode)
    if padding_mode not in ("zeros", "border", "reflection"):
        raise unsupported_attribute("padding_mode", "zeros, border or reflection", padding_mode)
    axes = Layout.of(layout, x)
    batch, channels, spatial = axes.parts(x.shape)
    if grid.rank != x.rank or (isinstance(grid.shape[-1], int) and grid.shape[-1] != len(spatial)):
        raise mismatch("the grid does not fit the image", f"{len(spatial)} coordinates", f"[{dims_text(grid.shape)}]")

    def along(axis: int, extent: Dim) -> Callable[[Place], list[Tap]]:
        def taps(place: Place) -> list[Tap]:
            normal = widen(grid[(*place, lift(len(spatial) - 1 - axis))])
            size = cast(lift(extent), normal.dtype)
            at = (normal + 1) * 0.5 * (size - 1) if align_corners else ((normal + 1) * size - 1) * 0.5
            return _TAPS[mode](at, _Border(padding_mode, extent, bool(align_corners)))

        return _tabulated(grid.shape[:-1], taps)

    tables = [along(axis, extent) for axis, extent in enumerate(spatial)]

    def body(*index: Expr) -> Expr:
        n, c, o = axes.parts(index)
        taps = [table((n, *o)) for table in tables]

        def pixel(at: Place) -> Expr:
            return x[axes.arrange(n, c, at)]

        if mode == "nearest":
            return _nearest(pixel, [along[0] for along in taps])
        return cast(blend(lambda at: widen(pixel(at)), taps), x.dtype)

    shape = axes.arrange(batch, channels, grid.shape[1:-1])
    fitting = ((grid.shape[0], batch), (grid.shape[-1], len(spatial)))
    return compute(shape, body, name="grid_sample", assumes=must_equal(*fitting, *pixels(spatial, shape)))


def pixels(image: Sequence[Dim], result: Sequence[Dim]) -> list[tuple[Dim, Dim]]:
    """The dims that must be equal for all of ``result`` to be read from an image: it has a pixel."""
    whole = product(result)
    return [inhabited(extent, whole) for extent in image]


def _tabulated(shape: Sequence[Dim], taps: Callable[[Place], list[Tap]]) -> Callable[[Place], list[Tap]]:
    """``taps`` as tensors of ``shape``: what all channels share may be found once."""
    names = ("positions", "inside", "weights")
    count = len(taps(tuple(lift(0) for _ in shape)))

    def table(tap: int, part: int) -> Tensor:
        return compute(shape, lambda *place: taps(place)[tap][part], name=names[part])

    tables = [[table(tap, part) for part in range(len(names))] for tap in range(count)]
    return lambda place: [(position[place], inside[place], weight[place]) for position, inside, weight in tables]


def _nearest(pixel: Callable[[Place], Expr], taps: Sequence[Tap]) -> Expr:
    found = pixel(tuple(position for position, _, _ in taps))
    return select(fold(logical_and, (inside for _, inside, _ in taps)), found, lift(0, found.dtype))


def deform_conv(
    x: Tensor,
    w: Tensor,
    offset: Tensor,
    b: Tensor | None = None,
    mask: Tensor | None = None,
    *,
    dilations: Ints | None = None,
    group: int = 1,
    kernel_shape: Ints | None = None,
    offset_group: int = 1,
    pads: Ints | None = None,
    strides: Ints | None = None,
) -> Tensor:
    """A convolution whose window elements are displaced by ``offset`` and weighted by ``mask``.

    Dai et al., Deformable Convolutional Networks (2017); Zhu et al., Deformable ConvNets v2 (2018).
    """
    kernel = numbers_of(w.shape[2:])
    rank = x.rank - 2
    if kernel is None or len(kernel) != rank or (kernel_shape is not None and kernel_shape != kernel):
        raise mismatch("the weights do not fit", f"a static kernel of {rank} axes", f"[{dims_text(w.shape)}]")
    strides, dilations, pads = strides or (1,) * rank, dilations or (1,) * rank, pads or (0,) * (2 * rank)
    out_channels, group_channels = w.shape[:2]
    taps = product(kernel)

    def body(*index: Expr) -> Expr:
        n, oc, *o = index[: rank + 2]
        *k, ic = index[rank + 2 :]
        channel = ic if group == 1 else oc // (lift(out_channels) // group) * group_channels + ic
        own = channel // (lift(x.shape[1]) // offset_group)
        tap = fold(lambda flat, axis: flat * axis[1] + axis[0], zip(k, kernel, strict=True), lift(0))
        axes = []
        for axis in range(rank):
            start = o[axis] * strides[axis] - pads[axis] + k[axis] * dilations[axis]
            moved = widen(offset[(n, (own * taps + tap) * rank + axis, *o)])
            axes.append(_linear_taps(cast(start, moved.dtype) + moved, _Border("zeros", x.shape[2 + axis], True)))
        value = blend(lambda at: widen(x[(n, channel, *at)]), axes)
        if mask is not None:
            value = value * cast(mask[(n, own * taps + tap, *o)], value.dtype)
        return value * cast(w[(oc, ic, *k)], value.dtype)

    shape = (x.shape[0], out_channels, *offset.shape[2:])
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    ends = zip(x.shape[2:], pads[:rank], pads[rank:], reach, strides, strict=True)
    spatial = [as_dim((lift(d) + (low + high - far)) // step + 1) for d, low, high, far, step in ends]
    fitting: list[tuple[Dim, Dim]] = [(x.shape[1], as_dim(lift(group_channels) * group))]
    fitting += zip(offset.shape, (x.shape[0], taps * offset_group * rank, *spatial), strict=True)
    if mask is not None:
        fitting += zip(mask.shape, (x.shape[0], taps * offset_group, *spatial), strict=True)
    if b is not None:
        fitting.append((b.shape[0], out_channels))
    pairs = must_equal(*fitting, *pixels(x.shape[2:], shape))
    total = reduce(ReduceOp.SUM, shape, [*kernel, group_channels], body, name="deform_conv", assumes=pairs)
    if b is None:
        return converted(total, x.dtype)
    return compute(shape, lambda *i: cast(total[i] + cast(b[i[1]], total.dtype), x.dtype), name="bias")


OPERATORS = (
    Operator("GridSample", grid_sample),
    Operator("DeformConv", deform_conv),
)
