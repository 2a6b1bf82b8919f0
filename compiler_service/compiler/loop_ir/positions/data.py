"""Which variables and positions of a loop program an element decides."""

from __future__ import annotations

from dataclasses import dataclass, field

from compiler_service.compiler.loop_ir.ir import (
    Allocate,
    Block,
    BufferLoad,
    For,
    If,
    Let,
    Statement,
    Store,
)
from shared_ir.expr import (
    Expr,
    Var,
)


@dataclass
class PositionsFromData:
    """What comes from data.

    Attributes:
        variables: those that an element decided, in any of the places where they are bound.
        is_position: whether any access is at a position from data.
    """

    variables: set[Var] = field(default_factory=set)
    is_position: bool = False
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

    def learn(self, statement: Statement) -> None:
        match statement:
            case Block(statements=statements):
                for inner in statements:
                    self.learn(inner)
            case For(var=var, extent=value, body=body) | Let(var=var, value=value, body=body):
                self._look(value)
                if self.decides(value) and var not in self.variables:
                    self.variables.add(var)
                    self._decides.clear()
                    self._reads.clear()
                self.learn(body)
            case If(cond=cond, then=then, otherwise=otherwise):
                self._look(cond)
                self.learn(then)
                if otherwise is not None:
                    self.learn(otherwise)
            case Allocate(body=body):
                self.learn(body)
            case Store(indices=indices, value=value, mask=mask):
                for expr in (value, *indices, *(() if mask is None else (mask,))):
                    self._look(expr)
                self.is_position |= any(self.decides(i) for i in indices)

    def _look(self, expr: Expr) -> None:
        self.is_position |= self.reads(expr)
