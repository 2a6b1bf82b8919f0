"""What can be said of an expression where it stands in a loop nest: what it is worth, what it depends on, how far it moves.

All numbers are estimates, for features of a cost model: of what depends on data, or on where a loop is, a typical value is taken.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Self

from compiler_service.compiler.loop_ir.ir import (
    Broadcast,
    BufferLoad,
    For,
    ForKind,
    Ramp,
    Shuffle,
    VectorReduce,
    VectorVar,
    lanes_of,
)
from shared_ir.expr import Binary, BinaryOp, Cast, Const, Expr, Select, Var, lift
from shared_ir.expr.operations import INTEGER_MEANING

_EXTENT_IF_UNKNOWN = 16
"""What the extent of a loop is taken for that depends on data."""


@dataclass(frozen=True, eq=False)
class LoopLevel:
    """A loop around a place; the outermost is the one over tasks, at depth 0."""

    extent: int
    kind: ForKind
    depth: int


@dataclass(frozen=True, eq=False)
class LoopScope:
    """The loops around a place, outermost first, and what its variables are.

    Attributes:
        variables: a loop, what a ``Let`` gave it and where, or the value of a symbol.
    """

    loops: tuple[LoopLevel, ...]
    variables: Mapping[Var, LoopLevel | tuple[Expr, LoopScope] | int]
    _numbers: dict[Expr, float | None] = field(default_factory=dict)
    _levels: dict[Expr, frozenset[int]] = field(default_factory=dict)
    _widths: dict[tuple[Expr, int, int], float] = field(default_factory=dict)
    _lanes: dict[Expr, int] = field(default_factory=dict)
    _instances: dict[frozenset[int], tuple[float, float]] = field(default_factory=dict)

    @classmethod
    def of_tasks(cls, task: Var, tasks: int, symbols: Mapping[Var, int]) -> Self:
        """The place of the body of a function."""
        level = LoopLevel(tasks, ForKind.SERIAL, 0)
        return cls((level,), MappingProxyType({**symbols, task: level}))

    def inside(self, loop: For) -> Self:
        """The place of the body of ``loop``."""
        level = LoopLevel(self.extent(loop.extent), loop.kind, len(self.loops))
        return type(self)((*self.loops, level), MappingProxyType({**self.variables, loop.var: level}))

    def with_value(self, var: Var, value: Expr) -> Self:
        """The place where ``var`` is ``value``."""
        return type(self)(self.loops, MappingProxyType({**self.variables, var: (value, self)}))

    def extent(self, expr: Expr | int) -> int:
        """The number of turns that ``expr`` says, at least 0."""
        number = self.number(lift(expr))
        return _EXTENT_IF_UNKNOWN if number is None else max(0, int(number))

    def number(self, expr: Expr) -> float | None:
        """What ``expr`` is worth in the middle of each loop; None where that depends on data."""
        if expr not in self._numbers:
            self._numbers[expr] = self._number(expr)
        return self._numbers[expr]

    def _number(self, expr: Expr) -> float | None:
        match expr:
            case Const(value=value):
                return float(value) if math.isfinite(value) else None
            case Var():
                return self._number_of_variable(expr)
            case Binary(op=op) if op in INTEGER_MEANING:
                sides = self.number(expr.lhs), self.number(expr.rhs)
                if sides[0] is None or sides[1] is None:
                    return None
                if op in (BinaryOp.FLOOR_DIV, BinaryOp.FLOOR_MOD) and sides[1] == 0:
                    return None
                return float(INTEGER_MEANING[op](*sides))
            case Cast(x=x) | Broadcast(x=x):
                return self.number(x)
            case Select(cond=cond, then=then, otherwise=otherwise):
                holds = self.number(cond)
                return self.number(then if holds or holds is None else otherwise)
        return None

    def _number_of_variable(self, var: Var) -> float | None:
        match self.variables.get(var):
            case LoopLevel(extent=extent):
                return float(max(0, extent - 1) // 2)
            case int(value):
                return float(value)
            case (value, scope):
                return scope.number(value)
        return None

    def levels(self, expr: Expr) -> frozenset[int]:
        """Depths of the loops that ``expr`` depends on."""
        if expr not in self._levels:
            self._levels[expr] = frozenset().union(*map(self._levels_of_variable, expr.variables))
        return self._levels[expr]

    def _levels_of_variable(self, var: Var) -> frozenset[int]:
        match self.variables.get(var):
            case LoopLevel(depth=depth):
                return frozenset({depth})
            case (value, scope):
                return scope.levels(value)
        return frozenset()

    @property
    def runs(self) -> float:
        """How often code that stands here is run, in all tasks."""
        return math.prod([float(loop.extent) for loop in self.loops if loop.kind is ForKind.SERIAL])

    @property
    def copies(self) -> float:
        """How often the text of what stands here is copied, because of loops that are unrolled."""
        return math.prod([float(loop.extent) for loop in self.loops if loop.kind is ForKind.UNROLLED])

    def instances(self, levels: frozenset[int]) -> tuple[float, float]:
        """(how often what depends on the loops at ``levels`` is done in all tasks, in how many lanes at once): what is the same in all
        copies of a loop that is unrolled is done once for all of them."""
        if levels not in self._instances:
            instances, lanes = 1.0, 1.0
            for loop in self.loops:
                if loop.kind is ForKind.VECTORIZED:
                    lanes *= loop.extent if loop.depth in levels else 1
                elif loop.kind is ForKind.SERIAL or loop.depth in levels:
                    instances *= loop.extent
            self._instances[levels] = instances, lanes
        return self._instances[levels]

    def lanes(self, expr: Expr) -> int:
        """1 for scalars, else the number of lanes: what :func:`compiler_service.compiler.loop_ir.ir.lanes_of` finds, remembered."""
        if expr not in self._lanes:
            match expr:
                case Ramp() | Broadcast() | VectorVar() | Shuffle() | VectorReduce() | Const() | Var():
                    self._lanes[expr] = lanes_of(expr)
                case _:
                    self._lanes[expr] = max([1, *map(self.lanes, expr.children())])
        return self._lanes[expr]

    def turns(self, levels: Iterable[int]) -> float:
        """How often the bodies of loops at these depths run, one inside the other."""
        return math.prod([float(self.loops[level].extent) for level in levels])

    def width(self, expr: Expr, first: int, last: int) -> float:
        """How far apart the smallest and the largest value of ``expr`` are, when the loops from depth ``first`` to below ``last`` run and
        those around them stand still."""
        key = expr, first, last
        found = self._widths.get(key)
        if found is None:
            moves = any(first <= level < last for level in self.levels(expr))
            found = self._widths[key] = self._width(expr, first, last) if moves else _width_of_lanes(expr)
        return found

    def _width(self, expr: Expr, first: int, last: int) -> float:
        match expr:
            case Var():
                found = self.variables[expr]
                if isinstance(found, tuple):
                    return found[1].width(found[0], first, last)
                return max(0.0, found.extent - 1.0) if isinstance(found, LoopLevel) else 0.0
            case Ramp(base=base, lanes=lanes):
                return self.width(base, first, last) + (lanes - 1) * _step(expr)
            case Broadcast(x=x) | Cast(x=x):
                return self.width(x, first, last)
            case Binary():
                return self._width_of_operation(expr, first, last)
            case BufferLoad() | VectorReduce() | Shuffle():  # anywhere
                levels = [level for level in self.levels(expr) if first <= level < last]
                return max(0.0, self.turns(levels) - 1)
        return max(self.width(part, first, last) for part in expr.children())

    def _width_of_operation(self, expr: Binary, first: int, last: int) -> float:
        lhs, rhs = (self.width(side, first, last) for side in (expr.lhs, expr.rhs))
        factor = self.number(expr.rhs)
        match expr.op:
            case BinaryOp.ADD | BinaryOp.SUB:
                return lhs + rhs
            case BinaryOp.MUL:
                other = self.number(expr.lhs)
                return lhs * abs(1.0 if factor is None else factor) + rhs * abs(1.0 if other is None else other)
            case BinaryOp.FLOOR_DIV if factor and not rhs:
                return lhs // abs(factor)
            case BinaryOp.FLOOR_MOD if factor and not rhs:
                return min(lhs, abs(factor) - 1)
        return max(lhs, rhs)


def _width_of_lanes(expr: Expr) -> float:
    """Of what stands still."""
    return (expr.lanes - 1) * _step(expr) if isinstance(expr, Ramp) else 0.0


def _step(ramp: Ramp) -> float:
    return abs(float(ramp.stride.value)) if isinstance(ramp.stride, Const) else 1.0
