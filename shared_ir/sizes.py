"""Dims as integers for one set of input shapes, as the generated entry computes them."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping

from shared_ir.errors import ErrorCode, IngotError
from shared_ir.expr import Binary, BinaryOp, Const, Expr, Select, Var, to_text
from shared_ir.expr.operations import INTEGER_MEANING


def _truncated(a: int, b: int) -> int:
    quotient = abs(a) // abs(b or 1)
    return quotient if (a < 0) == (b < 0) else -quotient


_ARITHMETIC: Mapping[BinaryOp, Callable[[int, int], int]] = {
    **INTEGER_MEANING,
    BinaryOp.FLOOR_DIV: lambda a, b: a // (b or 1),  # a divisor of 0 counts as 1
    BinaryOp.FLOOR_MOD: lambda a, b: a % (b or 1),
    BinaryOp.TRUNC_DIV: _truncated,
    BinaryOp.TRUNC_MOD: lambda a, b: a - _truncated(a, b) * (b or 1),
    BinaryOp.AND: operator.and_,
    BinaryOp.OR: operator.or_,
}


_BEYOND = 1 << 63


class Sizes:
    """Values of dims; equal subexpressions are evaluated once."""

    def __init__(self, symbols: Mapping[str, int]) -> None:
        self._symbols = symbols
        self._known: dict[Expr, int] = {}

    def value(self, dim: int | Expr) -> int:
        """The integer that ``dim`` stands for.

        Raises:
            IngotError: ARTIFACT_CORRUPT, an unknown symbol or operator; RESOURCE_EXHAUSTED, an int64 does not hold it.
        """
        if isinstance(dim, int):
            return dim
        stack: list[Expr] = [] if dim in self._known else [dim]
        while stack:
            expr = stack[-1]
            missing = [part for part in self._needed(expr) if part not in self._known]
            if missing:
                stack += missing
            else:
                self._known[stack.pop()] = self._compute(expr)
        found = self._known[dim]
        if not -_BEYOND <= found < _BEYOND:
            raise IngotError(
                ErrorCode.RESOURCE_EXHAUSTED,
                "the model needs more memory than there is for these inputs",
                expected="sizes below 2^63",
                received=f"{to_text(dim)} is {found}",
            )
        return found

    def _needed(self, expr: Expr) -> tuple[Expr, ...]:
        """What must be known before ``expr``: of a selection the condition, then the part that it chooses."""
        if not isinstance(expr, Select):
            return expr.children()
        if expr.cond not in self._known:
            return (expr.cond,)
        return (expr.then if self._known[expr.cond] else expr.otherwise,)

    def _compute(self, expr: Expr) -> int:
        """The value of ``expr``, whose parts are known."""
        match expr:
            case Const(value=number):
                return int(number)
            case Var(name=name) if name in self._symbols:
                return self._symbols[name]
            case Binary(op=op, lhs=lhs, rhs=rhs) if op in _ARITHMETIC:
                return int(_ARITHMETIC[op](self._known[lhs], self._known[rhs]))
            case Select():
                return self._known[self._needed(expr)[0]]
        raise IngotError(ErrorCode.ARTIFACT_CORRUPT, f"the plan has a size that cannot be evaluated: {to_text(expr)}")
