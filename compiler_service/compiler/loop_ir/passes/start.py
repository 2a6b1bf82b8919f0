"""A reduction in straight code starts from its first operand instead of the identity.

::

    m[0:16] = splat(-inf, 16)                       m[0:16] = x[0:16]
    m[0:16] = max(m[0:16], x[0:16])        ->       m[0:16] = max(m[0:16], x[16:32])
    m[0:16] = max(m[0:16], x[16:32])

Of 0 + x only the sign of a zero changes: a sum of nothing but -0 is -0, as numpy has it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from compiler_service.compiler.loop_ir.ir import (
    Allocate,
    Block,
    Broadcast,
    Buffer,
    BufferLoad,
    BufferScope,
    Function,
    Ramp,
    Statement,
    Store,
    expressions_of,
    stored_buffers,
    substatements,
    walk_statements,
)
from compiler_service.compiler.loop_ir.passes.rewrite import block, with_substatements
from compiler_service.compiler.tensor_expr.tensor import ReduceOp, identity_of
from shared_ir.expr import Binary, BinaryOp, Const, Expr, walk

_REDUCTIONS = {
    BinaryOp.ADD: ReduceOp.SUM,
    BinaryOp.MUL: ReduceOp.PROD,
    BinaryOp.MIN: ReduceOp.MIN,
    BinaryOp.MAX: ReduceOp.MAX,
    BinaryOp.MAX_NUMBER: ReduceOp.MAX_NUMBER,
    BinaryOp.AND: ReduceOp.AND,
    BinaryOp.OR: ReduceOp.OR,
}


def start(function: Function) -> Function:
    """The same function without identities that the next statement takes up."""
    body = _statement(function.body)
    return function if body is function.body else replace(function, body=body)


def _statement(statement: Statement) -> Statement:
    if isinstance(statement, Block):
        return _Straight().run(statement)
    return with_substatements(statement, tuple([_statement(part) for part in substatements(statement)]))


@dataclass(frozen=True)
class _Identity:
    """A constant stored to a place that nothing has touched since; ``at`` is the position of the store."""

    place: Store
    number: Const
    at: int


class _Straight:
    """The statements of one block."""

    def __init__(self) -> None:
        self.pending: list[_Identity] = []
        self.done: list[Statement | None] = []

    def run(self, whole: Block) -> Statement:
        for statement in whole.statements:
            self.done.append(self._step(statement))
        kept = [s for s in self.done if s is not None]
        same = len(kept) == len(whole.statements) and all(a is b for a, b in zip(kept, whole.statements, strict=True))
        return whole if same else block(kept)

    def _step(self, statement: Statement) -> Statement:
        if not isinstance(statement, Store):
            if self.pending:
                touched = _touched(statement)
                self.pending = [p for p in self.pending if p.place.buffer not in touched]
            return _statement(statement)
        operand = self._first_operand(statement) if self.pending else None
        if self.pending:
            used: list[Store | BufferLoad] = [statement, *_loads(statement)]
            self.pending = [p for p in self.pending if all(_apart(p.place, place) for place in used)]
        if operand is not None:
            return Store(statement.buffer, statement.indices, operand)
        number = statement.value.x if isinstance(statement.value, Broadcast) else statement.value
        if isinstance(number, Const) and statement.mask is None and statement.buffer.scope is BufferScope.STACK:
            self.pending.append(_Identity(statement, number, len(self.done)))
        return statement

    def _first_operand(self, store: Store) -> Expr | None:
        """What is combined with an identity stored before, whose store is dropped."""
        value = store.value
        if not isinstance(value, Binary) or value.op not in _REDUCTIONS or store.mask is not None:
            return None
        if value.lhs is not BufferLoad(store.buffer, store.indices) or store.buffer in _buffers(value.rhs):
            return None
        identity = identity_of(_REDUCTIONS[value.op], value.dtype)
        for found in self.pending:
            place = found.place
            if place.buffer is store.buffer and place.indices == store.indices and found.number.value == identity:
                self.done[found.at] = None
                return value.rhs
        return None


def _loads(statement: Statement) -> list[BufferLoad]:
    return [e for own in expressions_of(statement) for e in walk(own) if isinstance(e, BufferLoad)]


def _buffers(expr: Expr) -> set[Buffer]:
    return {e.buffer for e in walk(expr) if isinstance(e, BufferLoad)}


def _touched(statement: Statement) -> set[Buffer]:
    inside = {e.buffer for s in walk_statements(statement) for e in _loads(s)}
    own = {s.buffer for s in walk_statements(statement) if isinstance(s, Allocate)}
    return inside | own | stored_buffers(statement)


def _apart(one: Store, other: Store | BufferLoad) -> bool:
    """They are certainly different elements."""
    if one.buffer is not other.buffer:
        return True
    first, second = _extent(one), _extent(other)
    return first is not None and second is not None and (first[1] <= second[0] or second[1] <= first[0])


def _extent(place: Store | BufferLoad) -> tuple[int, int] | None:
    """First element and the one behind the last, where they are constant."""
    match place.indices:
        case (Const(value=value),):
            return int(value), int(value) + 1
        case (Ramp(base=Const(value=value), stride=Const(value=1), lanes=lanes),):
            return int(value), int(value) + lanes
    return None
