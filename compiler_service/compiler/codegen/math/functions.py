"""The elementary functions as internal functions of a module, one per element type and lane count, always inlined.

No call leaves the module: every function is arithmetic. The error is at most 4 units in the last place (measured by
``tests/compiler_service/compiler/codegen/math/test_intrinsics.py``; circular functions for arguments up to 1e6).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from compiler_service.compiler.codegen.llvm.builder import FunctionBuilder, LlvmModule, LlvmValue
from compiler_service.compiler.codegen.llvm.llvm_types import REGISTER, suffix, vector
from compiler_service.compiler.codegen.llvm.terms import FormulaTerm, absolute, copysign
from compiler_service.compiler.codegen.math import exponential as math_exponential
from compiler_service.compiler.codegen.math import power as math_power
from compiler_service.compiler.codegen.math import trigonometric as math_trigonometric
from shared_ir.expr import BinaryOp, UnaryOp

Formula = Callable[..., FormulaTerm]

_BOTH: Mapping[UnaryOp | BinaryOp, Formula] = {
    UnaryOp.EXP: math_exponential.exponential,
    UnaryOp.EXPM1: math_exponential.exponential_minus_one,
    UnaryOp.LOG: math_exponential.logarithm,
    UnaryOp.TANH: math_exponential.tanh,
    UnaryOp.SIGMOID: math_exponential.sigmoid,
    UnaryOp.ERF: math_exponential.erf,
    UnaryOp.SIN: math_trigonometric.sin,
    UnaryOp.COS: math_trigonometric.cos,
}
"""Written for both float and double: the functions that models spend time in."""

_DOUBLE: Mapping[UnaryOp | BinaryOp, Formula] = {
    UnaryOp.TAN: math_trigonometric.tan,
    UnaryOp.ASIN: math_trigonometric.asin,
    UnaryOp.ACOS: math_trigonometric.acos,
    UnaryOp.ATAN: math_trigonometric.atan,
    UnaryOp.SINH: math_exponential.sinh,
    UnaryOp.COSH: math_exponential.cosh,
    UnaryOp.ASINH: math_exponential.asinh,
    UnaryOp.ACOSH: math_exponential.acosh,
    UnaryOp.ATANH: math_exponential.atanh,
    BinaryOp.POW: math_power.power,
    BinaryOp.ATAN2: math_trigonometric.atan2,
}
"""Written for double; floats are widened, which makes them correct to half a unit."""

_ODD = frozenset({UnaryOp.ASIN, UnaryOp.ATAN, UnaryOp.SINH, UnaryOp.ASINH, UnaryOp.ATANH})
"""f(-x) = -f(x): narrowed without their sign. LLVM moves a final copysign past the narrowing, and then turns a double that is
narrowed to float and on to half into one conversion, which x86 does not have."""

MATH_UNARY = frozenset(op for op in (*_BOTH, *_DOUBLE) if isinstance(op, UnaryOp))
MATH_BINARY = frozenset(op for op in _DOUBLE if isinstance(op, BinaryOp))


def call_math(builder: FunctionBuilder, op: UnaryOp | BinaryOp, operands: Sequence[LlvmValue]) -> str:
    """A call of the function of ``op``, which is defined in the module when this is its first use."""
    element, lanes = REGISTER[operands[0].dtype], operands[0].lanes
    name = f"ingot.{op}.{suffix(element, lanes)}"
    module = builder.module
    function = module.helper(name, lambda: _define(module, name, op, len(operands), element, lanes))
    kind = vector(element, lanes)
    return builder.emit(f"call {kind} {function}({', '.join(f'{kind} {o.text}' for o in operands)})")


def _define(module: LlvmModule, name: str, op: UnaryOp | BinaryOp, arity: int, element: str, lanes: int) -> str:
    builder = FunctionBuilder(module)
    parameters = [FormulaTerm(builder, f"%x{i}", element, lanes) for i in range(arity)]
    result = _formula(op, element)(*parameters)
    kind = vector(element, lanes)
    signature = ", ".join(f"{kind} {p.text}" for p in parameters)
    builder.line(f"ret {kind} {result.text}")
    return f"define internal {kind} @{name}({signature}) alwaysinline #0 {{\n{builder.body()}\n}}"


def _formula(op: UnaryOp | BinaryOp, element: str) -> Formula:
    if op in _BOTH:
        return _BOTH[op]
    if element == "double":
        return _DOUBLE[op]
    if op is BinaryOp.POW:
        return math_power.power_single
    wide = _DOUBLE[op]
    if op in _ODD:
        return lambda x: copysign(_narrowed(wide, absolute(x)), x)
    return lambda *xs: _narrowed(wide, *xs)


def _narrowed(wide: Formula, *xs: FormulaTerm) -> FormulaTerm:
    return wide(*(x.convert("fpext", "double") for x in xs)).convert("fptrunc", "float")
