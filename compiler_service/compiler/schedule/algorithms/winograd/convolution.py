"""Convolutions that Winograd's minimal filtering applies to: along rows and columns, or along one axis (:mod:`filtering`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import TypeVar

from compiler_service.compiler.schedule.algorithms.winograd.filtering import PLAIN, Filtering, filtering
from compiler_service.compiler.tensor_expr.tensor import Axis, Compute, Load, ReduceOp, Tensor
from shared_ir.expr import Expr, Var, ceil_div, lift, substitute, variables
from shared_ir.expr.dim import Dim, as_dim, static
from shared_ir.expr.simplify import simplify

_T = TypeVar("_T")
_U = TypeVar("_U")
_STRIDES = {1: range(1, 9), 2: (1, 2)}
"""For each number of axes that are filtered, strides that are looked for."""
_FORMS = ((True, True, True), (True, False, True), (True, True, False), (False, False, True))
"""Convolutions with rows that are filtered along rows and columns, along columns, along rows, and lines."""


@dataclass(frozen=True)
class Convolution:
    """``sum over t.., kh, kw, c of data[plane.., oh * stride + kh, ow * stride + kw, channel(oc, c)] * weight[..]``, dilation 1.

    Each plane of the data that an output sums is filtered on its own: under further taps ``t..`` (of the depth of a volume) it has
    as many channels more. A window along one axis alone, ``kh`` or ``kw``, is filtered along that; the other axis is read as it
    is. A line of data has no rows, and no ``oh``; where it is read with a dilation, its phases take the place of rows: outputs
    that are a dilation apart, with what they read, are a line of their own.

    Attributes:
        outer: axes of the output before ``oh, ow, oc``.
        taps: axes ``t..`` of the sum; places of ``plane`` hang on them and on the outer axes.
        kernel: extent of the window.
        filtered: whether it extends along ``kh``, along ``kw``.
        has_rows: whether the output has an axis ``oh``.
        dilation: of a line.
        depth: channels of the data that an output sums, those of all planes.
        group: outputs that sum the same channels; all of them where the convolution is not grouped.
        weight_axes: positions of oc, t.., c, kh, kw among the weight's axes; -1 for that which the window has not.
    """

    tensor: Tensor
    data: Load
    weight: Load
    outer: tuple[str, ...]
    taps: tuple[Axis, ...]
    kernel: int
    filtered: tuple[bool, bool]
    has_rows: bool
    dilation: int
    stride: int
    depth: int
    group: int
    weight_axes: tuple[int, ...]

    def filterings(self, tile: int) -> tuple[Filtering, Filtering]:
        """Along rows and columns."""
        own = filtering(tile, self.kernel, self.stride)
        rows, columns = self.filtered
        return own if rows else PLAIN, own if columns else PLAIN

    @property
    def image(self) -> tuple[Dim, Dim]:
        """Height and width of the output; the number and the length of phases."""
        *_, height, width, _ = (1, *self.tensor.shape)
        return (height, width) if self.has_rows else (self.dilation, as_dim(ceil_div(lift(width), self.dilation)))

    @property
    def window(self) -> int:
        """Taps of a plane."""
        return self.kernel**2 if all(self.filtered) else self.kernel

    @property
    def is_grouped(self) -> bool:
        return self.group != self.tensor.shape[-1]

    def channel(self, oc: Expr, c: Expr) -> Expr:
        """Where the data has the channel ``c`` of those that the output ``oc`` sums."""
        return oc // self.group * self.depth + c if self.is_grouped else c

    @property
    def planes(self) -> int:
        """Number of planes of the data that an output sums."""
        return _product(self.taps)

    def place(self, channel: Expr) -> tuple[dict[Var, Expr], Expr]:
        """(taps, channel of the data) of one of ``depth`` channels."""
        if not self.taps:
            return {}, channel
        places, own = {}, self.depth // self.planes
        left, channel = channel // own, channel % own
        for axis in reversed(self.taps):
            extent = lift(axis.extent)
            places[axis.var] = left % extent
            left = left // extent
        return places, channel


def _product(axes: Sequence[Axis]) -> int:
    return prod(static(a.extent) for a in axes)


def match_convolution(tensor: Tensor, data: Load, weight: Load) -> Convolution | None:
    """``tensor``, the sum of products of the two loads, as a convolution that filtering applies to, or None."""
    op = tensor.op
    reduction = op.reduction if isinstance(op, Compute) else None
    if (
        reduction is None
        or reduction.op is not ReduceOp.SUM
        or reduction.exact
        or tensor.rank < 2
        or len(reduction.axes) < 2
    ):
        return None
    if not all(isinstance(a.extent, int) for a in (axes_of(tensor)[-1], *reduction.axes)):
        return None
    found = (_in_form(tensor, reduction.axes, data, weight, *form) for form in _FORMS)
    return next((conv for conv in found if conv is not None), None)


def _in_form(
    tensor: Tensor, summed: tuple[Axis, ...], data: Load, weight: Load, has_rows: bool, *filtered: bool
) -> Convolution | None:
    """The convolution with or without rows, filtered along rows, along columns."""
    places, windows = 2 if has_rows else 1, sum(filtered)
    if tensor.rank <= places or len(summed) <= windows or len(data.indices) <= places:
        return None
    axes = axes_of(tensor)
    outer, over, oc = axes[: -places - 1], axes[-places - 1 : -1], axes[-1]
    taps, window, c = summed[: -windows - 1], summed[-windows - 1 : -1], summed[-1]
    plane, own = data.indices[: -places - 1], data.indices[-places - 1 :]
    order = [a.var for a in (oc, *taps, c, *window)]
    inner = {a.var for a in (*over, oc, *window, c)}
    if any(variables(i) & inner for i in plane) or sorted(map(str, weight.indices)) != sorted(map(str, order)):
        return None
    if len({a.extent for a in window}) > 1 or window[0].extent == 1:
        return None
    if has_rows and not filtered[0] and not isinstance(over[0].extent, int):
        return None  # as many lines as the run has
    dilation = 1 if has_rows else _step_of(own[0], window[0].var)
    kernel, channels, outputs = (static(a.extent) for a in (window[0], c, oc))
    positions = [weight.indices.index(v) for v in order]
    weight_axes = (*positions[:-windows], *_spread(filtered, positions[-windows:], -1))
    groups = (outputs,) if taps else _outputs_of_group(data.tensor.shape[-1], channels, outputs)
    depth = channels * _product(taps)
    strides = _STRIDES[windows] if dilation == 1 else (1,)
    for group, stride in ((group, stride) for group in groups for stride in strides):
        found = Convolution(
            tensor,
            data,
            weight,
            tuple(a.name for a in outer),
            tuple(taps),
            kernel,
            (filtered[0], filtered[1]),
            has_rows,
            dilation,
            stride,
            depth,
            group,
            weight_axes,
        )
        steps = _spread(filtered[2 - places :], window, None)
        wanted = (
            a.var if tap is None else a.var * stride + tap.var * dilation for a, tap in zip(over, steps, strict=True)
        )
        indices = zip(own, (*wanted, found.channel(oc.var, c.var)), strict=True)
        if all(simplify(i) == simplify(w) for i, w in indices):
            return found
    return None


def _step_of(index: Expr, var: Var) -> int:
    """By how much ``index`` grows with ``var``; 1 where that is no number above 1."""
    step = as_dim(substitute(index, {var: var + 1}) - index)
    return step if isinstance(step, int) and step > 1 else 1


def _spread(where: Sequence[bool], items: Sequence[_T], other: _U) -> tuple[_T | _U, ...]:
    """The ``items`` in those places, ``other`` elsewhere."""
    left = iter(items)
    return tuple(next(left) if here else other for here in where)


def _outputs_of_group(channels: Dim, depth: int, outputs: int) -> Iterator[int]:
    """How many outputs a group may have where each sums ``depth`` of ``channels``: all of them, or those of whole groups."""
    yield outputs
    groups = channels // depth if isinstance(channels, int) and channels % depth == 0 else 1
    if outputs % groups == 0:
        yield outputs // groups


def axes_of(tensor: Tensor) -> tuple[Axis, ...]:
    assert isinstance(tensor.op, Compute)
    return tensor.op.axes
