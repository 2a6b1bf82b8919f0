"""Expressions of a vectorized loop: what they become for all lanes at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import reduce
from typing import NoReturn

from compiler_service.compiler.loop_ir.ir import (
    Block,
    Broadcast,
    Buffer,
    BufferLoad,
    Function,
    Ramp,
    Statement,
    VectorReduce,
)
from compiler_service.compiler.loop_ir.passes.faults import fault
from compiler_service.compiler.loop_ir.passes.lanes import index_arithmetic
from compiler_service.compiler.tensor_expr.tensor import ReduceOp
from shared_ir.dtype import DType
from shared_ir.expr import Binary, BinaryOp, Const, Expr, Select, Unary, UnaryOp, Var, lift, logical_and, select

Rewritten = tuple[Expr, bool]
"""An expression and whether it is a vector."""


@dataclass
class LaneExpressions:
    """Rewrites expressions over ``var``, the variable of a loop of ``lanes`` iterations."""

    function: Function
    var: Var
    lanes: int
    vectors: dict[Var, Expr] = field(init=False)
    """What stands for each variable that differs between lanes."""
    expanded: dict[Buffer, Buffer] = field(default_factory=dict)
    """Private buffers of an iteration, with a trailing axis of lanes."""
    mask: Expr | None = None
    """The lanes that take part; ``None`` is all of them."""
    guard: Expr | None = None
    """A mask of which at least one lane is on, because a scalar If around the statement can ask for it."""
    guard_used: bool = False
    where: Statement = field(default_factory=lambda: Block(()))
    _memo: dict[Expr, Rewritten] = field(default_factory=dict)
    """Valid under ``mask``."""

    def __post_init__(self) -> None:
        self.vectors = {self.var: self.steps}

    @property
    def steps(self) -> Ramp:
        """``0, 1, ..., lanes - 1``"""
        return Ramp(Const(0), Const(1), self.lanes)

    def fault(self, message: str, expected: str, received: Expr | str) -> NoReturn:
        fault(self.function, self.where, f"vectorized over {self.var.name}: {message}", expected, received)

    @contextmanager
    def masked(self, mask: Expr, done: Iterable[Expr] = ()) -> Iterator[None]:
        """Inside, only the lanes of ``mask`` take part; what is ``done`` already is not done again for them."""
        outer = self.mask, self._memo
        self.mask, self._memo = mask, {e: self._memo[e] for e in done if e in self._memo}
        yield
        self.mask, self._memo = outer

    def bind(self, var: Var, value: Expr | None) -> None:
        """``var`` stands for the vector ``value``; ``None``: it is a scalar."""
        if self.vectors.get(var) is not value:
            self._memo.clear()
        if value is None:
            self.vectors.pop(var, None)
        else:
            self.vectors[var] = value

    def combined(self, cond: Expr) -> Expr:
        return cond if self.mask is None else logical_and(self.mask, cond)

    def expr(self, expr: Expr) -> Rewritten:
        found = self._memo.get(expr)
        if found is None:
            found = self._memo[expr] = self._rewrite(expr)
        return found

    def scalar(self, expr: Expr, what: str) -> Expr:
        new, is_vector = self.expr(expr)
        if is_vector:
            self.fault(what, f"independent of {self.var.name}", expr)
        return new

    def vector(self, expr: Expr) -> Expr:
        return self.splat(*self.expr(expr))

    def splat(self, expr: Expr, is_vector: bool) -> Expr:
        return expr if is_vector else Broadcast(expr, self.lanes)

    def _rewrite(self, expr: Expr) -> Rewritten:
        match expr:
            case Const():
                return expr, False
            case Var():
                found = self.vectors.get(expr)
                return (expr, False) if found is None else (found, True)
            case BufferLoad():
                return self._load(expr)
            case Select():
                return self._select(expr)
            case Ramp() | Broadcast() | VectorReduce():
                self.fault("expression in the loop", "a scalar program", expr)
        parts = [self.expr(child) for child in expr.children()]
        if not any(is_vector for _, is_vector in parts):
            return self._same(expr, parts), False
        if not isinstance(expr, Binary):
            return expr.with_children(tuple([self.splat(*part) for part in parts])), True
        (lhs, left), (rhs, right) = parts
        if expr.lhs.dtype is DType.INT64:
            index = index_arithmetic(expr.op, lhs, rhs, self.lanes)
            if index is not None:
                return index, isinstance(index, Ramp)
        return Binary(expr.op, self.splat(lhs, left), self.splat(rhs, right)), True

    def _same(self, expr: Expr, parts: list[Rewritten]) -> Expr:
        children = tuple([part for part, _ in parts])
        if all(a is b for a, b in zip(children, expr.children(), strict=True)):
            return expr
        return expr.with_children(children)

    def split(self, cond: Expr) -> tuple[Expr, Expr] | None:
        """A conjunction as the part that is one scalar and the part that differs between lanes, if it has both."""
        parts = list(_conjuncts(cond))
        scalars = [part for part in parts if not self.expr(part)[1]]
        vectors = [part for part in parts if self.expr(part)[1]]
        return (reduce(logical_and, scalars), reduce(logical_and, vectors)) if scalars and vectors else None

    def _select(self, expr: Select) -> Rewritten:
        both = self.split(expr.cond) if isinstance(expr.otherwise, Const) else None
        if both is not None:  # select(s and v, x, c) -> select(s, select(v, x, c), c): the mask is of the lanes alone
            scalar, vector = both
            return self.expr(select(scalar, select(vector, expr.then, expr.otherwise), expr.otherwise))
        cond, is_vector = self.expr(expr.cond)
        if not is_vector:
            (then, left), (otherwise, right) = self.expr(expr.then), self.expr(expr.otherwise)
            if left or right:
                then, otherwise = self.splat(then, left), self.splat(otherwise, right)
            return select(cond, then, otherwise), left or right
        done = _performed(expr.cond)
        with self.masked(self.combined(cond), done):
            then = self.vector(expr.then)
        negation = Unary(UnaryOp.NOT, cond)
        with self.masked(self.combined(negation), done):
            otherwise = self.vector(expr.otherwise)
        is_masked = isinstance(then, BufferLoad) and then.mask is not None and expr.then not in done
        if is_masked and _is_zero(expr.otherwise):
            return then, True  # select(m, load[mask=m], 0) -> load[mask=m]: lanes off are 0 already
        return Select(cond, then, otherwise), True

    # -- memory

    def address(self, buffer: Buffer, indices: tuple[Expr, ...]) -> tuple[Buffer, tuple[Expr, ...], bool]:
        """Buffer and indices of an access, and whether it is one of vectors."""
        parts = [self.expr(index) for index in indices]
        positions = [part for part, _ in parts]
        own = self.expanded.get(buffer)
        if own is not None:
            return own, (*positions, self.steps), True
        return buffer, tuple(positions), any(is_vector for _, is_vector in parts)

    def own_mask(self, mask: Expr | None) -> Expr | None:
        """The mask of a vector access that had ``mask`` itself."""
        return self.mask if mask is None else self.combined(self.vector(mask))

    def _load(self, load: BufferLoad) -> Rewritten:
        buffer, indices, is_vector = self.address(load.buffer, load.indices)
        if is_vector:
            return BufferLoad(buffer, indices, self.own_mask(load.mask)), True
        mask, masked_by_lane = (None, False) if load.mask is None else self.expr(load.mask)
        if masked_by_lane:
            self.fault("mask of a load from one location", f"independent of {self.var.name}", load)
        new = load if indices == load.indices and mask is load.mask else BufferLoad(buffer, indices, mask)
        if self.mask is None:
            return new, False
        if self.mask is self.guard:
            self.guard_used = True
            return new, False
        return select(VectorReduce(ReduceOp.OR, self.mask), new, lift(0, load.dtype)), False


def _performed(expr: Expr) -> dict[Expr, None]:
    """What computing ``expr`` computes in any case: all parts but those in branches."""
    found: dict[Expr, None] = {}
    waiting = [expr]
    while waiting:
        part = waiting.pop()
        if part not in found:
            found[part] = None
            waiting += [part.cond] if isinstance(part, Select) else part.children()
    return found


def _conjuncts(cond: Expr) -> Iterator[Expr]:
    if isinstance(cond, Binary) and cond.op is BinaryOp.AND and cond.dtype is DType.BOOL:
        yield from _conjuncts(cond.lhs)
        yield from _conjuncts(cond.rhs)
    else:
        yield cond


def _is_zero(expr: Expr) -> bool:
    return isinstance(expr, Const) and repr(expr.value) in ("0", "0.0", "False")
