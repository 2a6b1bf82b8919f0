"""Scalar helper functions for what few targets have as instructions: division, remainder of floats, integer powers.

Each is defined once per module as internal LLVM text and called lane by lane.
"""

from __future__ import annotations

from collections.abc import Sequence

from compiler_service.compiler.codegen.llvm.builder import FunctionBuilder, LlvmValue
from compiler_service.compiler.codegen.llvm.llvm_types import REGISTER, vector
from compiler_service.compiler.codegen.llvm.terms import FormulaTerm, floor, select, truncate

_UNSIGNED_QUOTIENT = """\
define internal i64 @ingot.quotient(i64 %a, i64 %b) #0 {
entry:
  %zero = icmp eq i64 %b, 0
  br i1 %zero, label %none, label %nonzero
nonzero:
  %either = or i64 %a, %b
  %high = lshr i64 %either, 32
  %narrow = icmp eq i64 %high, 0
  br i1 %narrow, label %short, label %long
short:
SHORT
long:
  br label %loop
loop:
  %i = phi i64 [ 64, %long ], [ %next, %loop ]
  %r = phi i64 [ 0, %long ], [ %remainder, %loop ]
  %q = phi i64 [ 0, %long ], [ %quotient, %loop ]
  %next = sub i64 %i, 1
  %shifted = shl i64 %r, 1
  %bits = lshr i64 %a, %next
  %bit = and i64 %bits, 1
  %candidate = or i64 %shifted, %bit
  %carry = icmp slt i64 %r, 0
  %reached = icmp uge i64 %candidate, %b
  %take = or i1 %carry, %reached
  %less = sub i64 %candidate, %b
  %remainder = select i1 %take, i64 %less, i64 %candidate
  %one = zext i1 %take to i64
  %twice = shl i64 %q, 1
  %quotient = or i64 %twice, %one
  %done = icmp eq i64 %next, 0
  br i1 %done, label %exit, label %loop
exit:
  ret i64 %quotient
none:
  ret i64 0
}"""
_SHORT_DIVISION = """\
  %a32 = trunc i64 %a to i32
  %b32 = trunc i64 %b to i32
  %q32 = udiv i32 %a32, %b32
  %q64 = zext i32 %q32 to i64
  ret i64 %q64"""

_POWER = """\
define internal i64 @ingot.power(i64 %base, i64 %exponent) #0 {
entry:
  br label %loop
loop:
  %b = phi i64 [ %base, %entry ], [ %square, %loop ]
  %e = phi i64 [ %exponent, %entry ], [ %half, %loop ]
  %r = phi i64 [ 1, %entry ], [ %result, %loop ]
  %bit = and i64 %e, 1
  %odd = icmp ne i64 %bit, 0
  %more = mul i64 %r, %b
  %result = select i1 %odd, i64 %more, i64 %r
  %square = mul i64 %b, %b
  %half = lshr i64 %e, 1
  %done = icmp eq i64 %half, 0
  br i1 %done, label %exit, label %loop
exit:
  ret i64 %result
}"""

