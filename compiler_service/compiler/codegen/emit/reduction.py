"""Horizontal reduction of a vector by halving: the same order, hence the same bits, on every target."""

from __future__ import annotations

from compiler_service.compiler.codegen.emit import arithmetic
from compiler_service.compiler.codegen.llvm.builder import FunctionBuilder, LlvmValue
from shared_ir.expr import BinaryOp

_OPERATORS = {
    "sum": BinaryOp.ADD,
    "prod": BinaryOp.MUL,
    "min": BinaryOp.MIN,
    "max": BinaryOp.MAX,
    "max_number": BinaryOp.MAX_NUMBER,
    "and": BinaryOp.AND,
    "or": BinaryOp.OR,
}


def reduce_lanes(builder: FunctionBuilder, reduction: str, x: LlvmValue) -> LlvmValue:
    """All lanes of ``x`` combined; ``reduction`` is the value of a ``ReduceOp``."""
    op = _OPERATORS[reduction]
    rest: list[LlvmValue] = []
    while x.lanes > 1:
        if x.lanes % 2:
            rest.append(_lane(builder, x, x.lanes - 1))
            x = _part(builder, x, 0, x.lanes - 1)
            continue
        half = x.lanes // 2
        low, high = _part(builder, x, 0, half), _part(builder, x, half, half)
        x = arithmetic.binary(builder, op, low, high, known=arithmetic.NOTHING_KNOWN)
    for value in reversed(rest):
        x = arithmetic.binary(builder, op, x, value, known=arithmetic.NOTHING_KNOWN)
    return x


def _part(builder: FunctionBuilder, x: LlvmValue, start: int, lanes: int) -> LlvmValue:
    if lanes == 1:
        return _lane(builder, x, start)
    order = ", ".join(f"i32 {start + i}" for i in range(lanes))
    text = f"shufflevector {x.type} {x.text}, {x.type} poison, <{lanes} x i32> <{order}>"
    return LlvmValue(builder.emit(text), x.dtype, lanes)


def _lane(builder: FunctionBuilder, x: LlvmValue, lane: int) -> LlvmValue:
    return LlvmValue(builder.emit(f"extractelement {x.type} {x.text}, i64 {lane}"), x.dtype)
