"""Symbolic dims in JSON: a table that holds every distinct sub-expression once, as a row over earlier rows.

Grammar::

    table   = [row, ...]
    row     = [sign, operand, ...]       ["//", "#3", 2]: row 3 divided by 2; ["select", "#5", "n", 0]: n where row 5 holds
    operand = number | symbol | "#i"     i counts rows from 0 and is less than the number of the row it stands in
    dim     = operand                    its value is an integer

What was written is built again as it was, bottom-up and interned: nothing is parsed and nothing brought to normal form anew.
"""

from __future__ import annotations

from typing import Any

from shared_ir.dtype import DType
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.expr import INFIX, Binary, BinaryOp, Const, Expr, Select, Var
from shared_ir.expr.dim import Dim
from shared_ir.expr.operations import COMPARISONS

MAX_ROWS = 1 << 20

_SELECT = "select"
_CONNECTIVES = (BinaryOp.AND, BinaryOp.OR)
_INTEGER_OPERATORS = (
    BinaryOp.ADD,
    BinaryOp.SUB,
    BinaryOp.MUL,
    BinaryOp.FLOOR_DIV,
    BinaryOp.FLOOR_MOD,
    BinaryOp.TRUNC_DIV,
    BinaryOp.TRUNC_MOD,
    BinaryOp.MIN,
    BinaryOp.MAX,
)
_SIGNS = {
    op: INFIX[op][0] if op in INFIX else op.value for op in (*_INTEGER_OPERATORS, *sorted(COMPARISONS), *_CONNECTIVES)
}
_OPERATORS = {sign: op for op, sign in _SIGNS.items()}

Operand = int | str
"""A number, the name of a symbol or of a row; ``bool`` is a known condition."""


class DimWriter:
    """Collects the rows of the dims that are written with it."""

    def __init__(self) -> None:
        self.rows: list[list[Operand]] = []
        self._names: dict[Expr, Operand] = {}

    def write(self, dim: Dim) -> Operand:
        """What stands for ``dim`` in JSON; its sub-expressions that are new become rows.

        Raises:
            IngotError: COMPILER_FAULT, an operator or element type that no dim has.
        """
        return dim if isinstance(dim, int) else self._name(dim)

    def _name(self, root: Expr) -> Operand:
        stack = [root]
        while stack:
            expr = stack[-1]
            if expr not in self._names:
                unknown = [child for child in expr.children() if child not in self._names]
                if unknown:  # children first, from left to right
                    stack.extend(reversed(unknown))
                    continue
                self._names[expr] = self._leaf_or_row(expr)
            stack.pop()
        return self._names[root]

    def _leaf_or_row(self, expr: Expr) -> Operand:
        match expr:
            case Const(value=int(value), type=DType.INT64 | DType.BOOL):
                return value
            case Var(name=name, type=DType.INT64) if name.isidentifier():
                return name
            case Binary(op=op, lhs=lhs, rhs=rhs) if op in _SIGNS:
                return self._row(_SIGNS[op], self._names[lhs], self._names[rhs])
            case Select(cond=cond, then=then, otherwise=otherwise):
                return self._row(_SELECT, *(self._names[part] for part in (cond, then, otherwise)))
        raise IngotError(ErrorCode.COMPILER_FAULT, "an expression is no dim of a plan", received=str(expr)[:200])

    def _row(self, sign: str, *operands: Operand) -> Operand:
        self.rows.append([sign, *operands])
        return f"#{len(self.rows) - 1}"


class DimReader:
    """The dims over a table of rows, which somebody else wrote."""

    def __init__(self, rows: list[Any]) -> None:
        """Raises IngotError ARTIFACT_CORRUPT naming the first row that is none."""
        if not isinstance(rows, list) or len(rows) > MAX_ROWS:
            received = f"{len(rows)} rows" if isinstance(rows, list) else type(rows).__name__
            raise _corrupt("the table of expressions is none", f"a list of at most {MAX_ROWS} rows", received)
        self._integers: dict[str, Expr] = {}
        self._conditions: dict[str, Expr] = {}
        for number, row in enumerate(rows):
            self._read_row(f"#{number}", row)

    def read(self, written: Any) -> Dim:
        """The inverse of :meth:`DimWriter.write`.

        Raises:
            IngotError: ARTIFACT_CORRUPT.
        """
        return written if type(written) is int else self._integer(written)

    def _read_row(self, name: str, row: Any) -> None:
        try:
            match row:
                case [str(sign), lhs, rhs] if sign in _OPERATORS:
                    expr = self._operation(_OPERATORS[sign], lhs, rhs)
                case ["select", cond, then, otherwise]:
                    expr = Select(self._condition(cond), self._integer(then), self._integer(otherwise))
                case _:
                    signs = ", ".join((*_OPERATORS, _SELECT))
                    raise _corrupt("a row is no operation", f"one of {signs} and its operands", repr(row))
        except IngotError as error:
            raise error.located(field=f"expressions, row {name}") from None
        (self._integers if expr.dtype is DType.INT64 else self._conditions)[name] = expr

    def _operation(self, op: BinaryOp, lhs: Any, rhs: Any) -> Expr:
        if op in _CONNECTIVES:
            return Binary(op, self._condition(lhs), self._condition(rhs))
        return Binary(op, self._integer(lhs), self._integer(rhs))

    def _integer(self, written: Any) -> Expr:
        if type(written) is int:
            return Const(written, DType.INT64)
        if type(written) is str:
            found = self._integers.get(written)
            if found is not None:
                return found
            if written.isidentifier():
                self._integers[written] = symbol = Var(written, DType.INT64)
                return symbol
        raise _corrupt(
            "a plan refers to an integer that is none", "a number, a symbol or an earlier row", repr(written)
        )

    def _condition(self, written: Any) -> Expr:
        if type(written) is bool:
            return Const(written, DType.BOOL)
        found = self._conditions.get(written) if type(written) is str else None
        if found is None:
            raise _corrupt("a plan refers to a condition that is none", "an earlier row that compares", repr(written))
        return found


def _corrupt(message: str, expected: str, received: str) -> IngotError:
    return IngotError(
        ErrorCode.ARTIFACT_CORRUPT,
        message,
        expected=expected,
        received=received[:200],
        remedy="Compile the model again.",
    )
