"""Where a loop function looks whether its run is to end: what takes more steps than there is memory is stopped inside."""

from __future__ import annotations

from compiler_service.compiler.loop_ir.ir import (
    Block,
    Checkpoint,
    For,
    ForKind,
    Statement,
    substatements,
    walk_statements,
)
from compiler_service.compiler.loop_ir.passes.rewrite import with_substatements
from shared_ir.expr import Const

_FEW_STEPS = 1024
"""So many steps are not looked between: with what they hold they are over in no time."""


def with_checkpoints(statement: Statement) -> Statement:
    """``statement`` with a checkpoint in its outermost loops of many steps that hold other loops of many steps."""
    if _is_long(statement):
        (body,) = substatements(statement)
        if any(_is_long(inner) for inner in walk_statements(body)):
            return with_substatements(statement, (Block((body, Checkpoint())),))
        return statement
    return with_substatements(statement, tuple(with_checkpoints(part) for part in substatements(statement)))


def _is_long(statement: Statement) -> bool:
    if not isinstance(statement, For) or statement.kind is not ForKind.SERIAL:
        return False
    return not (isinstance(statement.extent, Const) and statement.extent.value <= _FEW_STEPS)
