"""Unary and binary operators on values: a table for what is one instruction, a match for the rest."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from compiler_service.compiler.codegen.emit.byte_dots import add_dot4
from compiler_service.compiler.codegen.llvm import terms
from compiler_service.compiler.codegen.llvm.builder import FunctionBuilder, LlvmValue
from compiler_service.compiler.codegen.llvm.half import round_to
from compiler_service.compiler.codegen.llvm.integer_helpers import float_remainder, integer_power, wide_division
from compiler_service.compiler.codegen.llvm.llvm_types import (
    NARROW_FLOATS,
    REGISTER,
    constant,
    float_bits,
    register_type,
    splat,
)
from compiler_service.compiler.codegen.llvm.terms import FormulaTerm
from compiler_service.compiler.codegen.math.exponential import logistic_denominator, quick_exponential
from compiler_service.compiler.codegen.math.functions import MATH_BINARY, MATH_UNARY, call_math
from shared_ir.dtype import DType
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.expr import COMPARISONS, BinaryOp, UnaryOp

_FLOAT_INSTRUCTIONS: Mapping[BinaryOp, str] = {
    BinaryOp.ADD: "fadd contract",
    BinaryOp.SUB: "fsub contract",
    BinaryOp.MUL: "fmul contract",
    BinaryOp.DIV: "fdiv",
}
_INTEGER_INSTRUCTIONS: Mapping[BinaryOp, str] = {
    BinaryOp.ADD: "add",
    BinaryOp.SUB: "sub",
    BinaryOp.MUL: "mul",
    BinaryOp.AND: "and",
    BinaryOp.OR: "or",
    BinaryOp.XOR: "xor",
}
_BOOL_INSTRUCTIONS: Mapping[BinaryOp, str] = {
    BinaryOp.ADD: "or",
    BinaryOp.MUL: "and",
    BinaryOp.MIN: "and",
    BinaryOp.MAX: "or",
    BinaryOp.MAX_NUMBER: "or",
    BinaryOp.AND: "and",
    BinaryOp.OR: "or",
    BinaryOp.XOR: "xor",
}
_PREDICATES: Mapping[BinaryOp, tuple[str, str, str]] = {
    BinaryOp.LT: ("olt", "slt", "ult"),
    BinaryOp.LE: ("ole", "sle", "ule"),
    BinaryOp.GT: ("ogt", "sgt", "ugt"),
    BinaryOp.GE: ("oge", "sge", "uge"),
    BinaryOp.EQ: ("oeq", "eq", "eq"),
    BinaryOp.NE: ("une", "ne", "ne"),
}
"""Float, signed and unsigned predicate."""

_ROUNDING: Mapping[UnaryOp, Callable[[FormulaTerm], FormulaTerm]] = {
    UnaryOp.FLOOR: terms.floor,
    UnaryOp.CEIL: terms.ceiling,
    UnaryOp.ROUND: terms.round_even,
    UnaryOp.TRUNC: terms.truncate,
}
_DIVISIONS = frozenset({BinaryOp.FLOOR_DIV, BinaryOp.FLOOR_MOD, BinaryOp.TRUNC_DIV, BinaryOp.TRUNC_MOD})


def unsupported_operator(op: str, dtype: DType) -> IngotError:
    return IngotError(
        ErrorCode.UNSUPPORTED_DTYPE,
        f"no code is generated for {op!s} of {dtype}",
        expected=f"operands of another element type than {dtype}",
        received=dtype.value,
        remedy="Cast the operands to a type on which the operator is defined.",
    )


def splat_constant(number: float, like: LlvmValue) -> str:
    """The operand for a number in the type of ``like``."""
    return splat(constant(number, like.dtype), REGISTER[like.dtype], like.lanes)


def term(builder: FunctionBuilder, value: LlvmValue) -> FormulaTerm:
    return FormulaTerm(builder, value.text, REGISTER[value.dtype], value.lanes)


# -- unary


def unary(builder: FunctionBuilder, op: UnaryOp, x: LlvmValue) -> LlvmValue:
    """``op(x)`` lane by lane.

    Raises:
        IngotError: UNSUPPORTED_DTYPE, the operator has no meaning on this type.
    """
    if x.dtype.is_float:
        return _float_unary(builder, op, x)
    if x.dtype is DType.BOOL:
        return _bool_unary(builder, op, x)
    return _integer_unary(builder, op, x)


def _float_unary(builder: FunctionBuilder, op: UnaryOp, x: LlvmValue) -> LlvmValue:
    if op in MATH_UNARY:
        return _rounded(builder, LlvmValue(call_math(builder, op, (x,)), x.dtype, x.lanes))
    t = term(builder, x)
    match op:
        case UnaryOp.NEG:
            result = -t
        case UnaryOp.ABS:
            result = terms.absolute(t)
        case UnaryOp.FLOOR | UnaryOp.CEIL | UnaryOp.ROUND | UnaryOp.TRUNC:
            result = _ROUNDING[op](t)
        case UnaryOp.SQRT:
            result = terms.square_root(t)
        case UnaryOp.RSQRT:
            result = 1.0 / terms.square_root(t)
        case UnaryOp.RECIPROCAL:
            result = 1.0 / t
        case UnaryOp.IS_NAN:
            return LlvmValue(terms.is_nan(t).text, DType.BOOL, x.lanes)
        case UnaryOp.IS_INF:
            return LlvmValue(terms.absolute(t).equals(float("inf")).text, DType.BOOL, x.lanes)
        case _:
            raise unsupported_operator(op, x.dtype)
    return _rounded(builder, LlvmValue(result.text, x.dtype, x.lanes))


def _bool_unary(builder: FunctionBuilder, op: UnaryOp, x: LlvmValue) -> LlvmValue:
    match op:
        case UnaryOp.NOT | UnaryOp.BIT_NOT:
            return LlvmValue(builder.emit(f"xor {x.type} {x.text}, {splat_constant(1, x)}"), DType.BOOL, x.lanes)
        case UnaryOp.ABS:
            return x
    raise unsupported_operator(op, x.dtype)


def _integer_unary(builder: FunctionBuilder, op: UnaryOp, x: LlvmValue) -> LlvmValue:
    element = REGISTER[x.dtype]
    match op:
        case UnaryOp.NEG:
            return x._replace(text=builder.emit(f"sub {x.type} {splat_constant(0, x)}, {x.text}"))
        case UnaryOp.BIT_NOT:
            return x._replace(text=builder.emit(f"xor {x.type} {x.text}, {splat_constant(-1, x)}"))
        case UnaryOp.NOT:
            text = builder.emit(f"icmp eq {x.type} {x.text}, {splat_constant(0, x)}")
            return LlvmValue(text, DType.BOOL, x.lanes)
        case UnaryOp.ABS:
            if not x.dtype.is_signed:
                return x
            negative = builder.emit(f"sub {x.type} {splat_constant(0, x)}, {x.text}")
            return x._replace(text=builder.call("llvm.smax", element, x.lanes, [x.text, negative]))
        case UnaryOp.POPCOUNT:
            return x._replace(text=builder.call("llvm.ctpop", element, x.lanes, [x.text]))
        case UnaryOp.FLOOR | UnaryOp.CEIL | UnaryOp.ROUND | UnaryOp.TRUNC:
            return x
        case UnaryOp.IS_NAN | UnaryOp.IS_INF:
            return LlvmValue(splat("false", "i1", x.lanes), DType.BOOL, x.lanes)
    raise unsupported_operator(op, x.dtype)


def _rounded(builder: FunctionBuilder, value: LlvmValue) -> LlvmValue:
    """16-bit floats are computed in float32; their results are rounded back."""
    if value.dtype not in NARROW_FLOATS:
        return value
    return value._replace(text=round_to(builder, value.text, value.dtype, value.lanes))


# -- binary


def binary(builder: FunctionBuilder, op: BinaryOp, lhs: LlvmValue, rhs: LlvmValue, *, known: Knowledge) -> LlvmValue:
    """``op(lhs, rhs)`` lane by lane.

    Raises:
        IngotError: UNSUPPORTED_DTYPE, the operator has no meaning on this type.
    """
    if op in COMPARISONS:
        return _comparison(builder, op, lhs, rhs)
    if lhs.dtype.is_float:
        return _float_binary(builder, op, lhs, rhs, known)
    if lhs.dtype is DType.BOOL:
        if op not in _BOOL_INSTRUCTIONS:
            raise unsupported_operator(op, lhs.dtype)
        text = builder.emit(f"{_BOOL_INSTRUCTIONS[op]} {lhs.type} {lhs.text}, {rhs.text}")
        return lhs._replace(text=text)
    return lhs._replace(text=_integer_binary(builder, op, lhs, rhs, known))


class Knowledge:
    """What is known of the operands of a binary operator."""

    __slots__ = ("lhs_not_nan", "nonnegative", "nonzero", "rhs_not_nan")

    def __init__(
        self,
        nonnegative: bool = False,
        nonzero: bool = False,
        lhs_not_nan: bool = False,
        rhs_not_nan: bool = False,
    ) -> None:
        self.nonnegative = nonnegative  # both operands are integers >= 0
        self.nonzero = nonzero  # rhs is a constant other than 0 and -1
        self.lhs_not_nan = lhs_not_nan
        self.rhs_not_nan = rhs_not_nan


NOTHING_KNOWN = Knowledge()

SIMPLE_POWERS = frozenset({-1.0, 0.5, 1.0, 2.0, 3.0})
"""Exponents for which a power is a few multiplications, a division or a root."""


def simple_power(builder: FunctionBuilder, x: LlvmValue, exponent: float) -> LlvmValue:
    """``x ** exponent`` for an exponent in :data:`SIMPLE_POWERS` (for integers 1, 2 or 3)."""
    t = term(builder, x)
    match exponent:
        case 2.0:
            t = t * t
        case 3.0:
            t = t * t * t
        case -1.0:
            t = 1.0 / t
        case 0.5:
            root = terms.square_root(t + 0.0)  # pow(-0, 1/2) is +0
            t = terms.select(t.equals(float("-inf")), float("inf"), root)
    return _rounded(builder, x._replace(text=t.text))


def _comparison(builder: FunctionBuilder, op: BinaryOp, lhs: LlvmValue, rhs: LlvmValue) -> LlvmValue:
    floating, signed, unsigned = _PREDICATES[op]
    if lhs.dtype.is_float:
        text = f"fcmp {floating} {lhs.type} {lhs.text}, {rhs.text}"
    else:
        predicate = signed if lhs.dtype.is_signed else unsigned
        text = f"icmp {predicate} {lhs.type} {lhs.text}, {rhs.text}"
    return LlvmValue(builder.emit(text), DType.BOOL, lhs.lanes)


def _float_binary(
    builder: FunctionBuilder, op: BinaryOp, lhs: LlvmValue, rhs: LlvmValue, known: Knowledge
) -> LlvmValue:
    instruction = _FLOAT_INSTRUCTIONS.get(op)
    if instruction is not None:
        value = lhs._replace(text=builder.emit(f"{instruction} {lhs.type} {lhs.text}, {rhs.text}"))
        return _rounded(builder, value)
    if op in MATH_BINARY:
        return _rounded(builder, lhs._replace(text=call_math(builder, op, (lhs, rhs))))
    match op:
        case BinaryOp.MIN | BinaryOp.MAX:
            return lhs._replace(text=_extremum(builder, op, lhs, rhs, known))
        case BinaryOp.MAX_NUMBER:
            return lhs._replace(text=_larger_number(builder, lhs, rhs))
        case BinaryOp.TRUNC_MOD:
            return lhs._replace(text=float_remainder(builder, lhs, rhs))
        case BinaryOp.FLOOR_MOD:
            return _rounded(builder, lhs._replace(text=_float_floor_mod(builder, lhs, rhs)))
    raise unsupported_operator(op, lhs.dtype)


def exponential_of_difference(builder: FunctionBuilder, x: LlvmValue) -> LlvmValue:
    """``exp(x)`` of a difference, whose rounding makes an error of half a unit of x, hence of ``6e-8 * abs(x)`` of the result:
    as much again is no loss."""
    argument = term(builder, x)
    if terms.can_scale(argument):
        return x._replace(text=quick_exponential(argument).text)
    return x._replace(text=call_math(builder, UnaryOp.EXP, [x]))


def logistic_quotient(builder: FunctionBuilder, lhs: LlvmValue, x: LlvmValue) -> LlvmValue:
    """``lhs / (exp(x) + 1)``"""
    argument = term(builder, x)
    if terms.can_scale(argument):
        below = logistic_denominator(argument)
    else:
        below = FormulaTerm(builder, call_math(builder, UnaryOp.EXP, [x]), argument.element, x.lanes) + 1.0
    return lhs._replace(text=(term(builder, lhs) / below).text)


def _extremum(builder: FunctionBuilder, op: BinaryOp, lhs: LlvmValue, rhs: LlvmValue, known: Knowledge) -> str:
    element = REGISTER[lhs.dtype]
    if builder.capabilities.nan_extrema:
        name = "llvm.minimum" if op is BinaryOp.MIN else "llvm.maximum"
        return builder.call(name, element, lhs.lanes, [lhs.text, rhs.text])
    if not known.lhs_not_nan:  # an accumulator comes first: nothing but one instruction waits for it
        lhs, rhs = rhs, lhs
    # `a > b ? a : b` is one instruction on x86 and gives b when either is NaN: right when a is a number
    predicate = "olt" if op is BinaryOp.MIN else "ogt"
    first = builder.emit(f"fcmp {predicate} {lhs.type} {lhs.text}, {rhs.text}")
    chosen = builder.emit(_select_text(first, lhs, lhs.text, rhs.text))
    if known.lhs_not_nan or known.rhs_not_nan:
        return chosen
    unordered = builder.emit(f"fcmp uno {lhs.type} {lhs.text}, {lhs.text}")
    nan = splat(
        float_bits(math.nan, element), element, lhs.lanes
    )  # `lhs.text` would be merged with the other selection
    return builder.emit(_select_text(unordered, lhs, nan, chosen))


def _larger_number(builder: FunctionBuilder, lhs: LlvmValue, rhs: LlvmValue) -> str:
    if builder.capabilities.nan_extrema:
        return builder.call("llvm.maxnum", REGISTER[lhs.dtype], lhs.lanes, [lhs.text, rhs.text])
    greater = builder.emit(f"fcmp ogt {lhs.type} {rhs.text}, {lhs.text}")
    return builder.emit(_select_text(greater, lhs, rhs.text, lhs.text))


def _select_text(condition: str, like: LlvmValue, then: str, otherwise: str) -> str:
    mask = register_type(DType.BOOL, like.lanes)
    return f"select {mask} {condition}, {like.type} {then}, {like.type} {otherwise}"


def _float_floor_mod(builder: FunctionBuilder, lhs: LlvmValue, rhs: LlvmValue) -> str:
    """Python's modulo: the sign of the divisor."""
    remainder = FormulaTerm(builder, float_remainder(builder, lhs, rhs), REGISTER[lhs.dtype], lhs.lanes)
    divisor = term(builder, rhs)
    opposite = (remainder < 0.0) ^ (divisor < 0.0)
    adjusted = terms.select(opposite, remainder + divisor, remainder)
    return terms.select(remainder.equals(0.0), terms.copysign(remainder, divisor), adjusted).text


