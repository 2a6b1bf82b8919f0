"""Loop functions that sort rows by merging. One row per task."""

from __future__ import annotations

from dataclasses import dataclass

from compiler_service.compiler.loop_ir.algorithms.compact import CompactCell, load, loop, unravel, with_cell
from compiler_service.compiler.loop_ir.ir import Block, Buffer, If, Statement, Store
from compiler_service.compiler.tensor_expr.scalar import logical_not
from shared_ir.dtype import DType
from shared_ir.expr import (
    BinaryOp,
    Expr,
    Unary,
    UnaryOp,
    Var,
    binary,
    cast,
    equal,
    lift,
    logical_and,
    logical_or,
    minimum,
    select,
)
from shared_ir.expr.dim import Dim, product

_MOST_LEVELS = 40
"""Rows have fewer than 2**40 elements."""


def precedes(a: Expr, b: Expr, largest: bool) -> Expr:
    """Whether ``a`` must come before ``b``; NaN counts as the largest number."""
    a, b = cast(a, a.dtype.arithmetic), cast(b, b.dtype.arithmetic)
    before = a > b if largest else a < b
    if not a.dtype.is_float:
        return before
    first, second = (a, b) if largest else (b, a)
    alone = logical_and(Unary(UnaryOp.IS_NAN, first), logical_not(Unary(UnaryOp.IS_NAN, second)))
    return logical_or(before, alone)


def _power_of_two(exponent: Expr) -> Expr:
    return binary(BinaryOp.SHL, lift(1), exponent)


@dataclass(frozen=True)
class MergeSort:
    """Positions in ``row`` of ``x``, in ``out[*place, 0, :]``: runs of 1, 2, 4, ... of them are merged from one half into the other."""

    x: Buffer
    row: tuple[Expr, ...]
    out: Buffer
    place: tuple[Expr, ...]
    largest: bool

    @property
    def size(self) -> Expr:
        return lift(self.out.shape[-1])

    def of_row(self) -> Statement:
        """All positions of the row, sorted."""
        return Block((loop("p", self.size, lambda p: self.put(0, p, p)), self.of_given()))

    def of_given(self) -> Statement:
        """The positions that are there, sorted."""
        return Block((loop("level", _MOST_LEVELS, self.level), self.bring_home()))

    def at(self, half: Expr | int, i: Expr) -> Expr:
        return load(self.out, *self.place, half, i)

    def put(self, half: Expr | int, i: Expr, position: Expr) -> Statement:
        return Store(self.out, (*self.place, lift(half), i), position)

    def level(self, number: Var) -> Statement:
        width = _power_of_two(number)
        blocks = (self.size + width * 2 - 1) // (width * 2)
        return If(width < self.size, loop("block", blocks, lambda b: self.merge(number, b * (width * 2), width)))

    def merge(self, number: Var, low: Expr, width: Expr) -> Statement:
        middle, high = minimum(low + width, self.size), minimum(low + width * 2, self.size)

        def over(i: CompactCell, j: CompactCell, left: CompactCell) -> Statement:
            def step(q: Var) -> Statement:
                source = number % 2
                ours, theirs = (load(self.x, *self.row, self.at(source, cell.value)) for cell in (i, j))
                own_first = select(j.value < high, logical_not(precedes(theirs, ours, self.largest)), True)
                decide = left.set(select(i.value < middle, own_first, False))
                chosen = self.at(source, minimum(select(left.value, i.value, j.value), high - 1))
                advance = If(left.value, i.set(i.value + 1), j.set(j.value + 1))
                return Block((decide, self.put((number + 1) % 2, low + q, chosen), advance))

            return loop("q", high - low, step)

        return with_cell(
            "i",
            low,
            lambda i: with_cell(
                "j", middle, lambda j: with_cell("left", lift(False, DType.BOOL), lambda c: over(i, j, c))
            ),
        )

    def bring_home(self) -> Statement:
        """After an odd number of levels the result is in the second half."""

        def copy(levels: CompactCell) -> Statement:
            count = loop("l", _MOST_LEVELS, lambda n: If(_power_of_two(n) < self.size, levels.set(levels.value + 1)))
            move = loop("c", self.size, lambda c: self.put(0, c, self.at(1, c)))
            return Block((count, If(equal(levels.value % 2, 1), move)))

        return with_cell("levels", lift(0), copy)


def sort_rows(x: Buffer, out: Buffer, task: Var, largest: bool) -> tuple[Dim, Statement]:
    """``out`` [..., 2, n]: the sorted positions of the rows of ``x`` [..., n], and room to work in. Stable."""
    lead = x.shape[:-1]
    row = unravel(task, lead)
    return product(lead), MergeSort(x, row, out, row, largest).of_row()
