"""Bind repeated index arithmetic of straight-line code to variables.

::

    acc[0] = acc[0] + x[t * 64 + k * 8] * w[k]          let index_0 = t * 64 + k * 8
    acc[1] = acc[1] + x[t * 64 + k * 8 + 1] * w[k]  ->  acc[0] = acc[0] + x[index_0] * w[k]
                                                        acc[1] = acc[1] + x[index_0 + 1] * w[k]

LLVM would find these itself; the point is that the text handed to it stays small.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from compiler_service.loop_ir.ir import (
    Block,
    Broadcast,
    For,
    Function,
    Let,
    Ramp,
    Statement,
    Store,
    VectorVar,
    lanes_of,
    substatements,
    walk_statements,
)
from compiler_service.loop_ir.passes.rewrite import block, with_expressions, with_substatements
from shared_ir.dtype import DType
from shared_ir.expr import Binary, BinaryOp, Const, Expr, Select, Unary, Var, transform

_LEAST_OPERATIONS = 2
"""A single addition is not worth a name."""
_DIVISIONS = frozenset({BinaryOp.FLOOR_DIV, BinaryOp.FLOOR_MOD, BinaryOp.TRUNC_DIV, BinaryOp.TRUNC_MOD})
_STAYS: None = None


def hoist(function: Function) -> Function:
    """The same function; equal index expressions of one run of stores are computed once."""
    binders = {s.var.name for s in walk_statements(function.body) if isinstance(s, Let | For)}
    taken = binders | {v.name for v in (*function.symbols, function.task)}
    return replace(function, body=_Hoister(taken).statement(function.body))


@dataclass
class _Hoister:
    taken: set[str]
    _names: int = 0
    _operations: dict[Expr, int | None] = field(default_factory=dict)

    def statement(self, statement: Statement) -> Statement:
        if isinstance(statement, Store):
            return self.run([statement])
        if not isinstance(statement, Block):
            parts = tuple([self.statement(part) for part in substatements(statement)])
            return with_substatements(statement, parts)
        new: list[Statement] = []
        stores: list[Store] = []
        for part in (*statement.statements, None):
            if isinstance(part, Store):
                stores.append(part)
                continue
            if stores:
                new.append(self.run(stores))
                stores = []
            if part is not None:
                new.append(self.statement(part))
        return block(new)

    def run(self, stores: Sequence[Store]) -> Statement:
        """The stores inside a let for every repeated expression."""
        bound: dict[Expr, Expr] = {}
        lets: list[tuple[Var, Expr]] = []
        for expr in self.repeated(stores):
            value = expr.with_children(tuple([_replaced(child, bound) for child in expr.children()]))
            var = self.fresh(expr)
            bound[expr] = var
            lets.append((var, value))
        if not lets:
            return block(stores)
        body = block([with_expressions(store, lambda e: _replaced(e, bound)) for store in stores])
        for var, value in reversed(lets):
            body = Let(var, value, body)
        return body

    def repeated(self, stores: Sequence[Store]) -> list[Expr]:
        """Expressions worth a name that occur under two different parents or more, inner ones first."""
        uses: Counter[Expr] = Counter()  # up to 2: more visits would tell nothing new
        finished: list[Expr] = []

        def visit(expr: Expr) -> None:
            bindable = (self.operations(expr) or 0) >= _LEAST_OPERATIONS and isinstance(expr, Binary)
            if uses[expr] == 2:
                return
            uses[expr] += 1
            if not bindable or uses[expr] == 1:
                for child in expr.children():
                    visit(child)
                if bindable:
                    finished.append(expr)

        for store in stores:
            for expr in (*store.indices, store.value, *(() if store.mask is None else (store.mask,))):
                visit(expr)
        return [e for e in finished if uses[e] > 1]

    def operations(self, expr: Expr) -> int | None:
        """Number of operations of integer or bool arithmetic; ``None`` for what must be evaluated where it stands."""
        if expr not in self._operations:
            self._operations[expr] = self.count(expr)
        return self._operations[expr]

    def count(self, expr: Expr) -> int | None:
        match expr:
            case Const() | Var():
                return 0
            case Binary(op=op, rhs=rhs) if op in _DIVISIONS and not (isinstance(rhs, Const) and rhs.value):
                return _STAYS  # may divide by zero where a condition does not hold
            case Binary() | Unary() | Select() | Ramp() | Broadcast() if expr.dtype in (DType.INT64, DType.BOOL):
                total = 1
                for child in expr.children():
                    own = self.operations(child)
                    if own is None:
                        return _STAYS
                    total += own
                return total
        return _STAYS

    def fresh(self, expr: Expr) -> Var:
        name = f"index_{self._names}"
        while name in self.taken:
            self._names += 1
            name = f"index_{self._names}"
        self.taken.add(name)
        lanes = lanes_of(expr)
        return Var(name, expr.dtype) if lanes == 1 else VectorVar(name, expr.dtype, lanes)


def _replaced(expr: Expr, bound: dict[Expr, Expr]) -> Expr:
    """``expr`` with the bound expressions in it named; ``bound`` also remembers what has been rewritten."""
    return transform(expr, lambda e: None, bound)