def _integer_binary(builder: FunctionBuilder, op: BinaryOp, lhs: LlvmValue, rhs: LlvmValue, known: Knowledge) -> str:
    instruction = _INTEGER_INSTRUCTIONS.get(op)
    if instruction is not None:
        return builder.emit(f"{instruction} {lhs.type} {lhs.text}, {rhs.text}")
    if op in _DIVISIONS:
        return _division(builder, op, lhs, rhs, known)
    sign = "s" if lhs.dtype.is_signed else "u"
    match op:
        case BinaryOp.MIN:
            return builder.call(f"llvm.{sign}min", REGISTER[lhs.dtype], lhs.lanes, [lhs.text, rhs.text])
        case BinaryOp.MAX | BinaryOp.MAX_NUMBER:
            return builder.call(f"llvm.{sign}max", REGISTER[lhs.dtype], lhs.lanes, [lhs.text, rhs.text])
        case BinaryOp.SHL | BinaryOp.SHR:
            return _shift(builder, op, lhs, rhs)
        case BinaryOp.POW:
            return integer_power(builder, lhs, rhs)
        case BinaryOp.DOT4 | BinaryOp.SIGNED_DOT4 if lhs.dtype is DType.INT32:
            return add_dot4(builder, op, None, lhs, rhs).text
    raise unsupported_operator(op, lhs.dtype)


