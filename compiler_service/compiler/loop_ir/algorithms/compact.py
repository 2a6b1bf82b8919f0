"""Building loop programs compactly: variables on the stack, loops and lets whose bodies are functions of their variable,
and the index of a task."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from compiler_service.compiler.loop_ir.ir import (
    Allocate,
    Block,
    Buffer,
    BufferLoad,
    BufferScope,
    For,
    ForKind,
    Let,
    Statement,
    Store,
)
from shared_ir.dtype import DType
from shared_ir.expr import Const, Expr, Scalar, Var, lift, select
from shared_ir.expr.dim import Dim, as_dim, product

Index = tuple[Expr, ...]
LANES = 16


@dataclass(frozen=True)
class CompactCell:
    """A variable of the loop program: one element on the stack."""

    buffer: Buffer

    @property
    def value(self) -> Expr:
        return BufferLoad(self.buffer, (Const(0),))

    def set(self, value: Expr | Scalar) -> Statement:
        return Store(self.buffer, (Const(0),), lift(value, self.buffer.dtype))


def with_cell(name: str, initial: Expr, body: Callable[[CompactCell], Statement]) -> Statement:
    """``body`` over a new variable that begins as ``initial``."""
    cell = CompactCell(Buffer(name, initial.dtype, (1,), BufferScope.STACK))
    return Allocate(cell.buffer, Block((cell.set(initial), body(cell))))


def loop(name: str, extent: Dim, body: Callable[[Var], Statement]) -> Statement:
    """A serial loop over ``[0, extent)``."""
    var = Var(name)
    return For(var, lift(extent), ForKind.SERIAL, body(var))


def lanes(body: Callable[[Var], Statement]) -> Statement:
    """``body`` for each lane of a vector."""
    lane = Var("lane")
    return For(lane, lift(LANES), ForKind.VECTORIZED, body(lane))


def elements(shape: Sequence[Dim], body: Callable[[Index], Statement]) -> Statement:
    """``body`` at every index of ``shape``, vectors along its last axis; it must do the same in every lane."""
    if not shape:
        return body(())
    *outer, last = shape
    full = lift(last) // LANES

    def row(index: Index) -> Statement:
        def vector(i: Var) -> Statement:
            return lanes(lambda lane: body((*index, i * LANES + lane)))

        rest = loop("rest", as_dim(lift(last) % LANES), lambda i: body((*index, full * LANES + i)))
        return rest if isinstance(last, int) and last < LANES else Block((loop("vector", as_dim(full), vector), rest))

    return nest("row", outer, row)


def nest(name: str, shape: Sequence[Dim], body: Callable[[Index], Statement]) -> Statement:
    """``body`` at every index of ``shape`` in order; ``name`` begins the names of the loops."""
    if not shape:
        return body(())
    first, *others = shape
    return loop(f"{name}.{len(shape)}", first, lambda i: nest(name, others, lambda rest: body((i, *rest))))


def let(name: str, value: Expr, body: Callable[[Var], Statement]) -> Statement:
    var = Var(name, value.dtype)
    return Let(var, value, body(var))


def load(buffer: Buffer, *indices: Expr | int) -> Expr:
    return BufferLoad(buffer, tuple(lift(i) for i in indices))


def unravel(flat: Expr, shape: Sequence[Dim]) -> tuple[Expr, ...]:
    """The row-major index of element ``flat``."""
    index: list[Expr] = []
    for axis, extent in enumerate(shape):
        position = flat // lift(product(shape[axis + 1 :]))
        index.append(position % lift(extent) if axis else position)
    return tuple(index)


def one_where(condition: Expr) -> Expr:
    """int32: 1 where ``condition`` holds, else 0."""
    return select(condition, lift(1, DType.INT32), lift(0, DType.INT32))
