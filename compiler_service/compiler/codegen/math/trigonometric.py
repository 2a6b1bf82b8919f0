"""Circular functions and their inverses, as vector formulas.

Arguments up to 2^20 are reduced in double precision with pi/2 in four parts of 33 bits (Cody and Waite), which is exact there.
Vectors with a larger one leave the way of the others, and take its lanes one by one (:mod:`math_reduction`).
"""

from __future__ import annotations

import math
from collections.abc import Callable

from compiler_service.compiler.codegen.llvm.builder import FunctionBuilder, LlvmModule
from compiler_service.compiler.codegen.llvm.integer_helpers import lane_by_lane
from compiler_service.compiler.codegen.llvm.terms import (
    FormulaTerm,
    absolute,
    copysign,
    exact,
    is_nan,
    polynomial,
    select,
    square_root,
)
from compiler_service.compiler.codegen.math import coefficients
from compiler_service.compiler.codegen.math.exponential import clamp, nearest_integer
from compiler_service.compiler.codegen.math.reduction import HALF_PI, Angle, reduce_large

_HALF_PI_PARTS = (1.5707963267341256, 6.077100506303966e-11, 2.0222662487111665e-21, 8.4784276603689e-32)
_TWO_OVER_PI = 0.6366197723675814
_QUARTER = 0.7855  # a little over pi/4
_SMALL = 2.0**-30
_FAR = 2.0**20  # from here on the product with a part of pi/2 is rounded


def _reduce(x: FormulaTerm) -> Angle:
    """A double, reduced to [-pi/4, pi/4] with twice its precision."""
    whole, n = nearest_integer(x, _TWO_OVER_PI)
    first, second, third, fourth = _HALF_PI_PARTS
    t = x - whole * first
    r = exact(t - whole * second)
    lost = (exact(t) - r) - whole * second
    s = exact(r - whole * third)
    lost = lost + ((r - s) - whole * third) - whole * fourth
    value = exact(s + lost)
    tail = (s - value) + lost
    return Angle(n, clamp(value, -_QUARTER, _QUARTER), tail)


def _sine(angle: Angle) -> FormulaTerm:
    x, y = angle.value, angle.tail
    z = x * x
    if x.element == "float":
        return x * z * polynomial(z, coefficients.SIN_SINGLE) + x
    return x + (x * z * polynomial(z, coefficients.SIN_DOUBLE) + (y - y * z * 0.5))


def _cosine(angle: Angle) -> FormulaTerm:
    x, y = angle.value, angle.tail
    z = x * x
    half = z * 0.5
    near = exact(1.0 - half)
    if x.element == "float":
        return near + (((1.0 - near) - half) + z * z * polynomial(z, coefficients.COS_SINGLE))
    return near + (((1.0 - near) - half) + (z * z * polynomial(z, coefficients.COS_DOUBLE) - x * y))


def _angle(x: FormulaTerm) -> Angle:
    if x.element == "double":
        return _reduce(x)
    wide = _reduce(x.convert("fpext", "double"))
    single = wide.value.convert("fptrunc", "float")
    return Angle(wide.quadrant.convert("trunc", "i32"), single, single.lift(0.0))


def _by_quadrant(angle: Angle, turns: int) -> FormulaTerm:
    """sin(x + turns * pi/2)"""
    quadrant = angle.quadrant + turns if turns else angle.quadrant
    value = select((quadrant & 1).differs(0), _cosine(angle), _sine(angle))
    return select((quadrant & 2).differs(0), -value, value)


def _anywhere(x: FormulaTerm, near: FormulaTerm, name: str, of_angle: Callable[[Angle], FormulaTerm]) -> FormulaTerm:
    """``near``, and where ``x`` is far from 0 the function ``of_angle`` of what it is reduced to."""
    builder = x.builder
    size = absolute(x)
    is_far = (size > _FAR) & (size < math.inf)
    before, far, done = builder.block, builder.label("far"), builder.label("reduced")
    builder.branch_if(_any(is_far), far, done)
    builder.start(far)
    function = builder.module.helper(f"ingot.{name}.far", lambda: _define_far(builder.module, name, of_angle))
    large = select(is_far, x, _FAR)
    wide = large if x.element == "double" else large.convert("fpext", "double")
    found = lane_by_lane(builder, function, "double", [wide])
    value = select(is_far, found if x.element == "double" else found.convert("fptrunc", "float"), near)
    builder.branch(done)
    builder.start(done)
    return x.of(builder.emit(f"phi {x.type} [ {near.text}, %{before} ], [ {value.text}, %{far} ]"))


