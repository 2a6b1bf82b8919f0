"""Loop IR: the loop program of one kernel. Grammar first; verifier, printer and interpreter give it its meaning.

Grammar::

    Function  = Function(name, buffers, symbols, task, tasks, body)
    Statement = Block(statements)
              | For(var, extent, kind, body)            var runs over [0, extent)
              | If(cond, then, otherwise)
              | Let(var, value, body)
              | Allocate(buffer, body)                  uninitialised; scope SCRATCH or STACK
              | Store(buffer, indices, value, mask)
              | Prefetch(buffer, indices)               no effect; the element need not exist
              | Checkpoint()                            ends the function where its run is to end
    Expr     += BufferLoad(buffer, indices, mask)
              | Ramp(base, stride, lanes)               base, base + stride, ...: a vector of int64
              | Broadcast(x, lanes)
              | VectorReduce(op, x)                     horizontal: a vector to a scalar
              | Shuffle(lhs, rhs, order)                lanes picked out of two vectors of equal lanes
              | VectorVar(name, dtype, lanes)           a Var whose Let has a vector value

A function runs ``body`` for every ``task`` of a given range within [0, tasks); tasks are independent of each other.
``buffers`` are its arguments in order, ``symbols`` its int64 parameters in order; shapes may mention symbols.

Lowering yields multi-dimensional indices and ``VECTORIZED`` / ``UNROLLED`` loops of constant extent; the passes
(:mod:`compiler_service.compiler.loop_ir.passes`) bring them to what code generation takes: one row-major index per access, and
no UNROLLED or VECTORIZED loops.

In an expression with vector operands, scalar operands must have been broadcast: every operator works on equal lane
counts. Two exceptions: the condition of a Select may be scalar between vectors, and the indices of one access may mix
scalars and vectors. A masked-out lane is neither loaded (its value is 0) nor stored; a mask has its access's lanes.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass

from compiler_service.compiler.tensor_expr.strides import Strides
from compiler_service.compiler.tensor_expr.tensor import ReduceOp
from shared_ir.dtype import DType
from shared_ir.expr import Const, Expr, Var
from shared_ir.expr.dim import Dim


class BufferScope(enum.StrEnum):
    """Where a buffer lives."""

    ARGUMENT = "argument"  # memory of the caller
    SCRATCH = "scratch"  # thread-private memory of the executor: any constant size, 64-byte aligned
    STACK = "stack"  # alloca of constant size; becomes registers when every index is constant after unrolling


class ForKind(enum.StrEnum):
    """How the turns of a loop are run; of the last two the extent is a number."""

    SERIAL = "serial"  # one after the other
    UNROLLED = "unrolled"  # as straight code
    VECTORIZED = "vectorized"  # at once, each in a lane


@dataclass(frozen=True, eq=False)
class Buffer:
    """Typed memory; compared by identity. ``shape`` of SCRATCH and STACK buffers is constant.

    Elements are in row-major order. They follow each other without gaps, unless an ARGUMENT has ``strides``: its element
    ``[i, j]`` is then number ``i * strides[0] + j * strides[1]``.

    ``prefetch`` bytes ahead of what a contiguous vector load reads is asked of memory too (0: nothing).
    """

    name: str
    dtype: DType
    shape: tuple[Dim, ...]
    scope: BufferScope = BufferScope.ARGUMENT
    prefetch: int = 0
    strides: Strides | None = None


@dataclass(frozen=True, eq=False)
class BufferLoad(Expr):
    """The element at ``indices``, one for each axis of ``buffer``; lanes that ``mask`` leaves out are not read, and 0."""

    buffer: Buffer
    indices: tuple[Expr, ...]
    mask: Expr | None = None

    @property
    def dtype(self) -> DType:
        return self.buffer.dtype

    def children(self) -> tuple[Expr, ...]:
        return self.indices if self.mask is None else (*self.indices, self.mask)

    def with_children(self, children: tuple[Expr, ...]) -> BufferLoad:
        n = len(self.indices)
        return BufferLoad(self.buffer, children[:n], children[n] if len(children) > n else None)


@dataclass(frozen=True, eq=False)
class Ramp(Expr):
    """``base + stride * [0, 1, ..., lanes - 1]``; ``base`` and ``stride`` are scalar int64."""

    base: Expr
    stride: Expr
    lanes: int

    @property
    def dtype(self) -> DType:
        return DType.INT64

    def children(self) -> tuple[Expr, ...]:
        return (self.base, self.stride)

    def with_children(self, children: tuple[Expr, ...]) -> Ramp:
        base, stride = children
        return Ramp(base, stride, self.lanes)


@dataclass(frozen=True, eq=False)
class Broadcast(Expr):
    """A vector of ``lanes`` times the scalar ``x``."""

    x: Expr
    lanes: int

    @property
    def dtype(self) -> DType:
        return self.x.dtype

    def children(self) -> tuple[Expr, ...]:
        return (self.x,)

    def with_children(self, children: tuple[Expr, ...]) -> Broadcast:
        return Broadcast(children[0], self.lanes)


@dataclass(frozen=True, eq=False)
class VectorReduce(Expr):
    """The lanes of the vector ``x`` reduced by ``op`` to a scalar, in any order."""

    op: ReduceOp
    x: Expr

    @property
    def dtype(self) -> DType:
        return self.x.dtype

    def children(self) -> tuple[Expr, ...]:
        return (self.x,)

    def with_children(self, children: tuple[Expr, ...]) -> VectorReduce:
        return VectorReduce(self.op, children[0])


@dataclass(frozen=True, eq=False)
class Shuffle(Expr):
    """Lane ``i`` is lane ``order[i]`` of ``lhs`` followed by ``rhs``."""

    lhs: Expr
    rhs: Expr
    order: tuple[int, ...]

    @property
    def dtype(self) -> DType:
        return self.lhs.dtype

    def children(self) -> tuple[Expr, ...]:
        return (self.lhs, self.rhs)

    def with_children(self, children: tuple[Expr, ...]) -> Shuffle:
        lhs, rhs = children
        return Shuffle(lhs, rhs, self.order)


@dataclass(frozen=True, eq=False)
class VectorVar(Var):
    """A variable whose ``Let`` has a vector of ``lanes`` for its value."""

    lanes: int = 1


def lanes_of(expr: Expr) -> int:
    """1 for scalars, else the number of lanes."""
    stack, seen = [expr], set[Expr]()
    while stack:
        node = stack.pop()
        match node:
            case Ramp(lanes=lanes) | Broadcast(lanes=lanes) | VectorVar(lanes=lanes):
                return lanes  # all vectors of an expression have as many
            case Shuffle(order=order):
                return len(order)
            case VectorReduce() | Const() | Var():
                continue
        if node not in seen:
            seen.add(node)
            stack.extend(node.children())
    return 1


@dataclass(frozen=True, eq=False)
class Statement:
    """Base of every statement; compared by identity."""


@dataclass(frozen=True, eq=False)
class Block(Statement):
    """One statement after the other."""

    statements: tuple[Statement, ...]


@dataclass(frozen=True, eq=False)
class For(Statement):
    """``body`` for every ``var`` from 0 to below ``extent``, both int64."""

    var: Var
    extent: Expr
    kind: ForKind
    body: Statement


@dataclass(frozen=True, eq=False)
class If(Statement):
    """``then`` where the bool ``cond`` holds, else ``otherwise``, if there is one."""

    cond: Expr
    then: Statement
    otherwise: Statement | None = None


@dataclass(frozen=True, eq=False)
class Let(Statement):
    """``body``, in which ``var`` is ``value``, computed once."""

    var: Var
    value: Expr
    body: Statement


@dataclass(frozen=True, eq=False)
class Allocate(Statement):
    """``body``, which has the memory of ``buffer``; nothing is stored there at first."""

    buffer: Buffer
    body: Statement


@dataclass(frozen=True, eq=False)
class Store(Statement):
    """Puts ``value`` at ``indices`` of ``buffer``, one for each axis; lanes that ``mask`` leaves out stay as they are."""

    buffer: Buffer
    indices: tuple[Expr, ...]
    value: Expr
    mask: Expr | None = None


@dataclass(frozen=True, eq=False)
class Prefetch(Statement):
    """Asks cache ``level`` for the line of an element, which will be read soon; it may lie behind the end of the buffer."""

    buffer: Buffer
    indices: tuple[Expr, ...]
    level: int = 1


@dataclass(frozen=True, eq=False)
class Checkpoint(Statement):
    """Ends the function, with its work undone, where the run that it belongs to is to end; else no effect."""


@dataclass(frozen=True, eq=False)
class Function:
    """One kernel.

    Attributes:
        buffers: arguments in order; those stored to are outputs.
        symbols: int64 parameters in order.
        task: the variable of the parallel loop; ``body`` runs once per task.
        tasks: number of tasks, over ``symbols``.
    """

    name: str
    buffers: tuple[Buffer, ...]
    symbols: tuple[Var, ...]
    task: Var
    tasks: Dim
    body: Statement


def substatements(statement: Statement) -> tuple[Statement, ...]:
    """Direct parts of a statement, in order."""
    match statement:
        case Block(statements=statements):
            return statements
        case For(body=body) | Let(body=body) | Allocate(body=body):
            return (body,)
        case If(then=then, otherwise=otherwise):
            return (then,) if otherwise is None else (then, otherwise)
    return ()


def expressions_of(statement: Statement) -> tuple[Expr, ...]:
    """The expressions that stand directly in ``statement``."""
    match statement:
        case For(extent=extent):
            return (extent,)
        case If(cond=cond):
            return (cond,)
        case Let(value=value):
            return (value,)
        case Prefetch(indices=indices):
            return indices
        case Store(indices=indices, value=value, mask=mask):
            return (*indices, value) if mask is None else (*indices, value, mask)
    return ()


def walk_statements(root: Statement) -> Iterator[Statement]:
    """Every statement, parents before children."""
    stack = [root]
    while stack:
        node = stack.pop()
        yield node
        stack.extend(reversed(substatements(node)))


def stored_buffers(root: Statement) -> frozenset[Buffer]:
    """The buffers that ``root`` stores to."""
    return frozenset(s.buffer for s in walk_statements(root) if isinstance(s, Store))
