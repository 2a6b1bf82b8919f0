"""Where the elements of a resized axis come from.

Coordinates are exact quotients of integers, so no rounding of floats picks the wrong pixel, and dims may be symbolic.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType

import numpy as np

from compiler_service.compiler.tensor_expr.ratio import Ratio, ratio, ratio_of
from compiler_service.compiler.tensor_expr.refusal import unsupported_attribute
from compiler_service.compiler.tensor_expr.scalar import clamped
from shared_ir.expr import Expr, equal, lift, maximum, select
from shared_ir.expr.dim import Dim

_FIRST, _WHOLE = Ratio(0), Ratio(1)


@dataclass(frozen=True)
class SampledAxis:
    """An axis of extent ``extent`` resized to ``size`` by ``scale`` (``size`` is about ``extent * scale``).

    ``start`` and ``end`` bound the region that ``tf_crop_and_resize`` reads, as fractions of the axis.
    """

    extent: Dim
    size: Dim
    scale: Ratio
    start: Ratio = _FIRST
    end: Ratio = _WHOLE

    @property
    def is_identity(self) -> bool:
        return self.extent == self.size and self.scale == Ratio(1) and self.start == _FIRST and self.end == _WHOLE

    def inside(self, position: Expr) -> Expr:
        """``position`` brought to the nearest one on the axis."""
        return clamped(position, self.extent)


@dataclass(frozen=True)
class Coordinate:
    """``numerator / denominator`` on the input axis, denominator > 0."""

    numerator: Expr
    denominator: Expr

    @property
    def floor(self) -> Expr:
        return self.numerator // self.denominator

    @property
    def ceil(self) -> Expr:
        return 0 - (0 - self.numerator) // self.denominator

    @property
    def half_up(self) -> Expr:
        """The nearest integer, the upper one in the middle."""
        return (self.numerator * 2 + self.denominator) // (self.denominator * 2)

    @property
    def half_down(self) -> Expr:
        """The nearest integer, the lower one in the middle."""
        return 0 - (self.denominator - self.numerator * 2) // (self.denominator * 2)


def scale_of(value: float | Expr) -> Ratio:
    """A scale as the simplest quotient that has the same float32 value: 0.7 is 7/10.

    Raises:
        IngotError: UNSUPPORTED_ATTRIBUTE, not a positive number.
    """
    if isinstance(value, Expr):
        found = ratio_of(value)
    else:
        simple = fraction_of(value)
        found = Ratio(simple.numerator, simple.denominator) if simple > 0 else None
    if found is None:
        raise unsupported_attribute("scales", "positive numbers", str(value))
    return found


def bound_of(value: float | Expr) -> Ratio:
    """A bound of a region, of any sign, as a quotient.

    Raises:
        IngotError: UNSUPPORTED_ATTRIBUTE, not a number.
    """
    if not isinstance(value, Expr):
        simple = fraction_of(value)
        return Ratio(simple.numerator, simple.denominator)
    found = ratio_of(value)
    if found is None:
        raise unsupported_attribute("roi", "numbers", str(value))
    return found


def fraction_of(value: float) -> Fraction:
    """The simplest fraction with the float32 value of ``value``."""
    exact = Fraction(value)
    simple = exact.limit_denominator(1000)
    return simple if np.float32(float(simple)) == np.float32(value) else exact


def scaled_size(extent: Dim, scale: Ratio) -> Dim:
    """``floor(extent * scale)``"""
    return (Ratio(extent) * scale).floor


def size_scale(extent: Dim, size: Dim) -> Ratio:
    return ratio(size, extent)


def _asymmetric(o: Expr, axis: SampledAxis) -> Coordinate:
    """``o / scale``"""
    return Coordinate(o * axis.scale.denominator, lift(axis.scale.numerator))


def _half_pixel(o: Expr, axis: SampledAxis) -> Coordinate:
    """``(o + 1/2) / scale - 1/2``"""
    p, q = lift(axis.scale.numerator), lift(axis.scale.denominator)
    return Coordinate((o * 2 + 1) * q - p, p * 2)


def _pytorch_half_pixel(o: Expr, axis: SampledAxis) -> Coordinate:
    """``half_pixel``, and 0 when there is one element only."""
    found = _half_pixel(o, axis)
    return Coordinate(select(equal(lift(axis.size), 1), 0, found.numerator), found.denominator)


def _tf_half_pixel_for_nn(o: Expr, axis: SampledAxis) -> Coordinate:
    """``(o + 1/2) / scale``, which opsets 11 and 12 have."""
    return Coordinate((o * 2 + 1) * axis.scale.denominator, lift(axis.scale.numerator) * 2)


def _half_pixel_symmetric(o: Expr, axis: SampledAxis) -> Coordinate:
    """``half_pixel`` with the centres of both axes aligned, whatever ``floor`` took from the size."""
    p, q = lift(axis.scale.numerator), lift(axis.scale.denominator)
    shift = lift(axis.extent) * p - lift(axis.size) * q
    return Coordinate((o * 2 + 1) * q - p + shift, p * 2)


def _align_corners(o: Expr, axis: SampledAxis) -> Coordinate:
    """``o * (extent - 1) / (extent * scale - 1)``"""
    return Coordinate(o * (lift(axis.extent) - 1) * axis.scale.denominator, maximum(_last(axis), 1))


def _last(axis: SampledAxis) -> Expr:
    """``(extent * scale - 1) * denominator of scale``"""
    return lift(axis.extent) * axis.scale.numerator - axis.scale.denominator


def _crop(o: Expr, axis: SampledAxis) -> Coordinate:
    """``(extent - 1) * (start + o * (end - start) / (extent * scale - 1))``; the middle when there is one element only."""
    common = lift(axis.start.denominator) * axis.end.denominator
    start = lift(axis.start.numerator) * axis.end.denominator
    end = lift(axis.end.numerator) * axis.start.denominator
    length, last = lift(axis.extent) - 1, _last(axis)
    is_single = equal(last, 0)
    along = last * start + o * (end - start) * axis.scale.denominator
    numerator = select(is_single, length * (start + end), length * along)
    return Coordinate(numerator, select(is_single, common * 2, maximum(last, 1) * common))


COORDINATES: Mapping[str, Callable[[Expr, SampledAxis], Coordinate]] = MappingProxyType(
    {
        "half_pixel": _half_pixel,
        "half_pixel_symmetric": _half_pixel_symmetric,
        "pytorch_half_pixel": _pytorch_half_pixel,
        "tf_half_pixel_for_nn": _tf_half_pixel_for_nn,
        "align_corners": _align_corners,
        "asymmetric": _asymmetric,
        "tf_crop_and_resize": _crop,
    }
)
"""``coordinate_transformation_mode`` -> position on the input axis of element ``o`` of the resized one."""

NEAREST: Mapping[str, Callable[[Coordinate], Expr]] = MappingProxyType(
    {
        "round_prefer_floor": lambda x: x.half_down,
        "round_prefer_ceil": lambda x: x.half_up,
        "floor": lambda x: x.floor,
        "ceil": lambda x: x.ceil,
    }
)
"""``nearest_mode`` -> the element that is taken."""