def _shift(builder: FunctionBuilder, op: BinaryOp, lhs: LlvmValue, rhs: LlvmValue) -> str:
    """Shifts by the width or more, or by a negative count, give 0."""
    right = "ashr" if lhs.dtype.is_signed else "lshr"
    instruction = "shl" if op is BinaryOp.SHL else right
    shifted = builder.emit(f"{instruction} {lhs.type} {lhs.text}, {rhs.text}")
    within = builder.emit(f"icmp ult {rhs.type} {rhs.text}, {splat_constant(lhs.dtype.bits, lhs)}")
    return builder.emit(_select_text(within, lhs, shifted, splat_constant(0, lhs)))


def _division(builder: FunctionBuilder, op: BinaryOp, lhs: LlvmValue, rhs: LlvmValue, known: Knowledge) -> str:
    """x / 0 and x % 0 are 0; the least integer / -1 wraps. Neither traps."""
    wants_remainder = op in (BinaryOp.FLOOR_MOD, BinaryOp.TRUNC_MOD)
    if known.nonnegative or not lhs.dtype.is_signed:
        return _quotient(builder, "urem" if wants_remainder else "udiv", lhs, rhs, guard=not known.nonzero)
    if op in (BinaryOp.TRUNC_DIV, BinaryOp.TRUNC_MOD):
        return _quotient(builder, "srem" if wants_remainder else "sdiv", lhs, rhs, guard=not known.nonzero)
    element = REGISTER[lhs.dtype]
    remainder = FormulaTerm(builder, _quotient(builder, "srem", lhs, rhs, guard=not known.nonzero), element, lhs.lanes)
    divisor = term(builder, rhs)
    rounds_up = remainder.differs(0) & ((remainder ^ divisor) < 0)
    if wants_remainder:
        return terms.select(rounds_up, remainder + divisor, remainder).text
    quotient = FormulaTerm(builder, _quotient(builder, "sdiv", lhs, rhs, guard=not known.nonzero), element, lhs.lanes)
    return (quotient + rounds_up.convert("sext", element)).text


