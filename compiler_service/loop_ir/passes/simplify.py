"""Integer expressions in normal form, decided conditions taken, trivial loops removed.

::

    for i in 0..1:
        if i < 4:                      ->    y[j // 4] = x[j // 4]        for j in [0, 16)
            y[i * 4 + j // 4 % 4] = x[(j + 0) // 4]
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from compiler_service.loop_ir.ir import (
    Allocate,
    Block,
    Broadcast,
    For,
    Function,
    If,
    Let,
    Statement,
    Store,
    VectorVar,
)
from compiler_service.loop_ir.passes.algebra import Algebra
from compiler_service.loop_ir.passes.rewrite import block, is_empty, with_expressions
from shared_ir.dtype import DType
from shared_ir.expr import Const, Expr, Var, lift, transform
from shared_ir.simplify import Interval

_NOTHING = Block(())


def simplify(function: Function) -> Function:
    """The same function with simpler expressions and without statements that do nothing."""
    simplifier = _Simplifier()
    tasks = simplifier.algebra(lift(function.tasks))
    simplifier.algebra.bind(function.task.name, _below(simplifier.algebra.interval(tasks)))
    return replace(function, body=simplifier.statement(function.body))


@dataclass
class _Simplifier:
    algebra: Algebra = field(default_factory=Algebra)
    known: dict[Var, Expr] = field(default_factory=dict)
    """Variables of trivial loops and lets, by what they stand for."""
    _replaced: dict[Expr, Expr] = field(default_factory=dict)

    def expr(self, expr: Expr) -> Expr:
        if self.known:
            expr = transform(expr, lambda e: self.known.get(e) if isinstance(e, Var) else None, self._replaced)
        return self.algebra(expr)

    def stands_for(self, var: Var, value: Expr) -> None:
        self.known[var] = value
        self._replaced.clear()

    def forget(self, var: Var) -> None:
        """A name that stood for something is bound anew."""
        if self.known.pop(var, None) is not None:
            self._replaced.clear()

    def statement(self, statement: Statement) -> Statement:
        match statement:
            case Block(statements=statements):
                return block([part for s in statements if not is_empty(part := self.statement(s))])
            case For():
                return self.loop(statement)
            case If():
                return self.branch(statement)
            case Let():
                return self.let(statement)
            case Allocate(buffer=buffer, body=body):
                new = self.statement(body)
                return statement if new is body else _NOTHING if is_empty(new) else Allocate(buffer, new)
            case Store():
                return self.store(statement)
        return statement

    def loop(self, loop: For) -> Statement:
        extent = self.expr(loop.extent)
        low, high = self.algebra.interval(extent)
        if high is not None and high <= 0:
            return _NOTHING
        if low == high == 1:
            self.stands_for(loop.var, Const(0))
            return self.statement(loop.body)
        self.forget(loop.var)
        self.algebra.bind(loop.var.name, _below((low, high)))
        body = self.statement(loop.body)
        return _NOTHING if is_empty(body) else For(loop.var, extent, loop.kind, body)

    def branch(self, statement: If) -> Statement:
        cond = self.expr(statement.cond)
        if isinstance(cond, Const):
            taken = statement.then if cond.value else statement.otherwise
            return _NOTHING if taken is None else self.statement(taken)
        then = self.statement(statement.then)
        otherwise = None if statement.otherwise is None else self.statement(statement.otherwise)
        if otherwise is not None and is_empty(otherwise):
            otherwise = None
        return _NOTHING if is_empty(then) and otherwise is None else If(cond, then, otherwise)

    def let(self, let: Let) -> Statement:
        value = self.expr(let.value)
        if isinstance(value, Const | Var):
            self.stands_for(let.var, value)
            return self.statement(let.body)
        self.forget(let.var)
        if let.var.dtype is DType.INT64 and not isinstance(let.var, VectorVar):
            self.algebra.bind(let.var.name, self.algebra.interval(value))
        body = self.statement(let.body)
        return _NOTHING if is_empty(body) else Let(let.var, value, body)

    def store(self, store: Store) -> Statement:
        new = with_expressions(store, self.expr)
        mask = new.mask if isinstance(new, Store) else None
        if isinstance(mask, Broadcast):
            mask = mask.x
        if isinstance(mask, Const) and isinstance(new, Store):
            return replace(new, mask=None) if mask.value else _NOTHING
        return new


def _below(extent: Interval) -> Interval:
    """Bounds of the variable of a loop that runs at least once."""
    _, high = extent
    return 0, None if high is None else max(high - 1, 0)
