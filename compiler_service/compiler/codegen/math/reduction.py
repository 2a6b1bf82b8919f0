"""Angles of any size: the quadrant they are in, and what is left of it, to twice the precision of a double.

M. Payne and R. Hanek, "Radian reduction for trigonometric functions", 1983: of x * 2/pi only those bits of 2/pi matter that are
neither multiples of four quadrants nor too small to see, which are 192 of them from a place that the exponent of x tells.
"""

from __future__ import annotations

from typing import NamedTuple

from compiler_service.compiler.codegen.llvm.integer_helpers import wide_integer_to_double
from compiler_service.compiler.codegen.llvm.terms import FormulaTerm, bits, exact, fused_product_error, select
from compiler_service.compiler.codegen.math.coefficients import TWO_OVER_PI
from compiler_service.compiler.codegen.math.exponential import power_of_two

HALF_PI = (1.5707963267948966, 6.123233995736766e-17)
_PADDING = 64  # zeros before the first bit of 2/pi
_MASK = (1 << 32) - 1


class Angle(NamedTuple):
    """``x = quadrant * pi/2 + (value + tail)``"""

    quadrant: FormulaTerm
    value: FormulaTerm
    tail: FormulaTerm


def reduce_large(x: FormulaTerm) -> Angle:
    """A finite scalar double of at least 2."""
    pattern = bits(x)
    exponent = (pattern.logical_shift(52) & 2047) - 1075
    whole = (pattern & ((1 << 52) - 1)) | (1 << 52)
    turns = _product(whole, _window(exponent + (_PADDING - 2)))
    first, second, third = (_joined(turns[0], turns[1], 2), _joined(turns[1], turns[2], 2), turns[2] << 2)
    above = first.logical_shift(63)  # more than half a quadrant: the next one is nearer
    quadrant = turns[0].logical_shift(62) + above
    inverted = first >> 63
    value, tail = _fraction(first ^ inverted, second ^ inverted, third ^ inverted)
    is_negative = pattern < 0
    backward = (first ^ pattern) < 0
    quadrant = select(is_negative, -quadrant, quadrant)
    return Angle(quadrant, select(backward, -value, value), select(backward, -tail, tail))


def _window(position: FormulaTerm) -> tuple[FormulaTerm, FormulaTerm, FormulaTerm]:
    """192 bits of 2/pi from ``position`` on, most significant first."""
    builder = position.builder
    size = len(TWO_OVER_PI)
    text = f"@ingot.two_over_pi = internal unnamed_addr constant [{size} x i64] [{', '.join(f'i64 {w}' for w in TWO_OVER_PI)}]"
    table = builder.module.helper("ingot.two_over_pi", lambda: text)
    first, shift = position.logical_shift(6), position & 63
    words = []
    for k in range(4):
        address = builder.emit(f"getelementptr inbounds i64, ptr {table}, i64 {(first + k).text}")
        words.append(position.of(builder.emit(f"load i64, ptr {address}")))
    return _joined(words[0], words[1], shift), _joined(words[1], words[2], shift), _joined(words[2], words[3], shift)


def _joined(high: FormulaTerm, low: FormulaTerm, shift: FormulaTerm | int) -> FormulaTerm:
    """The upper word of ``high:low`` shifted to the left."""
    return high.of(high.builder.call("llvm.fshl", "i64", 1, [high.text, low.text, high.lift(shift).text]))


def _product(
    x: FormulaTerm, y: tuple[FormulaTerm, FormulaTerm, FormulaTerm]
) -> tuple[FormulaTerm, FormulaTerm, FormulaTerm]:
    """``x * y`` modulo 2^192."""
    first, second, third = y
    carried, low = _wide_product(x, third)
    upper, middle = _wide_product(x, second)
    middle = middle + carried
    overflow = middle.compare("ult", "ult", carried).convert("zext", "i64")
    return x * first + upper + overflow, middle, low


def _wide_product(x: FormulaTerm, y: FormulaTerm) -> tuple[FormulaTerm, FormulaTerm]:
    """Both words of a product of words, from products of halves."""
    (a, b), (c, d) = ((t.logical_shift(32), t & _MASK) for t in (x, y))
    low = b * d
    cross = a * d + low.logical_shift(32)
    other = b * c + (cross & _MASK)
    return a * c + cross.logical_shift(32) + other.logical_shift(32), (other << 32) | (low & _MASK)


def _fraction(first: FormulaTerm, second: FormulaTerm, third: FormulaTerm) -> tuple[FormulaTerm, FormulaTerm]:
    """pi/2 times a fraction of 192 bits that is not 0, as an unevaluated sum."""
    is_tiny = first.equals(0)
    words = select(is_tiny, second, first), select(is_tiny, third, second), select(is_tiny, first, third)
    zeros = first.of(first.builder.emit(f"call i64 {_leading_zeros(first)}(i64 {words[0].text}, i1 false)"))
    high, low = _joined(words[0], words[1], zeros), _joined(words[1], words[2], zeros)
    scale = power_of_two(-zeros - select(is_tiny, zeros.lift(64), zeros.lift(0)), "double")
    upper = wide_integer_to_double(high.logical_shift(11), signed=False) * 2.0**-53 * scale
    lower = wide_integer_to_double(((high & 2047) << 42) | low.logical_shift(22), signed=False) * 2.0**-106 * scale
    half_pi, half_pi_low = HALF_PI
    near = exact(upper) * half_pi
    rest = fused_product_error(upper, upper.lift(half_pi), near) + (upper * half_pi_low + lower * half_pi)
    value = exact(near) + rest
    return value, (near - value) + rest


def _leading_zeros(x: FormulaTerm) -> str:
    return x.builder.module.intrinsic("llvm.ctlz.i64", "i64", "i64, i1")