def _keeping_small(x: FormulaTerm, value: FormulaTerm) -> FormulaTerm:
    """``value``, or ``x`` where that is so small that it is the result: -0 is among it, whose sign the reduction loses."""
    return select(absolute(x) < _SMALL, x, value)


def _any(mask: FormulaTerm) -> str:
    if mask.lanes == 1:
        return mask.text
    name, kind = f"llvm.vector.reduce.or.v{mask.lanes}i1", mask.type
    return mask.builder.emit(f"call i1 {mask.builder.module.intrinsic(name, 'i1', kind)}({kind} {mask.text})")


def _define_far(module: LlvmModule, name: str, of_angle: Callable[[Angle], FormulaTerm]) -> str:
    builder = FunctionBuilder(module)
    result = of_angle(reduce_large(FormulaTerm(builder, "%x", "double", 1)))
    builder.line(f"ret double {result.text}")
    return f"define internal double @ingot.{name}.far(double %x) noinline cold #0 {{\n{builder.body()}\n}}"


def _sin(angle: Angle) -> FormulaTerm:
    return _by_quadrant(angle, 0)


def _cos(angle: Angle) -> FormulaTerm:
    return _by_quadrant(angle, 1)


def sin(x: FormulaTerm) -> FormulaTerm:
    return _anywhere(x, _keeping_small(x, _sin(_angle(x))), "sin", _sin)


def cos(x: FormulaTerm) -> FormulaTerm:
    return _anywhere(x, _cos(_angle(x)), "cos", _cos)


# -- doubles only: the float versions widen


def _tan(angle: Angle) -> FormulaTerm:
    s, c = _sine(angle), _cosine(angle)
    odd = (angle.quadrant & 1).differs(0)
    return select(odd, -c, s) / select(odd, s, c)


def tan(x: FormulaTerm) -> FormulaTerm:
    return _anywhere(x, _keeping_small(x, _tan(_reduce(x))), "tan", _tan)


def _asin_core(x: FormulaTerm) -> tuple[FormulaTerm, FormulaTerm]:
    """Whether |x| > 1/2, and asin(|x|), or in that case asin(sqrt((1 - |x|) / 2))."""
    size = absolute(x)
    large = size > 0.5
    z = select(large, (1.0 - size) * 0.5, size * size)
    s = select(large, square_root(z), size)
    return large, s * z * polynomial(z, coefficients.ASIN_DOUBLE) + s


def asin(x: FormulaTerm) -> FormulaTerm:
    large, value = _asin_core(x)
    high, low = HALF_PI
    return copysign(select(large, high - ((value + value) - low), value), x)


def acos(x: FormulaTerm) -> FormulaTerm:
    large, value = _asin_core(x)
    high, low = HALF_PI
    twice = value + value
    negative = x < 0.0
    small = high - (copysign(value, x) - low)
    return select(large, select(negative, 2.0 * high - (twice - 2.0 * low), twice), small)


def atan(x: FormulaTerm) -> FormulaTerm:
    size = absolute(x)
    steep = size > 2.414213562373095
    middle = size > 0.41421356237309503
    numerator = select(steep, -1.0, select(middle, size - 1.0, size))
    denominator = select(steep, size, select(middle, size + 1.0, 1.0))
    t = numerator / denominator
    z = t * t
    near = t * z * polynomial(z, coefficients.ATAN_DOUBLE)
    high, low = HALF_PI
    base = select(steep, x.lift(high), select(middle, x.lift(high / 2), x.lift(0.0)))
    rest = select(steep, x.lift(low), select(middle, x.lift(low / 2), x.lift(0.0)))
    return copysign(base + (t + (near + rest)), x)


def atan2(y: FormulaTerm, x: FormulaTerm) -> FormulaTerm:
    """The angle of the point (x, y), signed zeros and infinities as C's Annex F has them."""
    height, width = absolute(y), absolute(x)
    steep = height > width
    smaller, larger = select(steep, width, height), select(steep, height, width)
    ratio = smaller / select(larger.equals(0.0), 1.0, larger)
    ratio = select(smaller.equals(math.inf), 1.0, ratio)  # both infinite: the diagonal
    high, low = HALF_PI
    value = atan(ratio)
    value = select(steep, high - (value - low), value)
    left = copysign(x.lift(1.0), x) < 0.0
    value = copysign(select(left, 2.0 * high - (value - 2.0 * low), value), y)
    return select(is_nan(x) | is_nan(y), x + y, value)
