"""exp, log and what is made of them, as vector formulas for ``float`` and ``double``.

Range reduction and reconstruction follow the classical scheme of Cody and Waite, "Software Manual for the Elementary
Functions" (1980); the logarithm of doubles is arranged as in W. J. Cody's and fdlibm's ``log``. Special values are those
of C's Annex F.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass

from compiler_service.compiler.codegen.llvm.terms import (
    FormulaTerm,
    absolute,
    bits,
    can_scale,
    copysign,
    exact,
    fraction,
    from_bits,
    fused,
    polynomial,
    scaled,
    select,
    square_root,
)
from compiler_service.compiler.codegen.math import coefficients


@dataclass(frozen=True)
class FloatFormat:
    """A binary floating-point format and the constants of its reductions."""

    integer: str
    fraction_bits: int
    bias: int
    magic: float  # 1.5 * 2^fraction_bits: adding it leaves the nearest integer in the low bits
    least_normal: float
    log_two: tuple[float, float]  # high part with trailing zeros, low part
    exp_range: tuple[float, float]  # beyond which exp is 0 and infinity
    expm1_range: tuple[float, float]  # beyond which exp - 1 is -1 and infinity
    root_half: int  # bits of sqrt(1/2)
    exp: tuple[float, ...]


def _bits32(value: float) -> int:
    return int(struct.unpack("<I", struct.pack("<f", value))[0])


def _bits64(value: float) -> int:
    return int(struct.unpack("<Q", struct.pack("<d", value))[0])


FORMATS: Mapping[str, FloatFormat] = {
    "float": FloatFormat(
        integer="i32",
        fraction_bits=23,
        bias=127,
        magic=12582912.0,
        least_normal=2.0**-126,
        log_two=(0.69287109375, 0.0002760868228506297),
        exp_range=(-104.0, 89.0),
        expm1_range=(-20.0, 89.0),
        root_half=_bits32(math.sqrt(0.5)),
        exp=coefficients.EXP_SINGLE,
    ),
    "double": FloatFormat(
        integer="i64",
        fraction_bits=52,
        bias=1023,
        magic=6755399441055744.0,
        least_normal=2.0**-1022,
        log_two=(0.6931471803691238, 1.9082149292705877e-10),
        exp_range=(-746.0, 720.0),
        expm1_range=(-40.0, 710.0),
        root_half=_bits64(math.sqrt(0.5)),
        exp=coefficients.EXP_DOUBLE,
    ),
}


def clamp(x: FormulaTerm, low: float, high: float) -> FormulaTerm:
    """``x`` within [low, high]; NaN stays."""
    x = select(x > high, high, x)
    return select(x < low, low, x)


def nearest_integer(x: FormulaTerm, factor: float) -> tuple[FormulaTerm, FormulaTerm]:
    """``x * factor`` rounded, as a float and as an integer of the same width."""
    form = FORMATS[x.element]
    shifted = x * factor + form.magic
    magic = _bits32(form.magic) if x.element == "float" else _bits64(form.magic)
    return fused(exact(shifted) - form.magic), bits(shifted) - magic


def power_of_two(n: FormulaTerm, element: str) -> FormulaTerm:
    """2^n for a normal result."""
    form = FORMATS[element]
    return from_bits((n + form.bias) << form.fraction_bits)


def exponential(
    x: FormulaTerm, *, exponent: int = 0, tail: FormulaTerm | None = None, nonpositive: bool = False
) -> FormulaTerm:
    """``exp(x + tail) * 2^exponent``, also where ``exp(x)`` itself would overflow; ``tail`` is tiny, x may be known <= 0."""
    form = FORMATS[x.element]
    least, largest = form.exp_range
    x = select(x < least, least, x) if nonpositive else clamp(x, least, largest)
    whole, n = nearest_integer(x, 1.4426950408889634)
    high, low = form.log_two
    r = (x - whole * high) - whole * low
    if tail is not None:
        r = r + tail
    value = (r * r * polynomial(r, form.exp) + r) + 1.0
    if can_scale(value):
        return scaled(value, whole + float(exponent) if exponent else whole)
    if exponent:
        n = n + exponent
    # two factors: 2^n itself may be subnormal or infinite; shifted as a non-negative number, which every target can
    half = (n + 4096).logical_shift(1) - 2048
    return value * power_of_two(half, x.element) * power_of_two(n - half, x.element)


def exponential_minus_one(x: FormulaTerm) -> FormulaTerm:
    """``exp(x) - 1``, with full relative accuracy near 0. Halves are scaled, so that the largest results do not overflow."""
    form = FORMATS[x.element]
    near_zero, given = absolute(x) < 2.0**-60, x
    x = clamp(x, *form.expm1_range)
    whole, n = nearest_integer(x, 1.4426950408889634)
    high, low = form.log_two
    r = (x - whole * high) - whole * low
    rest = r * r * polynomial(r, form.exp) + r
    if can_scale(rest):
        half = scaled(x.lift(1.0), whole - 1.0)
        part = scaled(rest, whole - 1.0)
    else:
        half = power_of_two(n - 1, x.element)
        part = rest * half
    return select(near_zero, given, (part + (half - 0.5)) * 2.0)


def quick_exponential(x: FormulaTerm) -> FormulaTerm:
    """``exp(x)`` for floats where :func:`can_scale`, off by at most 1e-7 (1 + abs(x)) of itself: ``x * log2(e)`` is rounded.

    For arguments that are rounded as much themselves (a difference), and for sums that hide it. Infinities and NaN need no
    care: their fraction is 0 or NaN.
    """
    power = x * 1.4426950408889634
    return scaled(polynomial(fraction(power), coefficients.EXP2_SINGLE), power)


def logistic_denominator(x: FormulaTerm) -> FormulaTerm:
    """``1 + exp(x)``: what a logistic function divides by."""
    return quick_exponential(x) + 1.0


def split_exponent(x: FormulaTerm) -> tuple[FormulaTerm, FormulaTerm]:
    """``x = m * 2^k`` with m in [sqrt(1/2), sqrt(2)) and k a float; for positive finite x, subnormal ones too."""
    form = FORMATS[x.element]
    scale = form.fraction_bits + 2
    tiny = x < form.least_normal
    pattern = bits(select(tiny, x * 2.0**scale, x))
    one = form.bias << form.fraction_bits
    k = (pattern + (one - form.root_half)).logical_shift(form.fraction_bits) - form.bias
    m = from_bits(pattern - (k << form.fraction_bits))
    k = k if k.element == "i32" else k.convert("trunc", "i32")
    exponent = k.convert("sitofp", x.element)
    return m, exponent - select(tiny, x.lift(float(scale)), x.lift(0.0))


def logarithm(x: FormulaTerm) -> FormulaTerm:
    """Natural logarithm."""
    m, k = split_exponent(x)
    value = _log_single(m, k) if x.element == "float" else _log_double(m, k)
    value = select(x.equals(math.inf), x, value)
    return select(x > 0.0, value, select(x.equals(0.0), x.lift(-math.inf), x.lift(math.nan)))


def _log_single(m: FormulaTerm, k: FormulaTerm) -> FormulaTerm:
    high, low = FORMATS["float"].log_two
    f = m - 1.0
    z = f * f
    y = f * z * polynomial(f, coefficients.LOG_SINGLE) + k * low
    return k * high + (f + (y - z * 0.5))


def _log_double(m: FormulaTerm, k: FormulaTerm) -> FormulaTerm:
    high, low = FORMATS["double"].log_two
    f = m - 1.0
    s = f / (f + 2.0)
    z = s * s
    half_square = f * f * 0.5
    correction = s * (half_square + z * polynomial(z, coefficients.LOG_DOUBLE)) + k * low
    return k * high - ((half_square - correction) - f)


def log_one_plus(u: FormulaTerm) -> FormulaTerm:
    """``log(1 + u)`` for u >= 0 without loss for small u (Kahan's correction), and for u < -1 NaN."""
    w = exact(u) + 1.0
    lost = (exact(u) - (w - 1.0)) / w
    return logarithm(w) + select(u.equals(math.inf), 0.0, lost)


def tanh(x: FormulaTerm) -> FormulaTerm:
    z = x * x
    series = coefficients.TANH_SINGLE if x.element == "float" else coefficients.TANH_DOUBLE
    size = absolute(x)
    small = x * z * polynomial(z, series) + x
    large = 1.0 - 2.0 / (exponential(size + size) + 1.0)
    return copysign(select(size < 0.625, small, large), x)


def sigmoid(x: FormulaTerm) -> FormulaTerm:
    """1 / (1 + exp(-x)), with full relative accuracy on the negative side."""
    decay = exponential(-absolute(x), nonpositive=True)
    return select(x < 0.0, decay, 1.0) / (decay + 1.0)


def erf(x: FormulaTerm) -> FormulaTerm:
    size = absolute(x)
    z = x * x
    if x.element == "float":
        small = x * polynomial(z, coefficients.ERF_SMALL_SINGLE) + x
        t = select(size > 4.0, 4.0, size)
        large = 1.0 - exponential(-(t * polynomial(t, coefficients.ERF_LARGE_SINGLE)), nonpositive=True)
        return copysign(select(size < 0.925, small, large), x)
    small = x * polynomial(z, coefficients.ERF_SMALL_DOUBLE) + x
    t = select(size > 6.0, 6.0, size)
    u = (t - 2.0) / (t + 2.0)
    large = 1.0 - exponential(-(t * t)) * polynomial(u, coefficients.ERF_LARGE_DOUBLE)
    return copysign(select(size < 1.0, small, large), x)


# -- doubles only: the float versions widen


def sinh(x: FormulaTerm) -> FormulaTerm:
    z = x * x
    size = absolute(x)
    small = x * z * polynomial(z, coefficients.SINH_DOUBLE) + x
    half = exponential(size, exponent=-1)
    return select(size < 1.0, small, copysign(half - 0.25 / half, x))


def cosh(x: FormulaTerm) -> FormulaTerm:
    half = exponential(absolute(x), exponent=-1)
    return half + 0.25 / half


_LARGE = 2.0**28  # from here on sqrt(x^2 +- 1) is x
_LOG_TWO = 0.6931471805599453


def asinh(x: FormulaTerm) -> FormulaTerm:
    size = absolute(x)
    large = size > _LARGE
    a = select(large, 1.0, size)
    square = a * a
    near = log_one_plus(a + square / (square_root(square + 1.0) + 1.0))
    return copysign(select(large, logarithm(size) + _LOG_TWO, near), x)


def acosh(x: FormulaTerm) -> FormulaTerm:
    large = x > _LARGE
    t = select(large, 1.0, x - 1.0)
    near = log_one_plus(t + square_root(t * t + (t + t)))
    value = select(large, logarithm(x) + _LOG_TWO, near)
    return select(x < 1.0, math.nan, value)


def atanh(x: FormulaTerm) -> FormulaTerm:
    size = absolute(x)
    return copysign(log_one_plus((size + size) / (1.0 - size)) * 0.5, x)
