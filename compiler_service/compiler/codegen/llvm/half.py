"""Patterns of narrow floats to float and back: float16 and bfloat16 here, by integer arithmetic where the target has no
instruction for it; float8 and float4 by :mod:`narrow`."""

from __future__ import annotations

from compiler_service.compiler.codegen.llvm.builder import FunctionBuilder
from compiler_service.compiler.codegen.llvm.narrow import decode, encode
from compiler_service.compiler.codegen.llvm.terms import FormulaTerm, absolute, bits, exact, from_bits, is_nan, select
from shared_ir.dtype import DType


def pattern_to_float(builder: FunctionBuilder, text: str, dtype: DType, lanes: int) -> str:
    """``i16`` or ``i8`` patterns of ``dtype`` -> ``float``."""
    if dtype.bits < 16:
        return decode(builder, text, dtype, lanes)
    pattern = FormulaTerm(builder, text, "i16", lanes)
    if dtype is DType.BFLOAT16:
        return from_bits(pattern.convert("zext", "i32") << 16).text
    if builder.capabilities.half:
        return pattern.convert("bitcast", "half").convert("fpext", "float").text
    return _extend_half(pattern).text


def float_to_pattern(builder: FunctionBuilder, text: str, dtype: DType, lanes: int) -> str:
    """``float`` -> ``i16`` or ``i8`` patterns of ``dtype``, rounded to nearest even."""
    if dtype.bits < 16:
        return encode(builder, text, dtype, lanes)
    x = FormulaTerm(builder, text, "float", lanes)
    if dtype is DType.BFLOAT16:
        return _truncate_bfloat(x).text
    if builder.capabilities.half:
        return _rounded(x).convert("bitcast", "i16").text
    return _truncate_half(x).text


def round_to(builder: FunctionBuilder, text: str, dtype: DType, lanes: int) -> str:
    """A ``float`` rounded to the nearest value of ``dtype``."""
    if dtype is DType.FLOAT16 and builder.capabilities.half:
        x = FormulaTerm(builder, text, "float", lanes)
        return _rounded(x).convert("fpext", "float").text
    return pattern_to_float(builder, float_to_pattern(builder, text, dtype, lanes), dtype, lanes)


def _rounded(x: FormulaTerm) -> FormulaTerm:
    """A float as a half.

    LLVM would take ``half(float(a) * float(b))`` for the product of halves that it is, and where there are instructions for
    these, join it with a sum that follows: one rounding less than the model asks for. The fence keeps it a float.
    """
    if x.builder.capabilities.half_arithmetic:
        x = x.of(x.builder.call("llvm.arithmetic.fence", x.element, x.lanes, [x.text]))
    return x.convert("fptrunc", "half")


def double_to_odd_float(x: FormulaTerm) -> FormulaTerm:
    """A double as the float that rounds on to 16 bits as the double itself would (round to odd).

    Boldo and Melquiond, "Emulation of FMA and correctly rounded sums", 2008.
    """
    near = x.convert("fptrunc", "float")
    back = near.convert("fpext", "double")
    pattern = bits(near)
    too_large = absolute(back) > absolute(x)
    toward_zero = pattern - too_large.convert("zext", "i32")
    inexact = (back < x) | (back > x)  # unordered: NaN stays as it is
    return from_bits(select(inexact, toward_zero | 1, pattern))


def _extend_half(pattern: FormulaTerm) -> FormulaTerm:
    """Exponent rebiased by 112; subnormals as multiples of 2^-24, so that no subnormal float is met (NEON flushes them)."""
    wide = pattern.convert("zext", "i32")
    magnitude = (wide & 0x7FFF) << 13
    special = magnitude | 0x7F800000  # infinities and NaN
    value = select(magnitude.compare("", "uge", 0x0F800000), special, magnitude + (112 << 23))
    subnormal = bits((wide & 0x3FF).convert("uitofp", "float") * 2.0**-24)
    value = select(magnitude.compare("", "ult", 1 << 23), subnormal, value)
    return from_bits(value | ((wide & 0x8000) << 16))


def _truncate_half(x: FormulaTerm) -> FormulaTerm:
    pattern = bits(x)
    sign = pattern.logical_shift(16) & 0x8000
    magnitude = pattern & 0x7FFFFFFF
    # normal results: rebias the exponent by -112 and round the 13 bits that go
    odd = magnitude.logical_shift(13) & 1
    normal = (magnitude + (0xFFF - (112 << 23)) + odd).logical_shift(13)
    # subnormal results: adding 0.5 lines the fraction up with the unit of the smallest half, 2^-24
    subnormal = bits(exact(from_bits(magnitude)) + 0.5) - 0x3F000000
    value = select(magnitude.compare("", "ult", 113 << 23), subnormal, normal)
    value = select(magnitude.compare("", "uge", 0x47800000), 0x7C00, value)  # from 65536 on: infinity
    value = select(magnitude.compare("", "ugt", 0x7F800000), 0x7E00, value)
    return (value | sign).convert("trunc", "i16")


def _truncate_bfloat(x: FormulaTerm) -> FormulaTerm:
    pattern = bits(x)
    odd = pattern.logical_shift(16) & 1
    rounded = (pattern + odd + 0x7FFF).logical_shift(16)
    quiet = pattern.logical_shift(16) | 0x40
    return select(is_nan(x), quiet, rounded).convert("trunc", "i16")
