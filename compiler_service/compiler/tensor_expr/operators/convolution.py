"""Convolutions of any rank, stride, dilation and grouping."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from compiler_service.compiler.tensor_expr.broadcast import Pairs, converted, must_equal, widen
from compiler_service.compiler.tensor_expr.layout import Layout
from compiler_service.compiler.tensor_expr.operator import Operator
from compiler_service.compiler.tensor_expr.operators.movement import padded
from compiler_service.compiler.tensor_expr.operators.window import Window, pad_for, spatial_names, windows
from compiler_service.compiler.tensor_expr.refusal import mismatch, unsupported_attribute
from compiler_service.compiler.tensor_expr.tensor import ReduceOp, Tensor, compute, reduce
from shared_ir.dtype import DType
from shared_ir.expr import Expr, ceil_div, equal, lift, logical_and, maximum, select
from shared_ir.expr.dim import Dim, as_dim, dims_text

Ints = tuple[int, ...]


def conv(
    x: Tensor,
    w: Tensor,
    b: Tensor | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Ints | None = None,
    group: int = 1,
    kernel_shape: Ints | None = None,
    pads: Ints | None = None,
    strides: Ints | None = None,
    layout: str = "NCHW",
    data_layout: str = "",
    exact: bool = False,
    open: bool = False,
) -> Tensor:
    """``y[n, oc, o] = b[oc] + sum over k, ic of x[n, group(oc) + ic, o * stride + k * dilation - pad] * w[oc, ic, k]``.

    ``w`` is ``[oc, ic / group, *kernel]`` in every layout; ``data_layout`` is that of ``x`` where it is not the result's; ``exact``:
    see :class:`Reduction`; ``open``: the kernel may be of a size that only the run knows.
    """
    images, data = Layout.of(layout, x), Layout.of(data_layout or layout, x)
    channels, spatial = data.parts(x.shape)[1:]
    kernel = _kernel(x, w, kernel_shape, open)
    if not _divides(group, w.shape[0]) or not _divides(group, channels):
        expected = f"channels {dims_text([channels])} in {group} groups"
        raise mismatch("the weights of a convolution do not fit", expected, f"[{dims_text(w.shape)}]")
    found = windows(spatial, kernel, auto_pad=auto_pad, strides=strides, dilations=dilations, pads=pads)
    image = pad_for(x, data, found, lift(0, x.dtype))
    return _biased(_window_sum(image, data, w, found, group, images, exact), b, images, x)


def _kernel(x: Tensor, w: Tensor, kernel_shape: Ints | None, open: bool) -> tuple[Dim, ...]:
    """The spatial extents of the weights, which the attribute may repeat."""
    sizes = w.shape[2:]
    if w.rank != x.rank:
        raise mismatch("the weights of a convolution do not fit", f"{x.rank} axes", f"[{dims_text(w.shape)}]")
    if not open and not all(isinstance(d, int) for d in sizes):
        expected = "weights of a static size, or the size of the kernel in this attribute"
        raise unsupported_attribute(
            "kernel_shape", expected, f"weights [{dims_text(w.shape)}], which only the run knows"
        )
    if kernel_shape is not None and kernel_shape != sizes:
        raise unsupported_attribute("kernel_shape", dims_text(sizes), str(kernel_shape))
    return sizes


def _divided(channels: Dim, group: int) -> Pairs:
    """What makes ``channels`` come in ``group`` equal groups."""
    return must_equal((channels, as_dim(lift(channels) // group * group)))


def _divides(group: int, channels: Dim) -> bool:
    return group > 0 and (not isinstance(channels, int) or channels % group == 0)


def _window_sum(
    image: Tensor, data: Layout, w: Tensor, found: Sequence[Window], group: int, images: Layout, exact: bool = False
) -> Tensor:
    """The sum of products of a convolution over the padded ``image``, whose layout is ``data``."""
    out_channels, group_channels = w.shape[:2]
    channels, expected = data.parts(image.shape)[1], as_dim(group_channels * group)
    rank = len(found)

    def body(*index: Expr) -> Expr:
        n, oc, o = images.parts(index[: rank + 2])
        *k, ic = index[rank + 2 :]
        channel = ic if group == 1 else oc // (lift(out_channels) // group) * group_channels + ic
        at = [window.position(i, j) for window, i, j in zip(found, o, k, strict=True)]
        return widen(image[data.arrange(n, channel, at)]) * widen(w[(oc, ic, *k)])

    return reduce(
        ReduceOp.SUM,
        images.arrange(image.shape[0], out_channels, [window.count for window in found]),
        [*w.shape[2:], group_channels],
        body,
        name="conv",
        axes=images.arrange("n", "oc", spatial_names(rank, "o")),
        reduced=(*spatial_names(rank, "k"), "ic"),
        assumes=must_equal((channels, expected), *_divided(out_channels, group)),
        exact=exact,
    )


def _biased(total: Tensor, b: Tensor | None, images: Layout, x: Tensor) -> Tensor:
    if b is None:
        return converted(total, x.dtype)

    def body(*index: Expr) -> Expr:
        return total[index] + widen(b[images.parts(index)[1]])

    return converted(compute(total.shape, body, name="bias"), x.dtype)


_MOST_PHASES = 1 << 10
"""Along an axis: of more a loop over the windows is what there is."""


def conv_transpose(
    x: Tensor,
    w: Tensor,
    b: Tensor | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Ints | None = None,
    group: int = 1,
    kernel_shape: Ints | None = None,
    output_padding: Ints | None = None,
    output_shape: Ints | None = None,
    pads: Ints | None = None,
    strides: Ints | None = None,
    layout: str = "NCHW",
    open: bool = False,
) -> Tensor:
    """The gradient of a convolution. ``w`` is ``[ic, oc / group, *kernel]``; ``open`` as of :func:`conv`.

    ``y[o] = sum over k, ic of x[(o + pad - k * dilation) / stride] * w[k]``, where the quotient is whole.
    """
    images = Layout.of(layout, x)
    spatial = images.parts(x.shape)[2]
    rank = len(spatial)
    kernel = _kernel(x, w, kernel_shape, open)
    if not _divides(group, w.shape[0]):
        raise mismatch("the weights of a convolution do not fit", f"{group} groups", f"[{dims_text(w.shape)}]")
    strides, dilations = strides or (1,) * rank, dilations or (1,) * rank
    channels = must_equal((images.parts(x.shape)[1], w.shape[0]), *_divided(w.shape[0], group))
    output_padding, pads = output_padding or (0,) * rank, pads or (0,) * (2 * rank)
    crops, sizes = [], []
    for axis in range(rank):
        full = spatial[axis] * strides[axis] - strides[axis] + (lift(kernel[axis]) - 1) * dilations[axis] + 1
        whole = as_dim(full + output_padding[axis])
        wanted: Dim | None = None if output_shape is None else output_shape[axis - rank]
        if wanted is None and auto_pad.startswith("SAME"):
            wanted = as_dim(spatial[axis] * strides[axis])
        low, high = _crop(whole, wanted, auto_pad, pads[axis], pads[rank + axis])
        crops.append(low)
        sizes.append(as_dim(whole - low - high) if wanted is None else wanted)
    known = [k for k in kernel if isinstance(k, int)]
    if 1 < max(strides) <= _MOST_PHASES and max(dilations) == 1 and len(known) == rank:
        found = [_Phases(*axis) for axis in zip(spatial, known, strides, crops, sizes, strict=True)]
        return _biased(replace(_phase_sum(x, w, found, group, images), assumes=tuple(channels)), b, images, x)
    reach = [(lift(k) - 1) * d for k, d in zip(kernel, dilations, strict=True)]
    slid = [Window(as_dim(r + s), k, 1, d) for s, r, k, d in zip(sizes, reach, kernel, dilations, strict=True)]
    before = [as_dim(r - lift(c)) for r, c in zip(reach, crops, strict=True)]
    image = _spread(x, images, strides, before, [window.extent for window in slid])
    total = _window_sum(image, images, _flipped(w, group), slid, group, images)
    return _biased(replace(total, assumes=(*channels, *total.assumes)), b, images, x)


def _crop(full: Dim, wanted: Dim | None, auto_pad: str, low: int, high: int) -> tuple[Dim, Dim]:
    """Elements cut off at both ends of the full result; what is ``wanted`` beyond it are zeros behind."""
    if auto_pad not in ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"):
        raise unsupported_attribute("auto_pad", "NOTSET, VALID, SAME_UPPER or SAME_LOWER", auto_pad)
    if wanted is None:
        return (low, high) if auto_pad == "NOTSET" else (0, 0)
    total = as_dim(maximum(full - wanted, 0))
    half = as_dim(lift(total) // 2)
    rest = as_dim(total - half)
    return (half, rest) if auto_pad == "SAME_UPPER" else (rest, half)


@dataclass(frozen=True)
class _Phases:
    """One axis of a transposed convolution: outputs ``o = q * stride + r``, apart by their phase r.

    The outputs of phase r see the weights ``(r + crop) % stride + stride * j`` for j in ``range(taps)``, and element
    ``q + (r + crop) // stride - j`` of the data.
    """

    extent: Dim
    kernel: int
    stride: int
    crop: Dim
    size: Dim

    @property
    def taps(self) -> int:
        return -(-self.kernel // self.stride)

    @property
    def count(self) -> Dim:
        """Number of outputs of a phase."""
        return as_dim(ceil_div(lift(self.size), self.stride))

    @property
    def after(self) -> Dim:
        """Zeros wanted behind the data; ``taps - 1`` are wanted before it."""
        return as_dim(lift(self.count) + (lift(self.crop) + (self.stride - 1)) // self.stride - self.extent)

    def source(self, q: Expr, r: Expr, j: Expr) -> Expr:
        """Index into the data with its zeros."""
        return q + (r + self.crop) // self.stride - j + (self.taps - 1)

    def weight(self, r: Expr, j: Expr) -> Expr:
        return (r + self.crop) % self.stride + j * self.stride


def _phase_sum(x: Tensor, w: Tensor, found: Sequence[_Phases], group: int, images: Layout) -> Tensor:
    """The sum of products of a transposed convolution, computed phase by phase: no zeros between the elements of ``x``."""
    batch, rank = images.parts(x.shape)[0], len(found)
    out, own = w.shape[1], as_dim(lift(w.shape[0]) // group)
    channels = as_dim(lift(out) * group)
    image, weights = _with_zeros(x, w, found, images)

    def body(*index: Expr) -> Expr:
        n, oc, at = images.parts(index[: 2 * rank + 2])
        *taps, ic = index[2 * rank + 2 :]
        each = list(zip(found, at[::2], at[1::2], taps, strict=True))
        channel, filter_ = (ic, oc) if group == 1 else (oc // lift(out) * own + ic, oc % lift(out))
        value = image[images.arrange(n, channel, [p.source(q, r, j) for p, q, r, j in each])]
        return widen(value) * widen(weights[(channel, filter_, *(p.weight(r, j) for p, _, r, j in each))])

    def joined(*index: Expr) -> Expr:
        n, oc, o = images.parts(index)
        parts = [part for i, p in zip(o, found, strict=True) for part in (i // p.stride, i % p.stride)]
        return phases[images.arrange(n, oc, parts)]

    extents = [extent for p in found for extent in (p.count, p.stride)]
    names = [f"{name}{part}" for name in spatial_names(rank, "o") for part in ("q", "r")]
    phases = reduce(
        ReduceOp.SUM,
        images.arrange(batch, channels, extents),
        [*(p.taps for p in found), own],
        body,
        name="conv",
        axes=images.arrange("n", "oc", names),
        reduced=(*spatial_names(rank, "k"), "ic"),
    )
    shape = images.arrange(batch, channels, [p.size for p in found])
    return compute(shape, joined, name="phases", axes=images.arrange("n", "oc", spatial_names(rank, "o")))


def _with_zeros(x: Tensor, w: Tensor, found: Sequence[_Phases], images: Layout) -> tuple[Tensor, Tensor]:
    """Data and weights with the zeros that make every phase see as many taps."""
    if any(p.taps > 1 or p.after != 0 for p in found):
        before = images.arrange(0, 0, [p.taps - 1 for p in found])
        after = images.arrange(0, 0, [p.after for p in found])
        names = images.arrange("n", "ic", spatial_names(len(found), "i"))
        x = padded(x, before, after, lift(0, x.dtype), axes=names)
    missing = [p.taps * p.stride - p.kernel for p in found]
    if any(missing):
        w = padded(w, (0,) * w.rank, (0, 0, *missing), lift(0, w.dtype))
    return x, w


def _spread(x: Tensor, images: Layout, strides: Sequence[int], before: Sequence[Dim], sizes: Sequence[Dim]) -> Tensor:
    """Elements of ``x`` ``stride`` apart, ``before`` zeros in front of the first, ``sizes`` elements in all."""
    batch, channels, spatial = images.parts(x.shape)

    def body(*index: Expr) -> Expr:
        n, c, at = images.parts(index)
        inside: Expr = lift(True, DType.BOOL)
        source = []
        for i, stride, low, extent in zip(at, strides, before, spatial, strict=True):
            distance = i - low
            inside = logical_and(inside, logical_and(distance >= 0, distance < lift(extent) * stride))
            inside = logical_and(inside, equal(distance % stride, 0))
            source.append(distance // stride)
        return select(inside, x[images.arrange(n, c, source)], lift(0, x.dtype))

    names = images.arrange("n", "ic", spatial_names(len(spatial), "i"))
    return compute(images.arrange(batch, channels, sizes), body, name="pad", axes=names)


def _flipped(w: Tensor, group: int) -> Tensor:
    """``[ic, oc / group, *kernel]`` as the weights ``[oc, ic / group, *kernel]`` of a convolution, spatially flipped."""
    inputs, outputs, *kernel = w.shape
    own = lift(inputs) // group

    def body(oc: Expr, ic: Expr, *k: Expr) -> Expr:
        flipped = [lift(n) - 1 - i for n, i in zip(kernel, k, strict=True)]
        if group == 1:
            return w[(ic, oc, *flipped)]
        return w[(oc // lift(outputs) * own + ic, oc % lift(outputs), *flipped)]

    return compute((outputs * group, own, *kernel), body, name="flip")


OPERATORS = (
    Operator("Conv", conv),
    Operator("ingot.ExactConv", partial(conv, exact=True)),  # of integers that are held as floats
    Operator("ConvTranspose", conv_transpose),
    Operator("ingot.OpenConv", partial(conv, open=True)),
    Operator("ingot.OpenConvTranspose", partial(conv_transpose, open=True)),
)