# Long division of the fractions, one bit of the quotient at a time: exact, as C's fmod is.
_REMAINDER = """\
define internal double @ingot.remainder(double %x, double %y) #0 {
entry:
  %xbits = bitcast double %x to i64
  %ybits = bitcast double %y to i64
  %ux = and i64 %xbits, 9223372036854775807
  %uy = and i64 %ybits, 9223372036854775807
  %sign = and i64 %xbits, -9223372036854775808
  %y.zero = icmp eq i64 %uy, 0
  %y.nan = icmp ugt i64 %uy, 9218868437227405312
  %x.huge = icmp uge i64 %ux, 9218868437227405312
  %bad.y = or i1 %y.zero, %y.nan
  %bad = or i1 %bad.y, %x.huge
  br i1 %bad, label %invalid, label %valid
invalid:
  ret double 0x7FF8000000000000
valid:
  %small = icmp ult i64 %ux, %uy
  br i1 %small, label %same, label %divide
same:
  ret double %x
divide:
  %xe.raw = lshr i64 %ux, 52
  %ye.raw = lshr i64 %uy, 52
  %x.sub = icmp eq i64 %xe.raw, 0
  %y.sub = icmp eq i64 %ye.raw, 0
  %x.fraction = and i64 %ux, 4503599627370495
  %y.fraction = and i64 %uy, 4503599627370495
  %x.zeros = call i64 @llvm.ctlz.i64(i64 %ux, i1 false)
  %y.zeros = call i64 @llvm.ctlz.i64(i64 %uy, i1 false)
  %x.up = sub i64 %x.zeros, 11
  %y.up = sub i64 %y.zeros, 11
  %x.scaled = shl i64 %ux, %x.up
  %y.scaled = shl i64 %uy, %y.up
  %x.normal = or i64 %x.fraction, 4503599627370496
  %y.normal = or i64 %y.fraction, 4503599627370496
  %x.low = sub i64 1, %x.up
  %y.low = sub i64 1, %y.up
  %mx0 = select i1 %x.sub, i64 %x.scaled, i64 %x.normal
  %my = select i1 %y.sub, i64 %y.scaled, i64 %y.normal
  %ex = select i1 %x.sub, i64 %x.low, i64 %xe.raw
  %ey = select i1 %y.sub, i64 %y.low, i64 %ye.raw
  br label %loop
loop:
  %e = phi i64 [ %ex, %divide ], [ %e.next, %again ]
  %m = phi i64 [ %mx0, %divide ], [ %m.next, %again ]
  %difference = sub i64 %m, %my
  %less = icmp slt i64 %difference, 0
  %rest = select i1 %less, i64 %m, i64 %difference
  %last = icmp sle i64 %e, %ey
  br i1 %last, label %exit, label %again
again:
  %m.next = shl i64 %rest, 1
  %e.next = sub i64 %e, 1
  br label %loop
exit:
  %nothing = icmp eq i64 %rest, 0
  br i1 %nothing, label %zero, label %pack
zero:
  %zero.value = bitcast i64 %sign to double
  ret double %zero.value
pack:
  %zeros = call i64 @llvm.ctlz.i64(i64 %rest, i1 false)
  %up = sub i64 %zeros, 11
  %fraction = shl i64 %rest, %up
  %exponent = sub i64 %e, %up
  %is.normal = icmp sgt i64 %exponent, 0
  %field = shl i64 %exponent, 52
  %stripped = and i64 %fraction, 4503599627370495
  %normal = or i64 %field, %stripped
  %down = sub i64 1, %exponent
  %subnormal = lshr i64 %fraction, %down
  %magnitude = select i1 %is.normal, i64 %normal, i64 %subnormal
  %result = or i64 %magnitude, %sign
  %value = bitcast i64 %result to double
  ret double %value
}"""


def lane_by_lane(builder: FunctionBuilder, function: str, element: str, operands: Sequence[FormulaTerm]) -> FormulaTerm:
    """A scalar helper of type ``element`` applied to every lane."""
    model = operands[0]
    if model.lanes == 1:
        arguments = ", ".join(f"{element} {o.text}" for o in operands)
        return model.of(builder.emit(f"call {element} {function}({arguments})"))
    kind = vector(element, model.lanes)
    result = "poison"
    for lane in range(model.lanes):
        scalars = [builder.emit(f"extractelement {kind} {o.text}, i64 {lane}") for o in operands]
        one = builder.emit(f"call {element} {function}({', '.join(f'{element} {s}' for s in scalars)})")
        result = builder.emit(f"insertelement {kind} {result}, {element} {one}, i64 {lane}")
    return model.of(result)


def _widened(builder: FunctionBuilder, value: LlvmValue, *, signed: bool) -> FormulaTerm:
    t = FormulaTerm(builder, value.text, REGISTER[value.dtype], value.lanes)
    return t if t.element == "i64" else t.convert("sext" if signed else "zext", "i64")


def _narrowed(t: FormulaTerm, element: str) -> str:
    return t.text if element == "i64" else t.convert("trunc", element).text


