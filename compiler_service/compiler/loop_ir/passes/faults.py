"""The error of a pass that meets a program it cannot handle: a bug of the compiler, located."""

from __future__ import annotations

from typing import NoReturn

from compiler_service.compiler.loop_ir.ir import Function, Statement
from compiler_service.compiler.loop_ir.text import expression_text, statement_head
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.expr import Expr


def fault(function: Function, statement: Statement, message: str, expected: str, received: Expr | str) -> NoReturn:
    """Raise COMPILER_FAULT; ``node`` is the function, ``field`` the first line of the statement."""
    raise IngotError(
        ErrorCode.COMPILER_FAULT,
        message,
        node=function.name,
        field=statement_head(statement),
        expected=expected,
        received=expression_text(received) if isinstance(received, Expr) else received,
    )
