"""On which element types a scalar operator means something: what code is generated for, and definitions may ask for."""

from __future__ import annotations

from collections.abc import Iterable

from compiler_service.compiler.tensor_expr.refusal import unsupported_dtype
from compiler_service.compiler.tensor_expr.tensor import Compute, Tensor
from shared_ir.dtype import DType
from shared_ir.expr import COMPARISONS, Binary, BinaryOp, Unary, UnaryOp, walk

_NUMBERS = "numbers"
_INTEGERS = "integers"
_FLOATS = "floats"
_BOOL = "bool"
_INT32 = "int32"
_BITS = "integers or bool"
_ANY = "numbers or bool"

_UNARY = {
    UnaryOp.NOT: _BOOL,
    **dict.fromkeys((UnaryOp.BIT_NOT, UnaryOp.POPCOUNT), _INTEGERS),
    **dict.fromkeys((UnaryOp.NEG, UnaryOp.ABS, UnaryOp.IS_NAN, UnaryOp.IS_INF), _NUMBERS),
    **dict.fromkeys((UnaryOp.FLOOR, UnaryOp.CEIL, UnaryOp.ROUND, UnaryOp.TRUNC), _NUMBERS),
}
"""The others are functions of real numbers."""
_BINARY = {
    **dict.fromkeys((BinaryOp.AND, BinaryOp.OR, BinaryOp.XOR), _BITS),
    **dict.fromkeys((BinaryOp.SHL, BinaryOp.SHR, BinaryOp.FLOOR_DIV, BinaryOp.TRUNC_DIV), _INTEGERS),
    **dict.fromkeys((BinaryOp.SUB, BinaryOp.POW, BinaryOp.FLOOR_MOD, BinaryOp.TRUNC_MOD), _NUMBERS),
    **dict.fromkeys((BinaryOp.DIV, BinaryOp.ATAN2), _FLOATS),
    **dict.fromkeys((BinaryOp.DOT4, BinaryOp.SIGNED_DOT4), _INT32),
}
"""The others take what can be added, multiplied or compared."""


def domain(op: UnaryOp | BinaryOp) -> str:
    """The element types of the operands of ``op``, in words."""
    if isinstance(op, UnaryOp):
        return _UNARY.get(op, _FLOATS)
    return _ANY if op in COMPARISONS else _BINARY.get(op, _ANY)


def takes(op: UnaryOp | BinaryOp, dtype: DType) -> bool:
    match domain(op):
        case "floats":
            return dtype.is_float
        case "integers":
            return dtype.is_integer
        case "numbers":
            return dtype.is_float or dtype.is_integer
        case "integers or bool":
            return not dtype.is_float
        case "bool" | "int32" as name:
            return dtype.value == name
    return True


def check_domains(op: str, tensors: Iterable[Tensor]) -> None:
    """Refuse a definition of ``op`` that computes what no code is generated for.

    Raises:
        IngotError: UNSUPPORTED_DTYPE.
    """
    for tensor in tensors:
        if not isinstance(tensor.op, Compute):
            continue
        for expr in walk(tensor.op.body):
            operand = expr.x if isinstance(expr, Unary) else expr.lhs if isinstance(expr, Binary) else None
            if operand is not None and isinstance(expr, (Unary, Binary)) and not takes(expr.op, operand.dtype):
                raise unsupported_dtype(op, operand.dtype, domain(expr.op))