def wide_division(builder: FunctionBuilder, instruction: str, lhs: LlvmValue, rhs: LlvmValue) -> str:
    """``udiv``, ``urem``, ``sdiv`` or ``srem`` without a division instruction; x / 0 and x % 0 are 0."""
    short = _SHORT_DIVISION if builder.capabilities.division else "  br label %long"
    function = builder.module.helper("ingot.quotient", lambda: _UNSIGNED_QUOTIENT.replace("SHORT", short))
    signed = instruction.startswith("s")
    a, b = _widened(builder, lhs, signed=signed), _widened(builder, rhs, signed=signed)
    if signed:
        quotient = lane_by_lane(builder, function, "i64", [_magnitude(a), _magnitude(b)])
        quotient = select((a ^ b) < 0, -quotient, quotient)
    else:
        quotient = lane_by_lane(builder, function, "i64", [a, b])
    if instruction.endswith("rem"):
        remainder = select(b.equals(0), 0, a - quotient * b)
        return _narrowed(remainder, REGISTER[lhs.dtype])
    return _narrowed(quotient, REGISTER[lhs.dtype])


def _magnitude(x: FormulaTerm) -> FormulaTerm:
    return select(x < 0, -x, x)


def integer_power(builder: FunctionBuilder, base: LlvmValue, exponent: LlvmValue) -> str:
    """Wrapping power; a negative exponent gives the truncated reciprocal: +-1 for +-1, else 0."""
    signed = base.dtype.is_signed
    function = builder.module.helper("ingot.power", lambda: _POWER)
    b, e = _widened(builder, base, signed=signed), _widened(builder, exponent, signed=signed)
    power = lane_by_lane(builder, function, "i64", [b, e])  # of +-1 also right for negative e: its parity counts
    if signed:
        is_unit = b.equals(1) | b.equals(-1)
        power = select((e < 0) & (is_unit ^ 1), 0, power)
    return _narrowed(power, REGISTER[base.dtype])


def float_remainder(builder: FunctionBuilder, lhs: LlvmValue, rhs: LlvmValue) -> str:
    """C's ``fmod``: exact, the sign of the dividend."""
    builder.module.intrinsic("llvm.ctlz.i64", "i64", "i64, i1")
    function = builder.module.helper("ingot.remainder", lambda: _REMAINDER)
    element = REGISTER[lhs.dtype]
    x, y = (FormulaTerm(builder, v.text, element, v.lanes) for v in (lhs, rhs))
    if element == "double":
        return lane_by_lane(builder, function, "double", [x, y]).text
    wide = [t.convert("fpext", "double") for t in (x, y)]
    return lane_by_lane(builder, function, "double", wide).convert("fptrunc", element).text


def wide_integer_to_double(x: FormulaTerm, *, signed: bool) -> FormulaTerm:
    """int64 -> double by halves, where that conversion is not an instruction."""
    high = (x >> 32 if signed else x.logical_shift(32)).convert("trunc", "i32")
    low = x.convert("trunc", "i32").convert("uitofp", "double")
    return high.convert("sitofp" if signed else "uitofp", "double") * 4294967296.0 + low


def double_to_wide_integer(x: FormulaTerm, *, signed: bool) -> FormulaTerm:
    """double -> int64, saturating, NaN to 0, where that conversion is not an instruction."""
    least, beyond = (-(2.0**63), 2.0**63) if signed else (0.0, 2.0**64)
    whole = truncate(x)
    inside = (whole >= least) & (whole < beyond)
    whole = select(inside, whole, 0.0)
    high = floor(whole * (1.0 / 4294967296.0))
    low = (whole - high * 4294967296.0).convert("fptoui", "i32").convert("zext", "i64")
    upper = high.convert("fptosi" if signed else "fptoui", "i32").convert("zext", "i64")
    value = (upper << 32) | low
    largest, smallest = ((1 << 63) - 1, -(1 << 63)) if signed else (-1, 0)
    value = select(x >= beyond, largest, value)
    return select(x < least, smallest, value)
