"""One row-major index per access.

::

    x[b, h, 0:16]    ->    x[b * (H * 16) + h * 16 :+16]        for x of shape [B, H, 16]

Every buffer becomes one of rank 1 with the same number of elements, and the gaps between them, where it has any. A vector
index along the last axis stays a ``Ramp`` of stride 1: a contiguous access. The sums are left to ``simplify``.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from compiler_service.compiler.loop_ir.ir import (
    Allocate,
    Broadcast,
    Buffer,
    BufferLoad,
    Function,
    Prefetch,
    Statement,
    Store,
    lanes_of,
    substatements,
)
from compiler_service.compiler.loop_ir.passes.lanes import index_arithmetic
from compiler_service.compiler.loop_ir.passes.rewrite import with_expressions, with_substatements
from compiler_service.compiler.tensor_expr.strides import row_major, span
from shared_ir.expr import Binary, BinaryOp, Const, Expr, binary, lift, transform


def flatten(function: Function) -> Function:
    """The same function over buffers of rank 1."""
    flattener = _Flattener()
    buffers = tuple([flattener.flat_buffer(buffer) for buffer in function.buffers])
    return replace(function, buffers=buffers, body=flattener.statement(function.body))


@dataclass
class _Flattener:
    buffers: dict[Buffer, Buffer] = field(default_factory=dict)
    strides: dict[Buffer, tuple[Expr, ...]] = field(default_factory=dict)
    _memo: dict[Expr, Expr] = field(default_factory=dict)
    _indices: dict[tuple[Buffer, tuple[Expr, ...]], Expr] = field(default_factory=dict)

    def flat_buffer(self, buffer: Buffer) -> Buffer:
        found = self.buffers.get(buffer)
        if found is None:
            size = span(buffer.shape, buffer.strides)
            found = buffer if _is_flat(buffer) else replace(buffer, shape=(size,), strides=None)
            self.buffers[buffer] = found
            self.strides[buffer] = tuple([lift(s) for s in buffer.strides or row_major(buffer.shape)])
        return found

    def statement(self, statement: Statement) -> Statement:
        parts = tuple([self.statement(part) for part in substatements(statement)])
        new = with_expressions(with_substatements(statement, parts), self.expr)
        match new:
            case Store(buffer=buffer, indices=indices) if not _is_flat(buffer):
                return replace(new, buffer=self.flat_buffer(buffer), indices=(self.index(buffer, indices),))
            case Prefetch(buffer=buffer, indices=indices, level=level) if not _is_flat(buffer):
                return Prefetch(self.flat_buffer(buffer), (self.index(buffer, indices),), level)
            case Allocate(buffer=buffer, body=body):
                return Allocate(self.flat_buffer(buffer), body)
        return new

    def expr(self, expr: Expr) -> Expr:
        return transform(expr, self.flat_load, self._memo)

    def flat_load(self, expr: Expr) -> Expr | None:
        if isinstance(expr, BufferLoad) and not _is_flat(expr.buffer):
            return BufferLoad(self.flat_buffer(expr.buffer), (self.index(expr.buffer, expr.indices),), expr.mask)
        return None

    def index(self, buffer: Buffer, indices: tuple[Expr, ...]) -> Expr:
        found = self._indices.get((buffer, indices))
        if found is None:
            self.flat_buffer(buffer)
            found = Const(0)
            for index, stride in zip(indices, self.strides[buffer], strict=True):
                found = arithmetic(BinaryOp.ADD, found, arithmetic(BinaryOp.MUL, index, stride))
            lanes = max((lanes_of(index) for index in indices), default=1)
            if lanes > 1 and lanes_of(found) == 1:  # every lane at one location: the access stays one of vectors
                found = Broadcast(found, lanes)
            self._indices[buffer, indices] = found
        return found


def _is_flat(buffer: Buffer) -> bool:
    return len(buffer.shape) == 1 and buffer.strides is None


def arithmetic(op: BinaryOp, lhs: Expr, rhs: Expr) -> Expr:
    """Sum or product of int64 scalars or vectors, scalars broadcast."""
    identity = Const(0) if op is BinaryOp.ADD else Const(1)
    if lhs == identity:
        return rhs
    if rhs == identity:
        return lhs
    left, right = lanes_of(lhs), lanes_of(rhs)
    if left == right == 1:
        return binary(op, lhs, rhs)
    lanes = max(left, right)
    found = index_arithmetic(op, lhs, rhs, lanes)
    if found is not None:
        return found
    return Binary(op, lhs if left > 1 else Broadcast(lhs, lanes), rhs if right > 1 else Broadcast(rhs, lanes))
