"""Loop functions that sort rows: all of a row by merging, the first few elements of one by insertion. One row per task."""

from __future__ import annotations

from dataclasses import dataclass

from compiler_service.loop_ir.compact import Cell, load, loop, unravel, with_cell
from compiler_service.loop_ir.ir import Block, Buffer, If, Statement, Store
from shared_ir.dim import Dim, product
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

_MOST_LEVELS = 40
"""Rows have fewer than 2**40 elements."""


def _precedes(a: Expr, b: Expr, largest: bool) -> Expr:
    """Whether ``a`` must come before ``b``; NaN counts as the largest number."""
    if a.dtype.is_float and a.dtype.bits < 32:
        a, b = cast(a, DType.FLOAT32), cast(b, DType.FLOAT32)
    before = a > b if largest else a < b
    if not a.dtype.is_float:
        return before
    first, second = (a, b) if largest else (b, a)
    alone = logical_and(Unary(UnaryOp.IS_NAN, first), _not(Unary(UnaryOp.IS_NAN, second)))
    return logical_or(before, alone)


def _not(x: Expr) -> Expr:
    return Unary(UnaryOp.NOT, x)


def _power_of_two(exponent: Expr) -> Expr:
    return binary(BinaryOp.SHL, lift(1), exponent)


@dataclass(frozen=True)
class _MergeSort:
    """Runs of 1, 2, 4, ... positions are merged from one half of ``out`` into the other."""

    x: Buffer
    out: Buffer
    row: tuple[Expr, ...]
    largest: bool

    @property
    def size(self) -> Expr:
        return lift(self.x.shape[-1])

    def statement(self) -> Statement:
        start = loop("p", self.size, lambda p: self.put(0, p, p))
        return Block((start, loop("level", _MOST_LEVELS, self.level), self.bring_home()))

    def at(self, half: Expr | int, i: Expr) -> Expr:
        return load(self.out, *self.row, half, i)

    def put(self, half: Expr | int, i: Expr, position: Expr) -> Statement:
        return Store(self.out, (*self.row, lift(half), i), position)

    def level(self, number: Var) -> Statement:
        width = _power_of_two(number)
        blocks = (self.size + width * 2 - 1) // (width * 2)
        return If(width < self.size, loop("block", blocks, lambda b: self.merge(number, b * (width * 2), width)))

    def merge(self, number: Var, low: Expr, width: Expr) -> Statement:
        middle, high = minimum(low + width, self.size), minimum(low + width * 2, self.size)

        def over(i: Cell, j: Cell, left: Cell) -> Statement:
            def step(q: Var) -> Statement:
                source = number % 2
                ours, theirs = (
                    load(self.x, *self.row, self.at(source, i.value)),
                    load(self.x, *self.row, self.at(source, j.value)),
                )
                other_first = select(j.value < high, _precedes(theirs, ours, self.largest), False)
                decide = left.set(select(i.value < middle, _not(other_first), False))
                chosen = select(left.value, self.at(source, i.value), self.at(source, j.value))
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

        def copy(levels: Cell) -> Statement:
            count = loop("l", _MOST_LEVELS, lambda n: If(_power_of_two(n) < self.size, levels.set(levels.value + 1)))
            move = loop("c", self.size, lambda c: self.put(0, c, self.at(1, c)))
            return Block((count, If(equal(levels.value % 2, 1), move)))

        return with_cell("levels", lift(0), copy)


def sort_rows(x: Buffer, out: Buffer, task: Var, largest: bool) -> tuple[Dim, Statement]:
    """``out`` [..., 2, n]: the sorted positions of the rows of ``x`` [..., n], and room to work in. Stable."""
    lead = x.shape[:-1]
    return product(lead), _MergeSort(x, out, unravel(task, lead), largest).statement()


def best_of_rows(x: Buffer, out: Buffer, task: Var, largest: bool) -> tuple[Dim, Statement]:
    """``out`` [..., k]: the first k sorted positions of the rows of ``x``. Stable; made for k much smaller than the row."""
    lead, count = x.shape[:-1], out.shape[-1]
    row = unravel(task, lead)
    assert isinstance(count, int)

    def kept_at(i: Expr) -> Expr:
        return load(out, *row, i)

    def beats(i: Expr, rank: Expr) -> Expr:
        return _precedes(load(x, *row, i), load(x, *row, kept_at(rank)), largest)

    def insert(i: Var, kept: Cell, low: Cell, high: Cell) -> Statement:
        middle = (low.value + high.value) // 2
        halve = If(low.value < high.value, If(beats(i, middle), high.set(middle), low.set(middle + 1)))
        last = minimum(kept.value, lift(count - 1))
        shift = loop("s", last - low.value, lambda s: Store(out, (*row, last - s), kept_at(last - s - 1)))
        grow = If(kept.value < count, kept.set(kept.value + 1))
        return Block((loop("h", count.bit_length(), lambda _: halve), shift, Store(out, (*row, low.value), i), grow))

    def visit(i: Var, kept: Cell) -> Statement:
        enters = select(kept.value < count, lift(True, DType.BOOL), beats(i, lift(count - 1)))
        return If(
            enters,
            with_cell(
                "low", lift(0), lambda low: with_cell("high", kept.value, lambda high: insert(i, kept, low, high))
            ),
        )

    return product(lead), with_cell("kept", lift(0), lambda kept: loop("i", x.shape[-1], lambda i: visit(i, kept)))
