"""Conversions between element types, quantised ones included."""

from __future__ import annotations

from collections.abc import Sequence

from compiler_service.compiler.tensor_expr.axes import normal_axis, replaced
from compiler_service.compiler.tensor_expr.broadcast import Pairs, must_equal, widen
from compiler_service.compiler.tensor_expr.extents import fitting, is_stretched, stretched_index
from compiler_service.compiler.tensor_expr.meaning.scalar_semantics import largest_finite
from compiler_service.compiler.tensor_expr.operator import Operator
from compiler_service.compiler.tensor_expr.refusal import mismatch, unsupported_attribute, unsupported_dtype
from compiler_service.compiler.tensor_expr.scalar import rounded
from compiler_service.compiler.tensor_expr.tensor import Tensor, compute
from shared_ir.dtype import DType
from shared_ir.expr import (
    Binary,
    BinaryOp,
    Expr,
    ceil_div,
    equal,
    lift,
    logical_and,
    logical_or,
    maximum,
    minimum,
    reinterpret,
    select,
)
from shared_ir.expr import cast as convert
from shared_ir.expr.dim import as_dim, dims_text

_DIGITS = {DType.FLOAT32: 24, DType.FLOAT64: 53}
_FLOAT8 = (DType.FLOAT8E4M3FN, DType.FLOAT8E4M3FNUZ, DType.FLOAT8E5M2, DType.FLOAT8E5M2FNUZ)


def cast(x: Tensor, *, to: DType, saturate: int = 1, round_mode: str = "up", integral: int = 0) -> Tensor:
    """Floats become integers by truncation; float8 saturates at its largest number unless told not to. ``integral`` says of
    floats that they are integers of the type ``to``."""
    if to in (DType.STRING, DType.COMPLEX64, DType.COMPLEX128):
        raise unsupported_attribute("to", "a number type or bool", to)

    def body(*index: Expr) -> Expr:
        element = x[index]
        if to is DType.FLOAT8E8M0 and x.dtype is not to:
            return _power_of_two(convert(element, DType.FLOAT32), round_mode, bool(saturate))
        if to not in _FLOAT8 or not saturate or x.dtype is to:
            return convert(element, to)
        wide = convert(element, DType.FLOAT64 if x.dtype is DType.FLOAT64 else DType.FLOAT32)
        return convert(clamped(wide, -largest_finite(to), largest_finite(to)), to)

    return compute(x.shape, body, name="cast")


def _power_of_two(x: Expr, round_mode: str, saturate: bool) -> Expr:
    """The exponent of a float32, rounded; the sign is dropped. Infinities and NaN become NaN (ONNX Cast, float8e8m0)."""
    pattern = reinterpret(x, DType.UINT32)
    exponent = shifted_right(pattern, 23) % 256
    fraction = pattern % (1 << 23)
    half = 1 << 22
    match round_mode:
        case "up":
            ups = fraction > 0
        case "nearest":
            tie = logical_and(equal(fraction, half), exponent > 0)
            ups = logical_or(fraction > half, tie)
        case "down":
            ups = lift(False, DType.BOOL)
        case _:
            raise unsupported_attribute("round_mode", "up, down or nearest", round_mode)
    last = 253 if saturate else 254
    rounded_up = select(logical_and(ups, exponent <= last), exponent + 1, exponent)
    return reinterpret(convert(rounded_up, DType.UINT8), DType.FLOAT8E8M0)


def shifted_right(x: Expr, count: int) -> Expr:
    return Binary(BinaryOp.SHR, x, lift(count, x.dtype))


def bit_cast(x: Tensor, *, to: DType) -> Tensor:
    """The bits of every element as another type of the same width."""
    if to.bits != x.dtype.bits or to.bits < 8:
        raise mismatch("BitCast keeps the width of the elements", f"a type of {x.dtype.bits} bits, at least 8", to)
    return compute(x.shape, lambda *index: reinterpret(x[index], to), name="bit_cast")


def clamped(x: Expr, low: float, high: float) -> Expr:
    """``x`` between ``low`` and ``high``; NaN stays."""
    return minimum(maximum(x, low), high)


def cast_like(x: Tensor, target_type: Tensor, *, saturate: int = 1, round_mode: str = "up") -> Tensor:
    return cast(x, to=target_type.dtype, saturate=saturate, round_mode=round_mode)


def _is_single(parameter: Tensor) -> bool:
    """Whether one number holds for the whole tensor; exporters write the default ``axis`` beside it, whatever the rank."""
    return parameter.rank == 0 or parameter.shape == (1,)


