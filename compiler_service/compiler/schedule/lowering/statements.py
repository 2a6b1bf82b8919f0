"""Statements put together."""

from __future__ import annotations

from compiler_service.compiler.loop_ir.ir import Block, If, Statement
from shared_ir.expr import Const, Expr


def block(*statements: Statement) -> Statement:
    """The statements in a row, blocks among them flattened."""
    flat: list[Statement] = []
    for statement in statements:
        flat.extend(statement.statements if isinstance(statement, Block) else (statement,))
    return flat[0] if len(flat) == 1 else Block(tuple(flat))


def guard(cond: Expr, body: Statement) -> Statement:
    """``body`` where ``cond`` holds."""
    if isinstance(cond, Const):
        return body if cond.value else Block(())
    return If(cond, body)
