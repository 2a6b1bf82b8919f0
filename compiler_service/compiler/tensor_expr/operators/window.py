"""Sliding windows: the geometry that convolution and pooling share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from compiler_service.compiler.tensor_expr.layout import Layout
from compiler_service.compiler.tensor_expr.operators.movement import padded
from compiler_service.compiler.tensor_expr.refusal import unsupported_attribute
from compiler_service.compiler.tensor_expr.tensor import Tensor
from shared_ir.expr import Expr, ceil_div, lift, maximum, minimum
from shared_ir.expr.dim import Dim, as_dim

SPATIAL = ("d", "h", "w")
_LONGEST = 1 << 20
"""Longest window, and longest step within and between windows: positions, and the rows that are made of them, stay numbers of int64."""


def spatial_names(rank: int, prefix: str) -> tuple[str, ...]:
    """Loop names of the spatial axes: ``oh, ow`` for two axes, ``od, oh, ow`` for three."""
    if rank > len(SPATIAL):
        return tuple(f"{prefix}{axis}" for axis in range(rank))
    return tuple(prefix + name for name in SPATIAL[len(SPATIAL) - rank :])


@dataclass(frozen=True)
class Window:
    """A window along one axis of extent ``extent``; ``before`` and ``after`` are the padding.

    ``clips``: an axis that is shorter than the window has one window all the same, cut off at its end. That is how the shape
    inference of the ONNX package and ONNX Runtime divide (towards zero), where the text of the standard rounds down.
    """

    extent: Dim
    kernel: Dim
    stride: int = 1
    dilation: int = 1
    before: Dim = 0
    after: Dim = 0
    ceil_mode: bool = False
    clips: bool = False

    @property
    def may_clip(self) -> bool:
        """Whether a window may be cut off. Of extents that only the run knows, where windows do not overlap: there is then one
        window at least."""
        reach = self.reach
        if not self.clips or self.ceil_mode or not isinstance(reach, int):
            return False
        free = as_dim(lift(self.extent) + self.before + self.after - reach)
        if isinstance(free, int):
            return -self.stride < free < 0
        margin = as_dim(lift(self.before) + self.after)
        return isinstance(margin, int) and margin + 1 < reach <= self.stride

    @property
    def assumes(self) -> list[tuple[Dim, Dim]]:
        """That there is something to cut off."""
        return [(as_dim(minimum(self.extent, 1)), 1)] if self.may_clip and isinstance(self.extent, Expr) else []

    @property
    def reach(self) -> Dim:
        """Elements from the first to the last of a window, both included."""
        return as_dim((lift(self.kernel) - 1) * self.dilation + 1)

    @property
    def count(self) -> Dim:
        """Number of windows. With ``ceil_mode`` the last may hang over the end, but starts before the end padding."""
        free = lift(self.extent) + self.before + self.after - self.reach
        if self.may_clip:
            return as_dim(maximum(free // self.stride + 1, 1))
        if not self.ceil_mode:
            return as_dim(free // self.stride + 1)
        starts = (lift(self.extent) + self.before - 1) // self.stride + 1
        gap = as_dim(lift(self.after) + self.stride - self.reach)
        if isinstance(gap, int) and gap >= 0:  # the window from the last start on reaches the end of the padding
            return as_dim(starts)
        return as_dim(minimum(ceil_div(free, self.stride) + 1, starts))

    @property
    def overhang(self) -> Dim:
        """Padding after the end that the last window needs."""
        if not self.ceil_mode:
            return self.after
        last = (lift(self.count) - 1) * self.stride + self.reach
        return as_dim(maximum(last - self.extent - self.before, self.after))

    def position(self, o: Expr, k: Expr) -> Expr:
        """Index into the padded axis of element ``k`` of window ``o``."""
        place = o * self.stride + k * self.dilation
        if not self.may_clip:
            return place
        return minimum(place, lift(self.extent) + self.before + self.after - 1)

    def valid(self, o: Expr, *, count_padding: bool) -> Expr:
        """Number of elements of window ``o`` that lie on the axis (and its padding, when that counts too)."""
        start = o * self.stride if count_padding else o * self.stride - self.before
        end = lift(self.extent) + (self.before + self.after if count_padding else 0)
        first = maximum(ceil_div(0 - start, self.dilation), 0)
        last = minimum(ceil_div(end - start, self.dilation), self.kernel)
        return last - first

    @property
    def is_padded(self) -> bool:
        return self.before != 0 or self.overhang != 0


def windows(
    extents: Sequence[Dim],
    kernel: Sequence[Dim],
    *,
    auto_pad: str,
    strides: Sequence[int] | None,
    dilations: Sequence[int] | None,
    pads: Sequence[int] | None,
    ceil_mode: bool = False,
    clips: bool = False,
) -> tuple[Window, ...]:
    """The windows of an operator, one per spatial axis, with ONNX's defaults and ``auto_pad`` resolved.

    Raises:
        IngotError: UNSUPPORTED_ATTRIBUTE.
    """
    rank = len(extents)
    strides, dilations, pads = strides or (1,) * rank, dilations or (1,) * rank, pads or (0,) * (2 * rank)
    known = [k if isinstance(k, int) else 1 for k in kernel]
    for name, values in (("kernel_shape", known), ("strides", strides), ("dilations", dilations)):
        if len(values) != rank or not all(1 <= value <= _LONGEST for value in values):
            raise unsupported_attribute(name, f"{rank} numbers from 1 to {_LONGEST}", str(tuple(values)))
    if len(pads) != 2 * rank:
        raise unsupported_attribute("pads", f"{2 * rank} numbers", str(tuple(pads)))
    found = []
    for axis, extent in enumerate(extents):
        plain = Window(extent, kernel[axis], strides[axis], dilations[axis], ceil_mode=ceil_mode)
        before, after = _padding(plain, auto_pad, pads[axis], pads[rank + axis])
        found.append(Window(extent, kernel[axis], strides[axis], dilations[axis], before, after, ceil_mode, clips))
    return tuple(found)


def _padding(window: Window, auto_pad: str, before: int, after: int) -> tuple[Dim, Dim]:
    match auto_pad:
        case "NOTSET":
            return before, after
        case "VALID":
            return 0, 0
        case "SAME_UPPER" | "SAME_LOWER":
            count = ceil_div(window.extent, window.stride)
            total = as_dim(maximum((count - 1) * window.stride + window.reach - window.extent, 0))
            half = as_dim(lift(total) // 2)
            rest = as_dim(lift(total) - half)
            return (half, rest) if auto_pad == "SAME_UPPER" else (rest, half)
    raise unsupported_attribute("auto_pad", "NOTSET, VALID, SAME_UPPER or SAME_LOWER", auto_pad)


def pad_for(x: Tensor, layout: Layout, found: Sequence[Window], fill: Expr) -> Tensor:
    """``x`` with the padding of its windows; ``x`` itself when there is none."""
    if not any(w.is_padded for w in found):
        return x
    before = layout.arrange(0, 0, [w.before for w in found])
    after = layout.arrange(0, 0, [w.overhang for w in found])
    names = layout.arrange("n", "ic", spatial_names(len(found), "i"))
    return padded(x, before, after, fill, axes=names)
