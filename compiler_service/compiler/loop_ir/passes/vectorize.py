"""Replace VECTORIZED loops by vector expressions.

::

    for v in 0..16 vectorized:
        y[i, v] = x[i, v] * s[i]      ->    y[i, 0:16] = x[i, 0:16] * splat(s[i], 16)

What depends on the loop variable becomes a vector, everything else stays scalar. Conditions that depend on it become
masks, so that a lane whose condition fails neither loads nor stores. A reduction into one location becomes horizontal::

    for v in 0..16 vectorized:
        acc[0] = acc[0] + x[v]        ->    acc[0] = acc[0] + reduce.sum(x[0:16])

Memory allocated inside the loop gets a trailing axis with a place for every lane.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from compiler_service.compiler.loop_ir.ir import (
    Allocate,
    Block,
    BufferLoad,
    For,
    ForKind,
    Function,
    If,
    Let,
    Prefetch,
    Ramp,
    Statement,
    Store,
    VectorReduce,
    VectorVar,
    substatements,
    walk_statements,
)
from compiler_service.compiler.loop_ir.passes.faults import fault
from compiler_service.compiler.loop_ir.passes.lane_expressions import LaneExpressions
from compiler_service.compiler.loop_ir.passes.reductions import Accumulation, accumulation
from compiler_service.compiler.loop_ir.passes.rewrite import block, substituted, with_substatements
from compiler_service.compiler.tensor_expr.tensor import ReduceOp, identity_of
from shared_ir.dtype import DType
from shared_ir.expr import Binary, Const, Expr, Select, Unary, UnaryOp, Var, lift, walk


def vectorize(function: Function) -> Function:
    """The same function without VECTORIZED loops.

    Raises:
        IngotError: COMPILER_FAULT, a loop whose extent is not constant or whose body has no vector form.
    """
    if not any(isinstance(s, For) and s.kind is ForKind.VECTORIZED for s in walk_statements(function.body)):
        return function
    return replace(function, body=_Loops(function).rewrite(function.body))


@dataclass
class _Loops:
    """Finds the VECTORIZED loops; loops of one variable (copies made by unrolling) share what was rewritten."""

    function: Function
    vectorizers: dict[tuple[Var, int], _Vectorizer] = field(default_factory=dict)

    def rewrite(self, statement: Statement) -> Statement:
        if isinstance(statement, For) and statement.kind is ForKind.VECTORIZED:
            return self.vectorized(statement)
        parts = tuple([self.rewrite(part) for part in substatements(statement)])
        return with_substatements(statement, parts)

    def vectorized(self, loop: For) -> Statement:
        if not isinstance(loop.extent, Const):
            fault(self.function, loop, f"extent of the vectorized loop {loop.var.name}", "a constant", loop.extent)
        lanes = int(loop.extent.value)
        if lanes == 0:
            return Block(())
        if lanes == 1:
            return self.rewrite(substituted(loop.body, {loop.var: Const(0)}))
        vectorizer = self.vectorizers.get((loop.var, lanes))
        if vectorizer is None:
            vectorizer = self.vectorizers[loop.var, lanes] = _Vectorizer(self.function, loop.var, lanes)
        return vectorizer.statement(loop.body)


class _Vectorizer(LaneExpressions):
    """Rewrites the body of one vectorized loop."""

    def statement(self, statement: Statement) -> Statement:
        if isinstance(statement, Block):
            return block([self.statement(s) for s in statement.statements])
        self.where = statement
        match statement:
            case For(var=var, kind=ForKind.SERIAL | ForKind.UNROLLED as kind):
                extent = self.scalar(statement.extent, "extent")
                return For(var, extent, kind, self.statement(statement.body))
            case If():
                return self.branch(statement)
            case Let():
                return self.let(statement)
            case Allocate(buffer=buffer, body=body):
                if buffer not in self.expanded:
                    self.expanded[buffer] = replace(buffer, shape=(*buffer.shape, self.lanes))
                return Allocate(self.expanded[buffer], self.statement(body))
            case Store():
                return self.store(statement)
            case Prefetch(buffer=buffer, indices=indices, level=level):
                return Prefetch(buffer, tuple([self.scalar(index, "a prefetched index") for index in indices]), level)
        return self.fault("statement in the loop", "no vectorized loop", type(statement).__name__)

    def let(self, let: Let) -> Statement:
        value, is_vector = self.expr(let.value)
        if not is_vector:
            self.bind(let.var, None)
            return Let(let.var, value, self.statement(let.body))
        if isinstance(value, Ramp) and not _loads(value):
            self.bind(let.var, value)  # repeating index arithmetic keeps accesses contiguous
            return self.statement(let.body)
        own = VectorVar(let.var.name, let.var.dtype, self.lanes)
        self.bind(let.var, own)
        return Let(own, value, self.statement(let.body))

    # -- conditions

    def branch(self, statement: If) -> Statement:
        both = self.split(statement.cond) if statement.otherwise is None else None
        if both is not None:
            scalar, vector = both
            return self.branch(If(scalar, If(vector, statement.then)))
        cond, is_vector = self.expr(statement.cond)
        if not is_vector:
            then = self.statement(statement.then)
            return If(cond, then, None if statement.otherwise is None else self.statement(statement.otherwise))
        if not _loads(cond):
            return self.masked_branch(cond, statement)
        var = VectorVar(f"{self.var.name}_mask", DType.BOOL, self.lanes)
        if self.mask is not None:
            self.fault("condition inside a condition on lanes", "no loads in it", statement.cond)
        return Let(var, cond, self.masked_branch(var, statement))  # the branches may store to what it loads

    def masked_branch(self, cond: Expr, statement: If) -> Statement:
        then = self.masked_statement(cond, statement.then)
        if statement.otherwise is None:
            return then
        return block([then, self.masked_statement(Unary(UnaryOp.NOT, cond), statement.otherwise)])

    def masked_statement(self, cond: Expr, statement: Statement) -> Statement:
        mask = self.combined(cond)
        outer = self.guard, self.guard_used
        self.guard, self.guard_used = mask, False
        with self.masked(mask):
            body = self.statement(statement)
        if self.guard_used:
            body = If(VectorReduce(ReduceOp.OR, mask), body)
        self.guard, self.guard_used = outer
        return body

    # -- stores

    def store(self, store: Store) -> Statement:
        buffer, indices, is_vector = self.address(store.buffer, store.indices)
        if is_vector:
            return Store(buffer, indices, self.vector(store.value), self.own_mask(store.mask))
        found = accumulation(store)
        if found is not None:
            return self.if_any_lane(Store(buffer, indices, self.accumulated(BufferLoad(buffer, indices), found)))
        value, differs = self.expr(store.value)
        if differs or store.mask is not None:
            self.fault("value stored to one location", "a reduction, or one value for all lanes", store.value)
        if any(isinstance(e, BufferLoad) and e.buffer is store.buffer for e in walk(value)):
            self.fault("value stored to one location", "a reduction, or independent of the location", store.value)
        return self.if_any_lane(Store(buffer, indices, value))

    def accumulated(self, location: BufferLoad, found: Accumulation) -> Expr:
        operands = self.vector(found.operand)
        if self.mask is not None:
            identity = lift(identity_of(found.op, operands.dtype), operands.dtype)
            operands = Select(self.mask, operands, self.splat(identity, False))
        return Binary(found.combine, location, VectorReduce(found.op, operands))

    def if_any_lane(self, statement: Statement) -> Statement:
        if self.mask is None:
            return statement
        if self.mask is self.guard:
            self.guard_used = True
            return statement
        return If(VectorReduce(ReduceOp.OR, self.mask), statement)


def _loads(expr: Expr) -> bool:
    return any(isinstance(e, BufferLoad) for e in walk(expr))
