"""Resizing: nearest elements, or weighted sums of neighbours, axis by axis."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import reduce as fold
from typing import TypeAlias, TypeVar

from compiler_service.compiler.tensor_expr.axes import normal_axes, replaced
from compiler_service.compiler.tensor_expr.broadcast import converted, must_equal
from compiler_service.compiler.tensor_expr.extents import inhabited
from compiler_service.compiler.tensor_expr.layout import Layout
from compiler_service.compiler.tensor_expr.meaning.known import known_dims, known_elements
from compiler_service.compiler.tensor_expr.operator import Operator
from compiler_service.compiler.tensor_expr.operators.conversion import saturated
from compiler_service.compiler.tensor_expr.operators.sampling import (
    COORDINATES,
    NEAREST,
    Coordinate,
    SampledAxis,
    bound_of,
    scale_of,
    scaled_size,
    size_scale,
)
from compiler_service.compiler.tensor_expr.ratio import Ratio, ratio
from compiler_service.compiler.tensor_expr.refusal import mismatch, unsupported_attribute
from compiler_service.compiler.tensor_expr.scalar import absolute, rounded
from compiler_service.compiler.tensor_expr.tensor import ReduceOp, Tensor, compute
from compiler_service.compiler.tensor_expr.tensor import reduce as sum_over
from shared_ir.dtype import DType
from shared_ir.expr import Expr, cast, lift, logical_and, logical_or, maximum, select
from shared_ir.expr.dim import Dim, as_dim

T = TypeVar("T")
Sampler: TypeAlias = Callable[[Expr, SampledAxis], Coordinate]


@dataclass(frozen=True)
class _Kernel:
    """A weight for every distance, and how far it reaches."""

    weight: Callable[[Expr], Expr]
    support: int


def _linear(distance: Expr) -> Expr:
    return maximum(lift(1, distance.dtype) - distance, 0)


def _cubic(a: float) -> Callable[[Expr], Expr]:
    """Keys, Cubic convolution interpolation for digital image processing (1981)."""

    def weight(d: Expr) -> Expr:
        near = ((d * (a + 2) - (a + 3)) * d) * d + 1
        far = ((d * a - 5 * a) * d + 8 * a) * d - 4 * a
        return select(d <= 1, near, select(d < 2, far, 0))

    return weight


def resize(
    x: Tensor,
    roi: Tensor | None = None,
    scales: Tensor | None = None,
    sizes: Tensor | None = None,
    *,
    antialias: int = 0,
    axes: tuple[int, ...] | None = None,
    coordinate_transformation_mode: str = "half_pixel",
    cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0,
    extrapolation_value: float = 0.0,
    keep_aspect_ratio_policy: str = "stretch",
    mode: str = "nearest",
    nearest_mode: str = "round_prefer_floor",
    layout: str = "NCHW",
) -> Tensor:
    """``x`` with the extents ``sizes``, or scaled by ``scales``, of ``axes``.

    ``roi``, ``scales``, ``sizes`` and ``axes`` number the axes as in NCHW, whatever the ``layout`` of ``x``.
    """
    coordinates = _choice("coordinate_transformation_mode", coordinate_transformation_mode, COORDINATES)
    crops = coordinate_transformation_mode == "tf_crop_and_resize"
    order = _physical_axes(x, layout, axes)
    extents = [x.shape[axis] for axis in order]
    regions = _regions(roi, len(order)) if crops else [(Ratio(0), Ratio(1))] * len(order)
    plans = dict(zip(order, _plans(extents, scales, sizes, keep_aspect_ratio_policy, regions), strict=True))
    plans = {axis: plan for axis, plan in plans.items() if not plan.is_identity}
    outside = extrapolation_value if crops else None
    match mode:
        case "nearest":
            pick = _choice("nearest_mode", nearest_mode, NEAREST)
            return _of_something(_picked(x, plans, coordinates, pick, outside), x)
        case "linear":
            kernel = _Kernel(_linear, 1)
        case "cubic":
            kernel = _Kernel(_cubic(cubic_coeff_a), 2)
        case _:
            raise unsupported_attribute("mode", "nearest, linear or cubic", mode)
    result = converted(x, x.dtype.arithmetic if x.dtype.is_float else DType.FLOAT32)
    averaged: dict[int, SampledAxis] = {}
    for axis, plan in plans.items():
        spread = _spread(plan) if antialias else Fraction(1)
        if isinstance(spread, Fraction):
            result = _blended(result, axis, plan, coordinates, kernel, spread, bool(exclude_outside), outside)
        else:
            averaged[axis] = plan
    if averaged:
        result = _averaged(result, averaged, coordinates, kernel, bool(exclude_outside), outside)
    return _of_something(_as_element(result, x.dtype), x)


def _of_something(y: Tensor, x: Tensor) -> Tensor:
    """``y``, of ``x`` along axes that have an element where ``y`` has some."""
    pairs = must_equal(*(inhabited(own, full) for own, full in zip(x.shape, y.shape, strict=True) if own != full))
    return replace(y, assumes=(*y.assumes, *pairs)) if pairs else y


def _choice(name: str, value: str, table: Mapping[str, T]) -> T:
    if value not in table:
        raise unsupported_attribute(name, f"one of {', '.join(table)}", value)
    return table[value]


def _physical_axes(x: Tensor, layout: str, axes: tuple[int, ...] | None) -> list[int]:
    """Positions in ``x`` of the axes that ONNX numbers."""
    logical: Sequence[int] = range(x.rank)
    if layout != "NCHW":
        n, c, spatial = Layout.of(layout, x).parts(range(x.rank))
        logical = (n, c, *spatial)
    return [logical[a] for a in (range(x.rank) if axes is None else normal_axes(axes, x.rank))]


def _regions(roi: Tensor | None, rank: int) -> list[tuple[Ratio, Ratio]]:
    if roi is None:
        raise mismatch("tf_crop_and_resize reads the input roi", f"{2 * rank} numbers", "nothing")
    bounds = [bound_of(v) for v in known_elements(roi, "roi")]
    return list(zip(bounds[:rank], bounds[rank:], strict=True))


def _plans(
    extents: Sequence[Dim],
    scales: Tensor | None,
    sizes: Tensor | None,
    policy: str,
    regions: Sequence[tuple[Ratio, Ratio]],
) -> list[SampledAxis]:
    """What happens to each of the resized axes."""
    if sizes is not None and sizes.shape != (0,):
        wanted = known_dims(sizes, "sizes")
        found = [size_scale(extent, size) for extent, size in zip(extents, wanted, strict=True)]
        if policy != "stretch":
            found = [_common_scale(extents, wanted, policy)] * len(extents)
            wanted = tuple(_rounded_size(extent, found[0]) for extent in extents)
    elif scales is not None:
        found = [scale_of(value) for value in known_elements(scales, "scales")]
        wanted = tuple(scaled_size(extent, scale) for extent, scale in zip(extents, found, strict=True))
    else:
        raise mismatch("Resize needs scales or sizes", "one of them", "neither")
    rows = zip(extents, wanted, found, regions, strict=True)
    return [SampledAxis(extent, size, scale, *region) for extent, size, scale, region in rows]


def _common_scale(extents: Sequence[Dim], sizes: Sequence[Dim], policy: str) -> Ratio:
    """The one scale that keeps the aspect ratio and lies inside (``not_larger``) or around the given sizes."""
    if policy not in ("not_larger", "not_smaller"):
        raise unsupported_attribute("keep_aspect_ratio_policy", "stretch, not_larger or not_smaller", policy)
    pairs = list(zip(extents, sizes, strict=True))
    best = ratio(pairs[0][1], pairs[0][0])
    for extent, size in pairs[1:]:
        other = ratio(size, extent)
        left, right = lift(best.numerator) * other.denominator, lift(other.numerator) * best.denominator
        is_better = left <= right if policy == "not_larger" else left >= right
        numerator, denominator = (
            as_dim(select(is_better, lift(a), lift(b)))
            for a, b in ((best.numerator, other.numerator), (best.denominator, other.denominator))
        )
        best = ratio(numerator, denominator)
    return best


def _rounded_size(extent: Dim, scale: Ratio) -> Dim:
    """``floor(extent * scale + 1/2)``"""
    return (Ratio(extent) * scale + Ratio(1, 2)).floor


def _picked(
    x: Tensor, plans: Mapping[int, SampledAxis], at: Sampler, pick: Callable[[Coordinate], Expr], outside: float | None
) -> Tensor:
    """Every element is one of ``x``."""

    def body(*index: Expr) -> Expr:
        source, beyond = list(index), lift(False, DType.BOOL)
        for axis, plan in plans.items():
            coordinate = at(index[axis], plan)
            source[axis] = plan.inside(pick(coordinate))
            beyond = logical_or(beyond, _is_beyond(coordinate, plan))
        element = x[tuple(source)]
        return element if outside is None else select(beyond, lift(outside, x.dtype), element)

    return compute(_resized_shape(x, plans), body, name="resize")


def _resized_shape(x: Tensor, plans: Mapping[int, SampledAxis]) -> list[Dim]:
    return [plans[axis].size if axis in plans else extent for axis, extent in enumerate(x.shape)]


def _is_beyond(coordinate: Coordinate, plan: SampledAxis) -> Expr:
    end = (lift(plan.extent) - 1) * coordinate.denominator
    return logical_or(coordinate.numerator < 0, coordinate.numerator > end)


def _spread(plan: SampledAxis) -> Fraction | Ratio:
    """How much wider than one input element the filter is: an axis that shrinks averages over what it drops."""
    p, q = plan.scale.numerator, plan.scale.denominator
    return max(Fraction(q, p), Fraction(1)) if isinstance(p, int) and isinstance(q, int) else _spread_of_run(plan)


def _spread_of_run(plan: SampledAxis) -> Ratio:
    p, q = plan.scale.numerator, plan.scale.denominator
    return Ratio(as_dim(maximum(lift(q), p)), p)


def _blended(
    x: Tensor,
    axis: int,
    plan: SampledAxis,
    at: Sampler,
    kernel: _Kernel,
    spread: Fraction,
    exclude_outside: bool,
    outside: float | None,
) -> Tensor:
    """Along one axis, weighted sums of the elements around each coordinate; where they are and what they weigh depends on that
    axis alone."""
    reach = math.ceil(kernel.support * spread)
    must_normalise = spread != 1 or exclude_outside
    taps = range(2 * reach)

    def place(tap: Expr, i: Expr) -> Expr:
        return at(i, plan).floor + tap + (1 - reach)

    def weight(tap: Expr, i: Expr) -> Expr:
        position = place(tap, i)
        found = kernel.weight(_distance(at(i, plan), position, spread, x.dtype))
        if not exclude_outside:
            return found
        return select(logical_and(position >= 0, position < lift(plan.extent)), found, 0)

    positions = compute((len(taps), plan.size), lambda tap, i: plan.inside(place(tap, i)), name="positions")
    weights = compute((len(taps), plan.size), weight, name="weights")

    def body(*index: Expr) -> Expr:
        own = [(lift(tap), index[axis]) for tap in taps]
        blend = _sum(x[replaced(index, axis, positions[i])] * weights[i] for i in own)
        if must_normalise:
            blend = blend / _sum(weights[i] for i in own)
        if outside is None:
            return blend
        return select(_is_beyond(at(index[axis], plan), plan), lift(outside, x.dtype), blend)

    return compute(replaced(x.shape, axis, plan.size), body, name="resize")


def _sum(terms: Iterable[Expr]) -> Expr:
    return fold(lambda a, b: a + b, terms)


@dataclass(frozen=True)
class _Taps:
    """Elements that a result is averaged over, along an axis whose filter has a width that only the run knows."""

    sampler: Sampler
    kernel: _Kernel
    exclude_outside: bool
    dtype: DType

    def reach(self, plan: SampledAxis) -> Dim:
        """How many elements there are on either side."""
        return (Ratio(self.kernel.support) * _spread_of_run(plan)).ceil

    def width(self, plan: SampledAxis) -> Dim:
        return as_dim(lift(self.reach(plan)) * 2)

    def at(self, plan: SampledAxis, place: Expr, offset: Expr) -> tuple[Expr, Expr]:
        """Position and weight of the element that is ``offset`` from the first."""
        coordinate = self.sampler(place, plan)
        position = coordinate.floor + offset + 1 - self.reach(plan)
        weight = self.kernel.weight(_distance(coordinate, position, _spread_of_run(plan), self.dtype))
        if self.exclude_outside:
            weight = select(logical_and(position >= 0, position < lift(plan.extent)), weight, 0)
        return position, weight


def _averaged(
    x: Tensor,
    plans: Mapping[int, SampledAxis],
    at: Sampler,
    kernel: _Kernel,
    exclude_outside: bool,
    outside: float | None,
) -> Tensor:
    """As :func:`_blended`, over as many elements as only the run knows: along all axes in one sum, since what lies between
    one axis and the next would have no known size."""

    taps = _Taps(at, kernel, exclude_outside, x.dtype)

    def term(*index: Expr) -> Expr:
        source, weights = list(index[: x.rank]), []
        for (axis, plan), offset in zip(plans.items(), index[x.rank :], strict=True):
            position, weight = taps.at(plan, index[axis], offset)
            source[axis] = plan.inside(position)
            weights.append(weight)
        return x[tuple(source)] * fold(lambda a, b: a * b, weights)

    def total(plan: SampledAxis) -> Tensor:
        def weight(i: Expr, k: Expr) -> Expr:
            return taps.at(plan, i, k)[1]

        return sum_over(ReduceOp.SUM, [plan.size], [taps.width(plan)], weight, name="weights")

    blend = sum_over(
        ReduceOp.SUM, _resized_shape(x, plans), [taps.width(p) for p in plans.values()], term, name="blend"
    )
    totals = {axis: total(plan) for axis, plan in plans.items()}

    def body(*index: Expr) -> Expr:
        mean: Expr = blend[index]
        beyond = lift(False, DType.BOOL)
        for axis, plan in plans.items():
            mean = mean / totals[axis][index[axis]]
            beyond = logical_or(beyond, _is_beyond(at(index[axis], plan), plan))
        return mean if outside is None else select(beyond, lift(outside, x.dtype), mean)

    return compute(blend.shape, body, name="resize")


def _distance(coordinate: Coordinate, position: Expr, spread: Fraction | Ratio, dtype: DType) -> Expr:
    """``|position - coordinate| / spread``: the integers are exact, one division rounds."""
    numerator = absolute(cast(position * coordinate.denominator - coordinate.numerator, dtype))
    distance = numerator / cast(coordinate.denominator, dtype)
    if isinstance(spread, Ratio):
        return distance * (cast(lift(spread.denominator), dtype) / cast(lift(spread.numerator), dtype))
    return distance if spread == 1 else distance * (spread.denominator / spread.numerator)


def _as_element(x: Tensor, dtype: DType) -> Tensor:
    """Integers are rounded and saturate."""
    if dtype.is_float:
        return converted(x, dtype)
    return compute(x.shape, lambda *i: cast(saturated(rounded(x[i]), dtype), dtype), name="convert")


OPERATORS = (Operator("Resize", resize),)
