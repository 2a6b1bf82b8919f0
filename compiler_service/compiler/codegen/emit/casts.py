"""Conversions between element types, with the semantics of ONNX ``Cast``.

Floats become integers by truncation and saturate at the ends of the range; NaN becomes 0.
"""

from __future__ import annotations

import enum

from compiler_service.compiler.codegen.llvm.builder import FunctionBuilder, LlvmValue
from compiler_service.compiler.codegen.llvm.half import double_to_odd_float, round_to
from compiler_service.compiler.codegen.llvm.integer_helpers import double_to_wide_integer, wide_integer_to_double
from compiler_service.compiler.codegen.llvm.llvm_types import (
    NARROW_FLOATS,
    REGISTER,
    SUB_BYTE_INTEGERS,
    register_type,
    suffix,
    vector,
)
from compiler_service.compiler.codegen.llvm.narrow import decode_integer
from compiler_service.compiler.codegen.llvm.terms import FormulaTerm, select
from shared_ir.dtype import DType


class Fit(enum.Enum):
    """What is known of a float that becomes an integer."""

    UNKNOWN = enum.auto()
    OR_NAN = enum.auto()  # it is in the range of the integer, or NaN
    CERTAIN = enum.auto()


def cast(builder: FunctionBuilder, x: LlvmValue, dtype: DType, *, fit: Fit = Fit.UNKNOWN) -> LlvmValue:
    """``x`` as ``dtype``.

    Raises:
        IngotError: UNSUPPORTED_DTYPE, kernels cannot compute with ``dtype``.
    """
    register_type(dtype, x.lanes)
    if dtype is x.dtype:
        return x
    source = FormulaTerm(builder, x.text, REGISTER[x.dtype], x.lanes)
    return LlvmValue(_convert(builder, source, x.dtype, dtype, fit), dtype, x.lanes)


def _convert(builder: FunctionBuilder, x: FormulaTerm, source: DType, target: DType, fit: Fit) -> str:
    if target is DType.BOOL:
        return x.differs(0).text
    if target in SUB_BYTE_INTEGERS:  # the low bits of the integer
        whole = x.text if x.element == "i8" else _convert(builder, x, source, DType.INT8, fit)
        if source.is_float:
            wide = FormulaTerm(builder, _convert(builder, x, source, DType.INT32, fit), "i32", x.lanes)
            whole = wide.convert("trunc", "i8").text
        return decode_integer(builder, whole, target, x.lanes)
    if source.is_float:
        if target.is_float:
            return _float_to_float(builder, x, source, target)
        return _float_to_integer(builder, x, target, fit)
    if target.is_float:
        return _integer_to_float(builder, x, source, target)
    element = REGISTER[target]
    if x.element == element:
        return x.text
    if source is not DType.BOOL and source.bits > target.bits:
        return x.convert("trunc", element).text
    return x.convert("sext" if source.is_signed else "zext", element).text


def _float_to_float(builder: FunctionBuilder, x: FormulaTerm, source: DType, target: DType) -> str:
    if target is DType.FLOAT64:
        return x.convert("fpext", "double").text
    if source is DType.FLOAT64:
        if target is DType.FLOAT32:
            return x.convert("fptrunc", "float").text
        x = double_to_odd_float(x)
    return round_to(builder, x.text, target, x.lanes) if target in NARROW_FLOATS else x.text


def _integer_to_float(builder: FunctionBuilder, x: FormulaTerm, source: DType, target: DType) -> str:
    element = REGISTER[target]
    if source.bits == 64 and not builder.capabilities.wide_integers:
        wide = wide_integer_to_double(x, signed=source.is_signed)
        result = wide if element == "double" else wide.convert("fptrunc", element)
    else:
        result = x.convert("sitofp" if source.is_signed else "uitofp", element)
    return round_to(builder, result.text, target, x.lanes) if target in NARROW_FLOATS else result.text


def _float_to_integer(builder: FunctionBuilder, x: FormulaTerm, target: DType, fit: Fit) -> str:
    element = REGISTER[target]
    if target.bits == 64 and not builder.capabilities.wide_integers:
        wide = x if x.element == "double" else x.convert("fpext", "double")
        return double_to_wide_integer(wide, signed=target.is_signed).text
    sign = "s" if target.is_signed else "u"
    if fit is Fit.CERTAIN:
        return x.convert(f"fpto{sign}i", element).text
    if fit is Fit.OR_NAN:
        return _number(x).convert(f"fpto{sign}i", element).text
    if x.lanes > 1 and not builder.capabilities.saturating_casts:
        return _saturated(x, target, f"fpto{sign}i").text
    result, operand = vector(element, x.lanes), x.type
    name = f"llvm.fpto{sign}i.sat.{suffix(element, x.lanes)}.{suffix(x.element, x.lanes)}"
    function = builder.module.intrinsic(name, result, operand)
    return builder.emit(f"call {result} {function}({operand} {x.text})")


def _saturated(x: FormulaTerm, target: DType, instruction: str) -> FormulaTerm:
    """What ``llvm.fptosi.sat`` is, by clamping: LLVM takes the lanes of a vector one by one."""
    least, largest = target.limits
    number = _number(x)
    above = select(number > float(least), number, float(least))
    if largest.bit_length() <= _DIGITS[x.element]:
        return select(above < float(largest), above, float(largest)).convert(instruction, REGISTER[target])
    whole = above.convert(instruction, REGISTER[target])
    return select(number >= float(largest + 1), whole.lift(largest), whole)


_DIGITS = {"float": 24, "double": 53}


def _number(x: FormulaTerm) -> FormulaTerm:
    """``x`` with 0 in place of NaN, which conversion instructions leave undefined."""
    return select(x.compare("ord", "eq", 0.0), x, 0.0)
