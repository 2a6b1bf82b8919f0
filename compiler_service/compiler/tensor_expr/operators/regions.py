"""Operators that look at regions of images, which are given by data: RoiAlign, MaxRoiPool."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce as fold

from compiler_service.compiler.tensor_expr.broadcast import must_equal, widen
from compiler_service.compiler.tensor_expr.layout import Layout
from compiler_service.compiler.tensor_expr.meaning.known import known_dims, vector
from compiler_service.compiler.tensor_expr.operator import Operator
from compiler_service.compiler.tensor_expr.operators.gathering import position
from compiler_service.compiler.tensor_expr.operators.interpolation import Tap, blend, pixels
from compiler_service.compiler.tensor_expr.refusal import mismatch, unsupported_attribute
from compiler_service.compiler.tensor_expr.scalar import ceiling, clamped, floored
from compiler_service.compiler.tensor_expr.tensor import ReduceOp, Tensor, compute, identity_of, reduce
from shared_ir.dtype import DType
from shared_ir.expr import Expr, cast, ceil_div, equal, lift, logical_and, maximum, minimum, select
from shared_ir.expr.dim import Dim, dims_text

Ints = tuple[int, ...]
Bin = tuple[Expr, Expr, Expr, Expr]
"""Of a bin along one axis: the coordinate where its samples begin that are looked at, how far they are apart, how many they are, and
how many samples it has."""

_MOST_SAMPLES = 2.0**60
_BESIDE = 4
_BLOCK = 4
"""Samples that one vector computes."""


@dataclass(frozen=True)
class _Regions:
    """Regions of interest ``rois`` [r, 4] (x1, y1, x2, y2), each divided into ``sizes`` (rows, columns) of bins.

    ``samples`` per bin and axis, 0 for ``ceil(bin size)``, which is none of what is no region: of a size below 0, infinite, or NaN.
    Of more samples than an image of ``extents`` needs those are looked at that may lie in it or one pixel around it. Of k samples
    of a bin of more than k - 1 pixels these are at most ``extent + 2``, whatever k is. One more on either side is left for rounding.
    """

    rois: Tensor
    extents: Sequence[Dim]
    sizes: tuple[int, int]
    half_pixel: bool
    scale: float
    samples: int

    def __post_init__(self) -> None:
        if self.rois.rank != 2:
            raise mismatch("RoiAlign takes regions as rows", "[r, 4]", f"[{dims_text(self.rois.shape)}]")

    def bin(self, r: Expr, axis: int, i: Expr) -> Bin:
        start, end = (
            widen(self.rois[(r, lift(column))]) * self.scale - (0.5 if self.half_pixel else 0.0)
            for column in (1 - axis, 3 - axis)
        )
        length = end - start if self.half_pixel else maximum(end - start, 1)
        size = length / float(self.sizes[axis])
        first = start + cast(i, size.dtype) * size
        if self.samples:
            count = lift(self.samples, size.dtype)
            return first, size / count, count, count
        whole = ceiling(size)
        count = select(whole < _MOST_SAMPLES, whole, 0)
        step, most = size / count, cast(lift(self.extents[axis]) + _BESIDE, size.dtype)
        before = maximum(minimum(floored((-1 - first) / step - 0.5), count - most), 0)
        return first + before * step, step, minimum(count, most), count


def roi_bins(
    x: Tensor,
    rois: Tensor,
    *,
    coordinate_transformation_mode: str = "half_pixel",
    axis: int,
    output_height: int = 1,
    output_width: int = 1,
    spatial_scale: float = 1.0,
) -> Tensor:
    """[r, bins, 4]: every :data:`Bin` of every region along ``axis``, 0 of the rows or 1 of the columns."""
    sizes = (output_height, output_width)
    half_pixel = coordinate_transformation_mode == "half_pixel"
    regions = _Regions(rois, x.shape[2:], sizes, half_pixel, spatial_scale, 0)

    def part(r: Expr, i: Expr, number: Expr) -> Expr:
        return _chosen(number, regions.bin(r, axis, i))

    columns = must_equal((rois.shape[1], 4))
    return compute((rois.shape[0], sizes[axis], 4), part, name="roi_bins", assumes=columns)


def _chosen(number: Expr, values: Sequence[Expr]) -> Expr:
    *others, found = values
    for i, value in reversed(list(enumerate(others))):
        found = select(equal(number, i), value, found)
    return found


def roi_samples(rows: Tensor, columns: Tensor) -> Tensor:
    """int64 [2]: as many samples as are looked at of the bin that has most: of ``rows``, and in blocks of ``columns``."""

    def most(bins: Tensor) -> Tensor:
        def looked_at(_: Expr, r: Expr, i: Expr) -> Expr:
            return cast(maximum(bins[r, i, lift(2)], 1), DType.INT64)

        return reduce(ReduceOp.MAX, (1,), bins.shape[:2], looked_at, name="roi_samples")

    found = [maximum(most(bins)[lift(0),], 1) for bins in (rows, columns)]
    return vector([found[0], ceil_div(found[1], _BLOCK)], DType.INT64, name="blocks")


def _reader(regions: _Regions, rows: Tensor | None, columns: Tensor | None) -> Callable[[Expr, int, Expr], Bin]:
    """The bin along an axis of a region, from ``rows`` and ``columns`` where they are given."""
    given = [bins for bins in (rows, columns) if bins is not None]
    if regions.samples < 0 or len(given) != (0 if regions.samples else 2):
        expected = "a number of samples, or 0 for as many as a region asks for"
        raise unsupported_attribute("sampling_ratio", expected, str(regions.samples))

    def read(r: Expr, axis: int, i: Expr) -> Bin:
        at, step, count, whole = (given[axis][r, i, lift(part)] for part in range(4))
        return at, step, count, whole

    return read if given else regions.bin


def _met(read: Callable[[tuple[Expr, ...]], Expr], axes: Sequence[Sequence[Tap]], mode: str) -> Expr:
    """What a sample counts for: pixels around it blended, or the largest of them by its weight; 0 outside of the image."""
    if mode == "avg":
        return blend(read, axes)
    terms = [read((a[0], b[0])) * (a[2] * b[2]) for a, b in itertools.product(*axes)]
    return select(logical_and(axes[0][0][1], axes[1][0][1]), fold(maximum, terms), 0)


def roi_align(
    x: Tensor,
    rois: Tensor,
    batch_indices: Tensor,
    rows: Tensor | None = None,
    columns: Tensor | None = None,
    looked_at: Tensor | None = None,
    *,
    coordinate_transformation_mode: str = "half_pixel",
    mode: str = "avg",
    output_height: int = 1,
    output_width: int = 1,
    sampling_ratio: int = 0,
    spatial_scale: float = 1.0,
    layout: str = "NCHW",
) -> Tensor:
    """Each region of interest resampled to ``output_height x output_width`` bins (He et al., Mask R-CNN, 2017).

    ``layout`` is that of ``x`` and of the result. ``sampling_ratio`` 0 takes ``ceil(bin size)`` samples per bin and axis. They are
    those of ``rows`` and ``columns``, as many as are ``looked_at`` (:func:`roi_bins`, :func:`roi_samples`): the others lie outside of
    the image and count as 0.
    """
    if mode not in ("avg", "max"):
        raise unsupported_attribute("mode", "avg or max", mode)
    sizes = (output_height, output_width)
    order = Layout.of(layout, x)
    _, channels, extents = order.parts(x.shape)
    half_pixel = coordinate_transformation_mode == "half_pixel"
    regions = _Regions(rois, extents, sizes, half_pixel, spatial_scale, sampling_ratio)
    bin_of, block = _reader(regions, rows, columns), sampling_ratio or _BLOCK
    most, blocks = (sampling_ratio, 1) if looked_at is None else known_dims(looked_at, "looked_at")

    def sample(*index: Expr) -> Expr:
        r, c, o = order.parts(index[: x.rank])
        row, outer, inner = index[x.rank :]
        taken = lift(True, DType.BOOL)
        axes: list[list[Tap]] = []
        for axis, number in enumerate((row, outer * block + inner)):
            first, step, count, _ = bin_of(r, axis, o[axis])
            taken = logical_and(taken, cast(number, step.dtype) < count)
            at = first + (cast(number, step.dtype) + 0.5) * step
            inside = logical_and(at >= -1, at <= cast(lift(extents[axis]), at.dtype))
            axes.append(_edge_taps(at, extents[axis], inside))
        n = position(batch_indices, (r,), x.shape[0])
        found = _met(lambda at: widen(x[order.arrange(n, c, at)]), axes, mode)
        return select(taken, found, lift(identity, found.dtype))

    op = ReduceOp.SUM if mode == "avg" else ReduceOp.MAX
    identity = identity_of(op, x.dtype.arithmetic)
    shape = order.arrange(rois.shape[0], channels, sizes)
    pairs = must_equal((rois.shape[1], 4), (batch_indices.shape[0], rois.shape[0]), *pixels(extents, shape))
    total = reduce(op, shape, (most, blocks, block), sample, name="roi_align", assumes=pairs)
    if mode == "max":
        return compute(shape, lambda *i: cast(select(total[i] > identity, total[i], 0), x.dtype), name="largest")

    def mean(*index: Expr) -> Expr:
        r, _, o = order.parts(index)
        return cast(total[index] / maximum(bin_of(r, 0, o[0])[3] * bin_of(r, 1, o[1])[3], 1), x.dtype)

    return compute(shape, mean, name="mean")


def max_roi_pool(x: Tensor, rois: Tensor, *, pooled_shape: Ints, spatial_scale: float = 1.0) -> Tensor:
    """``[r, c, *pooled_shape]``: the largest pixel of every bin of the regions ``rois`` [r, 5] (image, x1, y1, x2, y2); 0 of an empty
    bin. Girshick, Fast R-CNN (2015)."""
    columns = rois.shape[1] if rois.rank == 2 else 0
    if x.rank != 4 or (isinstance(columns, int) and columns != 5) or len(pooled_shape) != 2:
        received = f"[{dims_text(x.shape)}] and [{dims_text(rois.shape)}]"
        raise mismatch("MaxRoiPool takes images and regions", "[n, c, h, w] and [r, 5]", received)
    lowest = lift(identity_of(ReduceOp.MAX, x.dtype), x.dtype)

    def bounds(r: Expr, axis: int, o: Expr) -> tuple[Expr, Expr]:
        scaled = [widen(rois[r, lift(2 - axis + 2 * end)]) * spatial_scale for end in (0, 1)]
        start, stop = (select(v < 0, -floored(-v + 0.5), floored(v + 0.5)) for v in scaled)
        size = maximum(stop - start + 1, 1) / pooled_shape[axis]
        place, extent = cast(o, size.dtype), cast(lift(x.shape[2 + axis]), size.dtype)
        ends = floored(place * size) + start, ceiling((place + 1) * size) + start
        first, last = (cast(minimum(maximum(v, 0), extent), DType.INT64) for v in ends)
        return first, last

    def pixel(r: Expr, c: Expr, oh: Expr, ow: Expr, h: Expr, w: Expr) -> Expr:
        (top, bottom), (left, right) = bounds(r, 0, oh), bounds(r, 1, ow)
        inside = logical_and(logical_and(h >= top, h < bottom), logical_and(w >= left, w < right))
        image = position(rois, (r, lift(0)), x.shape[0])
        return select(inside, x[image, c, h, w], lowest)

    shape = (rois.shape[0], x.shape[1], *pooled_shape)
    found = reduce(ReduceOp.MAX, shape, x.shape[2:], pixel, name="max_roi_pool", assumes=must_equal((rois.shape[1], 5)))
    return compute(shape, lambda *i: select(equal(found[i], lowest), lift(0.0, x.dtype), found[i]), name="bins")


def _edge_taps(at: Expr, extent: Dim, inside: Expr) -> list[Tap]:
    """Linear interpolation between pixels, with the outer pixels continued to where ``inside`` ends."""
    last = cast(lift(extent) - 1, at.dtype)
    at = minimum(maximum(at, 0), last)
    first = floored(at)
    part, start = at - first, clamped(cast(first, DType.INT64), extent)
    return [(start, inside, 1 - part), (minimum(start + 1, lift(extent) - 1), inside, part)]


OPERATORS = (
    Operator("RoiAlign", roi_align),
    Operator("ingot.RoiBins", roi_bins),
    Operator("ingot.RoiSamples", roi_samples),
    Operator("MaxRoiPool", max_roi_pool),
)
