"""Recognise stores that accumulate into one location."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from compiler_service.compiler.loop_ir.ir import BufferLoad, Store
from compiler_service.compiler.tensor_expr.tensor import ReduceOp
from shared_ir.expr import Binary, BinaryOp, Expr, walk

_REDUCES: Mapping[BinaryOp, ReduceOp] = MappingProxyType(
    {
        BinaryOp.ADD: ReduceOp.SUM,
        BinaryOp.SUB: ReduceOp.SUM,
        BinaryOp.MUL: ReduceOp.PROD,
        BinaryOp.MIN: ReduceOp.MIN,
        BinaryOp.MAX: ReduceOp.MAX,
        BinaryOp.MAX_NUMBER: ReduceOp.MAX_NUMBER,
        BinaryOp.AND: ReduceOp.AND,
        BinaryOp.OR: ReduceOp.OR,
    }
)


@dataclass(frozen=True)
class Accumulation:
    """``location = location combine operand``, which over many operands is ``location combine op(operands)``."""

    combine: BinaryOp
    op: ReduceOp
    operand: Expr


def accumulation(store: Store) -> Accumulation | None:
    """How ``store`` accumulates; ``None`` when it is masked, of another form, or its operand loads the buffer too."""
    value = store.value
    if not isinstance(value, Binary) or value.op not in _REDUCES or store.mask is not None:
        return None
    if _is_location(value.lhs, store):
        operand = value.rhs
    elif _is_location(value.rhs, store) and value.op is not BinaryOp.SUB:
        operand = value.lhs
    else:
        return None
    if any(isinstance(e, BufferLoad) and e.buffer is store.buffer for e in walk(operand)):
        return None
    return Accumulation(value.op, _REDUCES[value.op], operand)


def _is_location(expr: Expr, store: Store) -> bool:
    return (
        isinstance(expr, BufferLoad)
        and expr.buffer is store.buffer
        and expr.indices == store.indices
        and expr.mask is None
    )
