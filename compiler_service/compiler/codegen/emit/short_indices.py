"""Indices of vectors as int32 where no element of the buffer needs more: half the arithmetic, and one instruction gathers a vector
where addresses of 64 bits would take two.

Sums, differences and products of int32 wrap around like the low halves of those of int64, so an index below 2^31 comes out the same
however large what it is computed from.
"""

from __future__ import annotations

from compiler_service.compiler.loop_ir.ir import Broadcast
from shared_ir.dtype import DType
from shared_ir.expr import Binary, BinaryOp, Cast, Const, Expr, Select, binary, select

_WRAPPING = frozenset({BinaryOp.ADD, BinaryOp.SUB, BinaryOp.MUL})
_BITS = 32


def shortened(index: Expr) -> Expr:
    """``index``, int64, modulo 2^32 as int32."""
    match index:
        case Const(value=value):
            low = int(value) % (1 << _BITS)
            return Const(low - (1 << _BITS) if low >> (_BITS - 1) else low, DType.INT32)
        case Binary(op=op, lhs=lhs, rhs=rhs) if op in _WRAPPING:
            return binary(op, shortened(lhs), shortened(rhs))
        case Broadcast(x=x, lanes=lanes):
            return Broadcast(shortened(x), lanes)
        case Select(cond=cond, then=then, otherwise=otherwise):
            return select(cond, shortened(then), shortened(otherwise))
        case Cast(x=x) if x.dtype is DType.INT32:
            return x
    return Cast(DType.INT32, index)