def _quotient(builder: FunctionBuilder, instruction: str, lhs: LlvmValue, rhs: LlvmValue, *, guard: bool) -> str:
    if not builder.capabilities.division or (lhs.dtype.bits == 64 and not builder.capabilities.wide_integers):
        return wide_division(builder, instruction, lhs, rhs)
    if not guard:
        return builder.emit(f"{instruction} {lhs.type} {lhs.text}, {rhs.text}")
    zero, one = splat_constant(0, rhs), splat_constant(1, rhs)
    is_zero = builder.emit(f"icmp eq {rhs.type} {rhs.text}, {zero}")
    unsafe = is_zero
    is_minus_one = ""
    if instruction.startswith("s"):
        is_minus_one = builder.emit(f"icmp eq {rhs.type} {rhs.text}, {splat_constant(-1, rhs)}")
        mask = register_type(DType.BOOL, rhs.lanes)
        unsafe = builder.emit(f"or {mask} {is_zero}, {is_minus_one}")
    divisor = builder.emit(_select_text(unsafe, rhs, one, rhs.text))
    result = builder.emit(f"{instruction} {lhs.type} {lhs.text}, {divisor}")  # x rem 1 is 0: right for -1 and 0
    if is_minus_one and instruction == "sdiv":
        negated = builder.emit(f"sub {lhs.type} {zero}, {lhs.text}")
        result = builder.emit(_select_text(is_minus_one, lhs, negated, result))
    if instruction.endswith("div"):
        result = builder.emit(_select_text(is_zero, lhs, zero, result))
    return result
