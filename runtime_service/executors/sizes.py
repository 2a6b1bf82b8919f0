"""Dims as integers for one set of input shapes, as the generated entry computes them."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping

from shared_ir.dim import Dim
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.expr import Binary, BinaryOp, Const, Expr, Select, Var, to_text
from shared_ir.operations import INTEGER_MEANING


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


class Sizes:
    """Values of dims; equal subexpressions are evaluated once."""

    def __init__(self, symbols: Mapping[str, int]) -> None:
        self._symbols = symbols
        self._known: dict[Expr, int] = {}

    def value(self, dim: Dim) -> int:
        """The integer that ``dim`` stands for.

        Raises:
            IngotError: ARTIFACT_CORRUPT, an unknown symbol or operator.
        """
        if isinstance(dim, int):
            return dim
        found = self._known.get(dim)
        if found is None:
            self._known[dim] = found = self._compute(dim)
        return found

    def _compute(self, expr: Expr) -> int:
        match expr:
            case Const(value=number):
                return int(number)
            case Var(name=name) if name in self._symbols:
                return self._symbols[name]
            case Binary(op=op, lhs=lhs, rhs=rhs) if op in _ARITHMETIC:
                return int(_ARITHMETIC[op](self.value(lhs), self.value(rhs)))
            case Select(cond=cond, then=then, otherwise=otherwise):
                return self.value(then) if self.value(cond) else self.value(otherwise)
        raise IngotError(ErrorCode.ARTIFACT_CORRUPT, f"the plan has a size that cannot be evaluated: {to_text(expr)}")
