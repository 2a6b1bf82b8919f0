"""Rewriting of statements; parts that do not change stay the same objects."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from compiler_service.compiler.loop_ir.ir import (
    Allocate,
    Block,
    For,
    If,
    Let,
    Prefetch,
    Statement,
    Store,
    substatements,
)
from shared_ir.expr import Expr, Var, transform


def block(statements: Sequence[Statement]) -> Statement:
    """One statement for several; nested blocks are flattened."""
    flat: list[Statement] = []
    for statement in statements:
        if isinstance(statement, Block):
            flat.extend(statement.statements)
        else:
            flat.append(statement)
    return flat[0] if len(flat) == 1 else Block(tuple(flat))


def is_empty(statement: Statement) -> bool:
    """``pass``"""
    return isinstance(statement, Block) and not statement.statements


def with_substatements(statement: Statement, parts: tuple[Statement, ...]) -> Statement:
    """The same statement over other parts, in the order of :func:`substatements`."""
    if all(a is b for a, b in zip(parts, substatements(statement), strict=True)):
        return statement
    match statement:
        case Block():
            return block(parts)
        case For(var=var, extent=extent, kind=kind):
            return For(var, extent, kind, parts[0])
        case Let(var=var, value=value):
            return Let(var, value, parts[0])
        case Allocate(buffer=buffer):
            return Allocate(buffer, parts[0])
        case If(cond=cond):
            return If(cond, parts[0], parts[1] if len(parts) == 2 else None)
    return statement


def with_expressions(statement: Statement, rule: Callable[[Expr], Expr]) -> Statement:
    """``rule`` applied to the expressions that stand directly in ``statement``."""
    match statement:
        case For(var=var, extent=extent, kind=kind, body=body):
            new = rule(extent)
            return statement if new is extent else For(var, new, kind, body)
        case Let(var=var, value=value, body=body):
            new = rule(value)
            return statement if new is value else Let(var, new, body)
        case If(cond=cond, then=then, otherwise=otherwise):
            new = rule(cond)
            return statement if new is cond else If(new, then, otherwise)
        case Store(buffer=buffer, indices=indices, value=value, mask=mask):
            positions = tuple([rule(index) for index in indices])
            new = rule(value)
            where = None if mask is None else rule(mask)
            if new is value and where is mask and all(a is b for a, b in zip(positions, indices, strict=True)):
                return statement
            return Store(buffer, positions, new, where)
        case Prefetch(buffer=buffer, indices=indices, level=level):
            positions = tuple([rule(index) for index in indices])
            return statement if positions == indices else Prefetch(buffer, positions, level)
    return statement


def map_expressions(statement: Statement, rule: Callable[[Expr], Expr]) -> Statement:
    """``rule`` applied to every expression of ``statement`` and of the statements inside it."""
    parts = tuple([map_expressions(part, rule) for part in substatements(statement)])
    return with_expressions(with_substatements(statement, parts), rule)


def substituted(statement: Statement, values: Mapping[Var, Expr]) -> Statement:
    """``statement`` with free variables replaced."""
    memo: dict[Expr, Expr] = {}

    def lookup(expr: Expr) -> Expr | None:
        return values.get(expr) if isinstance(expr, Var) else None

    return map_expressions(statement, lambda expr: transform(expr, lookup, memo))
