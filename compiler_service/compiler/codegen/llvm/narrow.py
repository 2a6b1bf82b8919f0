"""float8 and float4 patterns to float and back, by integer arithmetic; integers of 2 and 4 bits in a byte.

Formats: Micikevicius et al., "FP8 Formats for Deep Learning" (2022), and the OCP Microscaling Formats specification 1.0.
Overflow gives what the format has for it: infinity, NaN, or (where it has neither) the largest number.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from compiler_service.compiler.codegen.llvm.builder import FunctionBuilder
from compiler_service.compiler.codegen.llvm.terms import FormulaTerm, bits, exact, from_bits, select
from shared_ir.dtype import DType

_NAN = 0x7FC00000
_INFINITY = 0x7F800000


@dataclass(frozen=True)
class NarrowFormat:
    """A float of sign, exponent and fraction.

    Attributes:
        largest: pattern of the largest number, without its sign.
        overflow: pattern for what is larger; with the sign of the number, unless the format has no negative zero.
        nan: pattern of NaN.
        unsigned_zero: there is no negative zero, its pattern is NaN (the types called FNUZ).
    """

    exponent_bits: int
    fraction_bits: int
    bias: int
    largest: int
    overflow: int
    nan: int
    unsigned_zero: bool = False

    @property
    def sign_position(self) -> int:
        return self.exponent_bits + self.fraction_bits

    @property
    def shift(self) -> int:
        """Fraction bits of a float32 that this format lacks."""
        return 23 - self.fraction_bits


FORMATS: Mapping[DType, NarrowFormat] = MappingProxyType(
    {
        DType.FLOAT8E4M3FN: NarrowFormat(4, 3, 7, largest=0x7E, overflow=0x7F, nan=0x7F),
        DType.FLOAT8E4M3FNUZ: NarrowFormat(4, 3, 8, largest=0x7F, overflow=0x80, nan=0x80, unsigned_zero=True),
        DType.FLOAT8E5M2: NarrowFormat(5, 2, 15, largest=0x7B, overflow=0x7C, nan=0x7E),
        DType.FLOAT8E5M2FNUZ: NarrowFormat(5, 2, 16, largest=0x7F, overflow=0x80, nan=0x80, unsigned_zero=True),
        DType.FLOAT4E2M1: NarrowFormat(2, 1, 1, largest=0x7, overflow=0x7, nan=0x8),
    }
)
"""FLOAT8E8M0 has no fraction and no sign: see :func:`encode`."""


def decode(builder: FunctionBuilder, text: str, dtype: DType, lanes: int) -> str:
    """``i8`` patterns of ``dtype`` -> ``float``."""
    pattern = FormulaTerm(builder, text, "i8", lanes).convert("zext", "i32")
    if dtype is DType.FLOAT8E8M0:
        return _decode_scale(pattern).text
    kind = FORMATS[dtype]
    magnitude = pattern & ((1 << kind.sign_position) - 1)
    normal = (magnitude << kind.shift) + ((127 - kind.bias) << 23)
    subnormal = bits(magnitude.convert("uitofp", "float") * 2.0 ** (1 - kind.bias - kind.fraction_bits))
    value = select(magnitude.compare("", "ult", 1 << kind.fraction_bits), subnormal, normal)
    if dtype is DType.FLOAT8E5M2:
        value = select(magnitude.compare("", "ugt", kind.largest), (magnitude << kind.shift) | _INFINITY, value)
    value = value | ((pattern & (1 << kind.sign_position)) << (31 - kind.sign_position))
    if dtype is DType.FLOAT8E4M3FN:
        value = select(magnitude.equals(kind.nan), _NAN, value)
    if kind.unsigned_zero:
        value = select(pattern.equals(kind.nan), _NAN, value)
    return from_bits(value).text


def _decode_scale(pattern: FormulaTerm) -> FormulaTerm:
    """``2 ** (pattern - 127)``: the exponent of a float32, but for 2 ** -127, which is subnormal there."""
    value = select(pattern.equals(0), 0x00400000, pattern << 23)
    return from_bits(select(pattern.equals(0xFF), _NAN, value))


def encode(builder: FunctionBuilder, text: str, dtype: DType, lanes: int) -> str:
    """``float`` -> ``i8`` patterns of ``dtype``, rounded to nearest even (FLOAT8E8M0: the fraction is dropped)."""
    pattern = bits(FormulaTerm(builder, text, "float", lanes))
    magnitude = pattern & 0x7FFFFFFF
    if dtype is DType.FLOAT8E8M0:
        exponent = magnitude.logical_shift(23)
        return select(pattern < 0, 0xFF, exponent).convert("trunc", "i8").text
    kind = FORMATS[dtype]
    odd = magnitude.logical_shift(kind.shift) & 1
    rebias = (127 - kind.bias) << 23
    normal = (magnitude + ((1 << (kind.shift - 1)) - 1 - rebias) + odd).logical_shift(kind.shift)
    unit = 2.0 ** (24 - kind.bias - kind.fraction_bits)  # its last place is the smallest number of the format
    aligned = bits(exact(from_bits(magnitude)) + unit)
    subnormal = aligned - bits_of_power(unit)
    value = select(magnitude.compare("", "ult", (128 - kind.bias) << 23), subnormal, normal)
    value = select(value.compare("", "ugt", kind.largest), kind.overflow, value)
    sign = pattern.logical_shift(31 - kind.sign_position) & (1 << kind.sign_position)
    signed = value | sign
    if kind.unsigned_zero:
        signed = select(value.equals(0), 0, signed)
    return select(magnitude.compare("", "ugt", _INFINITY), kind.nan, signed).convert("trunc", "i8").text


def bits_of_power(value: float) -> int:
    """The float32 pattern of a power of two."""
    exponent = int(value).bit_length() - 1 if value >= 1 else -(int(1 / value).bit_length() - 1)
    return (exponent + 127) << 23


def decode_integer(builder: FunctionBuilder, text: str, dtype: DType, lanes: int) -> str:
    """Bytes whose low bits are integers of ``dtype`` -> ``i8`` of the same value; the high bits are not looked at."""
    gap = 8 - dtype.bits
    high = FormulaTerm(builder, text, "i8", lanes) << gap
    return (high >> gap if dtype.is_signed else high.logical_shift(gap)).text


def encode_integer(builder: FunctionBuilder, text: str, dtype: DType, lanes: int) -> str:
    """The inverse of :func:`decode_integer`; the high bits become 0."""
    return (FormulaTerm(builder, text, "i8", lanes) & ((1 << dtype.bits) - 1)).text
