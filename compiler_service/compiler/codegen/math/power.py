"""x to the power y: exp(y log x), the logarithm of doubles with some 12 bits more than a double holds."""

from __future__ import annotations

import math
from typing import NamedTuple

from compiler_service.compiler.codegen.llvm.terms import (
    FormulaTerm,
    absolute,
    copysign,
    exact,
    floor,
    fused_product_error,
    is_nan,
    polynomial,
    select,
)
from compiler_service.compiler.codegen.math import coefficients
from compiler_service.compiler.codegen.math.exponential import FORMATS, clamp, exponential, logarithm, split_exponent

_TWO_THIRDS = (0.6666666666666666, 3.700743415417188e-17)
_FAR = 1e25  # exponents beyond this over- or underflow for every base but 1


class _Double(NamedTuple):
    """An unevaluated sum, ``high + low`` (Dekker, "A floating-point technique for extending the available precision")."""

    high: FormulaTerm
    low: FormulaTerm


def _product(a: _Double, b: _Double) -> _Double:
    high = exact(a.high) * b.high
    low = fused_product_error(a.high, b.high, high) + (a.high * b.low + a.low * b.high)
    return _Double(high, low)


def _sum(a: FormulaTerm, b: FormulaTerm) -> _Double:
    """Knuth's error-free sum."""
    a, b = exact(a), exact(b)
    total = a + b
    part = total - a
    return _Double(total, (a - (total - part)) + (b - part))


def _precise_logarithm(x: FormulaTerm) -> _Double:
    """log(x) of positive finite doubles, to 2^-65 relative."""
    m, k = split_exponent(x)
    f = exact(m) - 1.0
    divisor = f + 2.0
    divisor_low = f - (divisor - 2.0)
    s = f / divisor
    s_error = -fused_product_error(s, divisor, f) - s * divisor_low
    ratio = _Double(s, s_error / divisor)
    square = _product(ratio, ratio)
    series = _sum(x.lift(_TWO_THIRDS[0]), square.high * polynomial(square.high, coefficients.POW_DOUBLE))
    series = _Double(series.high, series.low + _TWO_THIRDS[1])
    cubic = _product(ratio, _product(square, series))
    fraction = _sum(ratio.high * 2.0, cubic.high)
    low = fraction.low + (ratio.low * 2.0 + cubic.low)
    log_two_high, log_two_low = FORMATS["double"].log_two
    total = _sum(k * log_two_high, fraction.high)
    return _sum(total.high, total.low + (low + k * log_two_low))


def _positive_power(x: FormulaTerm, y: FormulaTerm) -> FormulaTerm:
    """x^y for positive finite doubles x and clamped y."""
    log = _precise_logarithm(x)
    high = exact(y) * log.high
    low = fused_product_error(y, log.high, high) + y * log.low
    return exponential(high, tail=select(absolute(high) < 2000.0, low, 0.0))


def power(x: FormulaTerm, y: FormulaTerm) -> FormulaTerm:
    """pow of doubles, special values as C's Annex F has them."""
    return _with_special_values(x, y, _positive_power(absolute(x), clamp(y, -_FAR, _FAR)))


def power_single(x: FormulaTerm, y: FormulaTerm) -> FormulaTerm:
    """pow of floats: a double's logarithm is precise enough."""
    wide_x, wide_y = x.convert("fpext", "double"), y.convert("fpext", "double")
    size = exponential(clamp(wide_y, -_FAR, _FAR) * logarithm(absolute(wide_x)))
    return _with_special_values(wide_x, wide_y, size).convert("fptrunc", "float")


def _with_special_values(x: FormulaTerm, y: FormulaTerm, size: FormulaTerm) -> FormulaTerm:
    base = absolute(x)
    zero = x.lift(0.0)
    falling = y < 0.0
    size = select(base.equals(0.0), select(falling, x.lift(math.inf), zero), size)
    size = select(base.equals(math.inf), select(falling, zero, x.lift(math.inf)), size)
    is_whole = floor(y).equals(y)
    half = y * 0.5
    is_odd = is_whole & floor(half).differs(half)
    negative = copysign(x.lift(1.0), x) < 0.0
    value = select(negative & is_odd, -size, size)
    undefined = (x < 0.0) & (is_whole ^ 1) & base.differs(math.inf)
    value = select(undefined | is_nan(x) | is_nan(y), math.nan, value)
    return select(y.equals(0.0) | x.equals(1.0), 1.0, value)
