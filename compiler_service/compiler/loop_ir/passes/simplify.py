"""Integer expressions in normal form, decided conditions taken, trivial loops removed.

::

    for i in 0..1:
        if i < 4:                      ->    y[j // 4] = x[j // 4]        for j in [0, 16)
            y[i * 4 + j // 4 % 4] = x[(j + 0) // 4]
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from compiler_service.compiler.loop_ir.ir import (
    Allocate,
    Block,
    Broadcast,
    BufferLoad,
    For,
    Function,
    If,
    Let,
    Prefetch,
    Statement,
    Store,
    VectorVar,
)
from compiler_service.compiler.loop_ir.passes.algebra import Algebra
from compiler_service.compiler.loop_ir.passes.rewrite import block, is_empty
from shared_ir.dtype import DType
from shared_ir.expr import Binary, Cast, Const, Expr, Unary, Var, lift, substitute
from shared_ir.expr.simplify import Interval

Environment = dict[Var, Expr]
"""What stands for variables in a statement: of trivial loops and lets, of unrolled loops, of binders that got another name."""

_NOTHING = Block(())
_PLAIN = frozenset({Binary, Unary, Cast, Broadcast})
"""Floating-point nodes with nothing to simplify but their children."""


def simplify(function: Function) -> Function:
    """The same function with simpler expressions and without statements that do nothing."""
    return StatementSimplifier(function).run()


@dataclass
class StatementSimplifier:
    """Simplifies statements under what is known of their variables.

    A binder whose name is taken gets one of its own (the second ``k`` is ``k_1``): a name then has one range.
    """

    function: Function
    algebra: Algebra = field(default_factory=Algebra)
    names: set[str] = field(default_factory=set)
    _copies: dict[tuple[Expr, tuple[Expr | None, ...]], Expr] = field(default_factory=dict)
    """Expressions by what stands for each of their variables: copies of a statement share what does not differ between them."""

    def run(self) -> Function:
        function = self.function
        self.names |= {v.name for v in (*function.symbols, function.task)}
        tasks = self.algebra(lift(function.tasks))
        self.algebra.bind(function.task.name, _below(self.algebra.interval(tasks)))
        body = self.statement(function.body, {})
        return function if body is function.body else replace(function, body=body)

    # -- statements

    def statement(self, statement: Statement, env: Environment) -> Statement:
        match statement:
            case Store():
                return self.store(statement, env)
            case Prefetch(buffer=buffer, indices=indices, level=level):
                return Prefetch(buffer, tuple([self.expr(index, env) for index in indices]), level)
            case Block(statements=statements):
                parts = [part for s in statements if not is_empty(part := self.statement(s, env))]
                return statement if tuple(parts) == statements else block(parts)
            case For():
                return self.loop(statement, env)
            case If():
                return self.branch(statement, env)
            case Let():
                return self.let(statement, env)
            case Allocate(buffer=buffer, body=body):
                new = self.statement(body, env)
                return statement if new is body else _NOTHING if is_empty(new) else Allocate(buffer, new)
        return statement

    def loop(self, loop: For, env: Environment) -> Statement:
        extent = self.expr(loop.extent, env)
        low, high = self.algebra.interval(extent)
        if high is not None and high <= 0:
            return _NOTHING
        if low == high == 1:
            return self.statement(loop.body, env | {loop.var: Const(0)})
        var, inside = self.bound(loop.var, env)
        self.algebra.bind(var.name, _below((low, high)))
        body = self.statement(loop.body, inside)
        if is_empty(body):
            return _NOTHING
        same = body is loop.body and extent is loop.extent and var is loop.var
        return loop if same else For(var, extent, loop.kind, body)

    def branch(self, statement: If, env: Environment) -> Statement:
        cond = self.expr(statement.cond, env)
        if isinstance(cond, Const):
            taken = statement.then if cond.value else statement.otherwise
            return _NOTHING if taken is None else self.statement(taken, env)
        then = self.statement(statement.then, env)
        otherwise = None if statement.otherwise is None else self.statement(statement.otherwise, env)
        if otherwise is not None and is_empty(otherwise):
            otherwise = None
        if is_empty(then) and otherwise is None:
            return _NOTHING
        same = cond is statement.cond and then is statement.then and otherwise is statement.otherwise
        return statement if same else If(cond, then, otherwise)

    def let(self, let: Let, env: Environment) -> Statement:
        value = self.expr(let.value, env)
        if isinstance(value, Const | Var):
            return self.statement(let.body, env | {let.var: value})
        var, inside = self.bound(let.var, env)
        if var.dtype is DType.INT64 and not isinstance(var, VectorVar):
            self.algebra.bind(var.name, self.algebra.interval(value))
        body = self.statement(let.body, inside)
        if is_empty(body):
            return _NOTHING
        same = body is let.body and value is let.value and var is let.var
        return let if same else Let(var, value, body)

    def bound(self, var: Var, env: Environment) -> tuple[Var, Environment]:
        """The binder of this copy: its own name where an earlier copy has taken the old one."""
        name, count = var.name, 0
        while name in self.names:
            count += 1
            name = f"{var.name}_{count}"
        self.names.add(name)
        if count == 0:
            return var, {k: v for k, v in env.items() if k is not var} if var in env else env
        own = replace(var, name=name)
        return own, env | {var: own}

    def store(self, store: Store, env: Environment) -> Statement:
        indices = tuple([self.expr(index, env) for index in store.indices])
        value = self.expr(store.value, env)
        mask = None if store.mask is None else self.expr(store.mask, env)
        known = mask.x if isinstance(mask, Broadcast) else mask
        if isinstance(known, Const):
            if not known.value:
                return _NOTHING
            mask = None
        if value is store.value and mask is store.mask and indices == store.indices:
            return store
        return Store(store.buffer, indices, value, mask)

    # -- expressions

    def expr(self, expr: Expr, env: Environment) -> Expr:
        """``expr`` in normal form where ``env`` says what stands for its variables."""
        values = tuple([env.get(v) for v in expr.variables]) if env else ()
        if values.count(None) == len(values):
            return self.algebra(expr)
        key = (expr, values)
        found = self._copies.get(key)
        if found is None:
            found = self._copies[key] = self._copy(expr, env)
        return found

    def _copy(self, expr: Expr, env: Environment) -> Expr:
        if isinstance(expr, Var):
            return env[expr]
        if not expr.dtype.is_float:
            return self.algebra(substitute(expr, env))
        if type(expr) is BufferLoad:
            indices = tuple([self.expr(index, env) for index in expr.indices])
            if expr.mask is None:
                return BufferLoad(expr.buffer, indices)
            return self.algebra(BufferLoad(expr.buffer, indices, self.expr(expr.mask, env)))
        new = expr.with_children(tuple([self.expr(child, env) for child in expr.children()]))
        return new if type(expr) in _PLAIN else self.algebra(new)


def _below(extent: Interval) -> Interval:
    """Bounds of the variable of a loop that runs at least once."""
    _, high = extent
    return 0, None if high is None else max(high - 1, 0)
