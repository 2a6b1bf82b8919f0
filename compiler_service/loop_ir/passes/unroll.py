"""Replicate the bodies of UNROLLED loops.

::

    for i in 0..2 unrolled:            acc[0] = x[m * 2]
        acc[i] = x[m * 2 + i]    ->    acc[1] = x[m * 2 + 1]

The binders of each copy get names of their own (the second copy of ``k`` is ``k_1``), but for the variables of
VECTORIZED loops, which the next pass removes. Copies share the sub-expressions that do not mention what distinguishes
them, so a tile of R x C statements costs about R + C index rewrites.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from compiler_service.loop_ir.ir import (
    Allocate,
    Block,
    For,
    ForKind,
    Function,
    If,
    Let,
    Statement,
    Store,
    walk_statements,
)
from compiler_service.loop_ir.passes.faults import fault
from shared_ir.expr import Const, Expr, Var

Environment = dict[Var, Expr]


def unroll(function: Function) -> Function:
    """The same function without UNROLLED loops.

    Raises:
        IngotError: COMPILER_FAULT, the extent of an unrolled loop is not constant.
    """
    loops = [s for s in walk_statements(function.body) if isinstance(s, For) and s.kind is ForKind.UNROLLED]
    if not loops:
        return function
    return replace(function, body=_block(_Unroller(function).expand(function.body, {})))


@dataclass
class _Unroller:
    function: Function
    names: set[str] = field(default_factory=set)
    _mentions: dict[int, tuple[Var, ...]] = field(default_factory=dict)
    _copies: dict[tuple[int, tuple[Expr | None, ...]], Expr] = field(default_factory=dict)
    _kept: list[Expr] = field(default_factory=list)
    """Expressions whose ``id`` is a key above: alive, so that an id means one expression."""

    def __post_init__(self) -> None:
        self.names |= {v.name for v in (*self.function.symbols, self.function.task)}

    # -- statements

    def expand(self, statement: Statement, env: Environment) -> Iterator[Statement]:
        match statement:
            case Block(statements=statements):
                for inner in statements:
                    yield from self.expand(inner, env)
            case For(var=var, kind=ForKind.UNROLLED, body=body):
                for index in range(self.trip_count(statement, env)):
                    yield from self.expand(body, env | {var: Const(index)})
            case For(var=var, extent=extent, kind=kind, body=body):
                own, inner_env = (var, env) if kind is ForKind.VECTORIZED else self.bound(var, env)
                yield For(own, self.expr(extent, env), kind, self.body(body, inner_env))
            case If(cond=cond, then=then, otherwise=otherwise):
                yield from self.branch(self.expr(cond, env), then, otherwise, env)
            case Let(var=var, value=value, body=body):
                yield from self.let(var, self.expr(value, env), body, env)
            case Allocate(buffer=buffer, body=body):
                yield Allocate(buffer, self.body(body, env))
            case Store():
                yield self.store(statement, env)

    def body(self, statement: Statement, env: Environment) -> Statement:
        return _block(self.expand(statement, env))

    def trip_count(self, loop: For, env: Environment) -> int:
        extent = self.expr(loop.extent, env)
        if not isinstance(extent, Const):
            fault(self.function, loop, f"extent of the unrolled loop {loop.var.name}", "a constant", extent)
        return int(extent.value)

    def branch(self, cond: Expr, then: Statement, otherwise: Statement | None, env: Environment) -> Iterator[Statement]:
        if isinstance(cond, Const):
            taken = then if cond.value else otherwise
            if taken is not None:
                yield from self.expand(taken, env)
            return
        yield If(cond, self.body(then, env), None if otherwise is None else self.body(otherwise, env))

    def let(self, var: Var, value: Expr, body: Statement, env: Environment) -> Iterator[Statement]:
        if isinstance(value, Const):
            yield from self.expand(body, env | {var: value})
            return
        own, inner_env = self.bound(var, env)
        yield Let(own, value, self.body(body, inner_env))

    def bound(self, var: Var, env: Environment) -> tuple[Var, Environment]:
        """The binder of this copy: its own name where an earlier copy has taken the old one."""
        name, count = var.name, 0
        while name in self.names:
            count += 1
            name = f"{var.name}_{count}"
        self.names.add(name)
        own = var if count == 0 else replace(var, name=name)
        return own, env if own is var else env | {var: own}

    def store(self, store: Store, env: Environment) -> Store:
        indices = tuple([self.expr(index, env) for index in store.indices])
        mask = None if store.mask is None else self.expr(store.mask, env)
        return Store(store.buffer, indices, self.expr(store.value, env), mask)

    # -- expressions

    def expr(self, expr: Expr, env: Environment) -> Expr:
        if not env:
            return expr
        values = tuple([env.get(v) for v in self.mentions(expr)])
        if all(v is None for v in values):
            return expr
        key = (id(expr), values)
        found = self._copies.get(key)
        if found is None:
            found = self._copies[key] = self.copy(expr, env)
        return found

    def copy(self, expr: Expr, env: Environment) -> Expr:
        if isinstance(expr, Var):
            return env[expr]
        return expr.with_children(tuple([self.expr(child, env) for child in expr.children()]))

    def mentions(self, expr: Expr) -> tuple[Var, ...]:
        """The variables of ``expr``, each once."""
        found = self._mentions.get(id(expr))
        if found is None:
            self._kept.append(expr)
            own = (expr,) if isinstance(expr, Var) else ()
            found = tuple(dict.fromkeys((*own, *(v for child in expr.children() for v in self.mentions(child)))))
            self._mentions[id(expr)] = found
        return found


def _block(statements: Iterator[Statement]) -> Statement:
    parts = tuple(statements)
    return parts[0] if len(parts) == 1 else Block(parts)