def _scale_at(parameter: Tensor, index: tuple[Expr, ...], x: Tensor, axis: int, block_size: int) -> Expr:
    """A quantisation parameter: one for the tensor, one per index of ``axis``, or one per block along it."""
    if _is_single(parameter):
        return parameter[(0,) * parameter.rank]
    if parameter.rank == 1 and not block_size:
        own = parameter.shape[0]
        return parameter[stretched_index(index[axis], own) if is_stretched(own, x.shape[axis]) else index[axis]]
    return parameter[(*index[:axis], index[axis] // block_size, *index[axis + 1 :])]


def _fitting(parameters: Sequence[Tensor | None], x: Tensor, axis: int, block_size: int) -> Pairs:
    """What makes quantisation parameters fit ``x``: a number, or one per index or block of ``axis``."""
    found: Pairs = []
    for parameter in (p for p in parameters if p is not None and not _is_single(p)):
        if parameter.rank == 1 and not block_size:
            found.append(fitting(parameter.shape[0], x.shape[axis]))
        elif parameter.rank == x.rank and block_size:
            blocks = replaced(x.shape, axis, as_dim(ceil_div(lift(x.shape[axis]), block_size)))
            found += zip(parameter.shape, blocks, strict=True)
        else:
            expected = "a number, a vector, or with block_size a tensor of as many axes"
            raise mismatch("a quantisation parameter does not fit", expected, f"[{dims_text(parameter.shape)}]")
    sizes = [p.shape[0] for p in parameters if p is not None and p.rank == 1 and not _is_single(p)]
    if any(isinstance(size, Expr) for size in sizes):
        found += [(size, sizes[0]) for size in sizes[1:]]
    return must_equal(*found)


def dequantize_linear(
    x: Tensor,
    scale: Tensor,
    zero_point: Tensor | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: DType | None = None,
) -> Tensor:
    """``(x - zero_point) * scale``"""
    axis = 0 if _is_single(scale) or x.rank == 1 else normal_axis(axis, x.rank)  # a vector has no other
    kind = output_dtype or scale.dtype
    wide = kind.arithmetic
    exact = DType.INT32 if x.dtype.is_integer else wide
    pairs = _fitting((scale, zero_point), x, axis, block_size)

    def body(*index: Expr) -> Expr:
        difference = convert(x[index], exact)
        if zero_point is not None:
            difference = difference - convert(_scale_at(zero_point, index, x, axis, block_size), exact)
        return convert(convert(difference, wide) * convert(_scale_at(scale, index, x, axis, block_size), wide), kind)

    return compute(x.shape, body, name="dequantize_linear", assumes=pairs)


def quantize_linear(
    x: Tensor,
    scale: Tensor,
    zero_point: Tensor | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: DType | None = None,
    saturate: int = 1,
    precision: DType | None = None,
) -> Tensor:
    """``saturate(round(x / scale) + zero_point)``, rounding half to even."""
    kind = zero_point.dtype if zero_point is not None else output_dtype or DType.UINT8
    if not kind.is_integer and kind not in _FLOAT8 and kind is not DType.FLOAT4E2M1:
        raise unsupported_dtype("the output of QuantizeLinear", kind, "integers of at most 16 bits, float8 or float4")
    axis = 0 if _is_single(scale) or x.rank == 1 else normal_axis(axis, x.rank)  # a vector has no other
    wide = (precision or scale.dtype).arithmetic
    wide = wide if wide.is_float else DType.FLOAT64
    pairs = _fitting((scale, zero_point), x, axis, block_size)

    def body(*index: Expr) -> Expr:
        step = convert(_scale_at(scale, index, x, axis, block_size), wide)
        quotient = convert(widen(x[index]), wide) / step
        if kind.is_integer:
            quotient = rounded(quotient)
        if zero_point is not None:
            quotient = quotient + convert(_scale_at(zero_point, index, x, axis, block_size), wide)
        return convert(saturated(quotient, kind) if kind.is_integer or saturate else quotient, kind)

    return compute(x.shape, body, name="quantize_linear", assumes=pairs)


def saturated(x: Expr, kind: DType) -> Expr:
    """``x`` brought into the range of ``kind``; NaN becomes the least of integers, which takes no instruction of its own."""
    if not kind.is_integer:
        return clamped(x, -largest_finite(kind), largest_finite(kind))
    value_bits = kind.bits - kind.is_signed
    largest = 2**value_bits - 2 ** max(0, value_bits - _DIGITS[x.dtype])  # that x.dtype can hold
    least = lift(-(2**value_bits) if kind.is_signed else 0, x.dtype)
    return minimum(Binary(BinaryOp.MAX_NUMBER, least, x), lift(largest, x.dtype))


KEPT_QUANTIZED = "ingot.Dequantize"
"""DequantizeLinear of weights that a product reads as they are stored: not to be folded."""

OPERATORS = (
    Operator("Cast", cast),
    Operator("CastLike", cast_like),
    Operator("BitCast", bit_cast),
    Operator("QuantizeLinear", quantize_linear),
    Operator("DequantizeLinear", dequantize_linear),
    Operator(KEPT_QUANTIZED, dequantize_linear),
)
