"""Which variables and positions of a loop program an element decides."""

from __future__ import annotations

from dataclasses import dataclass, field

from compiler_service.compiler.loop_ir.ir import (
    BufferLoad,
    For,
    Let,
    Statement,
    Store,
    expressions_of,
    walk_statements,
)
from shared_ir.expr import (
    Expr,
    Var,
)
from shared_ir.expr.simplify import Interval, Simplifier


@dataclass
class PositionsFromData:
    """What comes from data.

    Attributes:
        variables: those that an element decided, in any of the places where they are bound.
        is_position: whether any access is at a position from data.
    """

    variables: set[Var] = field(default_factory=set)
    is_position: bool = False
    _bound: dict[Var, list[Expr]] = field(default_factory=dict)
    _decides: dict[Expr, bool] = field(default_factory=dict)
    _reads: dict[Expr, bool] = field(default_factory=dict)

    def decides(self, expr: Expr) -> bool:
        """Whether an element decides ``expr``."""
        found = self._decides.get(expr)
        if found is None:
            found = (
                isinstance(expr, BufferLoad)
                or expr in self.variables
                or any(self.decides(child) for child in expr.children())
            )
            self._decides[expr] = found
        return found

    def reads(self, expr: Expr) -> bool:
        """Whether ``expr`` holds a read at a position from data."""
        found = self._reads.get(expr)
        if found is None:
            found = isinstance(expr, BufferLoad) and any(self.decides(i) for i in expr.indices)
            found = found or any(self.reads(child) for child in expr.children())
            self._reads[expr] = found
        return found

    def learn(self, root: Statement) -> None:
        for statement in walk_statements(root):
            self.is_position |= any(self.reads(expr) for expr in expressions_of(statement))
            match statement:
                case For(var=var, extent=extent):
                    self._bind(var, extent)
                case Let(var=var, value=value):
                    self._bound.setdefault(var, []).append(value)
                    self._bind(var, value)
                case Store(indices=indices):
                    self.is_position |= any(self.decides(i) for i in indices)

    def _bind(self, var: Var, value: Expr) -> None:
        if self.decides(value) and var not in self.variables:
            self.variables.add(var)
            self._decides.clear()
            self._reads.clear()

    def simplifier(self) -> Simplifier:
        """One for which sizes and the variables of loops are at least 0, and what else a variable is bound to may be any number."""
        ranges: dict[str, Interval] = dict.fromkeys((var.name for var in self.variables), (None, None))
        for var, values in self._bound.items():
            if not any(map(self.decides, values)):
                ranges[var.name] = Simplifier(ranges).interval(values[0]) if len(values) == 1 else (None, None)
        return Simplifier(ranges)
