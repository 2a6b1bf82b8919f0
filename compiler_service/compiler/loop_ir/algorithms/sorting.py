"""Loop functions that sort rows by merging. One row per task."""

from __future__ import annotations

from dataclasses import dataclass

from compiler_service.compiler.loop_ir.algorithms.compact import (
    LANES,
    CompactCell,
    lanes,
    let,
    load,
    loop,
    one_where,
    unravel,
    with_cell,
)
from compiler_service.compiler.loop_ir.ir import Allocate, Block, Buffer, BufferScope, If, Statement, Store
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
from shared_ir.expr.dim import Dim, as_dim, product

_MOST_LEVELS = 40
"""Rows have fewer than 2**40 elements."""
_RUN_LEVELS = LANES.bit_length() - 1
"""Runs of ``LANES`` elements are there before the first are merged: an even number
of levels that are not needed, so that they begin in the first half."""


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
    """Positions in ``row`` of ``x``, in ``out[*place, 0, :]``: runs of 16, 32, 64, ... of them are merged from one half into the other."""

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
        merged = loop("level", _MOST_LEVELS - _RUN_LEVELS, lambda n: self.level(n + _RUN_LEVELS))
        return Block((self.runs(), merged, self.bring_home()))

    def runs(self) -> Statement:
        """``LANES`` positions at a time, each put where as many come before it: its rank among them, of all at once."""
        keys, given, ranks = (
            Buffer(name, dtype, (LANES,), BufferScope.STACK)
            for name, dtype in (("keys", self.x.dtype), ("given", self.out.dtype), ("ranks", DType.INT32))
        )

        def take(first: Expr, lane: Expr) -> Statement:
            position = self.at(0, first + lane)
            key = Store(keys, (lane,), load(self.x, *self.row, position))
            return Block((Store(given, (lane,), position), key, Store(ranks, (lane,), lift(0, DType.INT32))))

        def rank(other: Expr, lane: Expr) -> Statement:
            one, beside = load(keys, lane), load(keys, other)
            is_before = select(
                other < lane, logical_not(precedes(one, beside, self.largest)), precedes(beside, one, self.largest)
            )
            return Store(ranks, (lane,), load(ranks, lane) + one_where(is_before))

        def place(first: Expr, lane: Expr, most: Dim) -> Statement:
            def put(rank: Var) -> Statement:
                return If(logical_and(rank >= 0, rank < lift(most)), self.put(0, first + rank, load(given, lane)))

            return let("rank", cast(load(ranks, lane), DType.INT64), put)

        def whole(run: Var) -> Statement:
            first = run * LANES
            ranked = loop("other", LANES, lambda other: lanes(lambda lane: rank(other, lane)))
            return Block(
                (lanes(lambda lane: take(first, lane)), ranked, loop("lane", LANES, lambda i: place(first, i, LANES)))
            )

        count, rest = self.size // LANES, as_dim(self.size % LANES)
        taken = loop("i", rest, lambda i: take(count * LANES, i))
        ranked = loop("other", rest, lambda other: loop("i", rest, lambda i: rank(other, i)))
        last = Block((taken, ranked, loop("i", rest, lambda i: place(count * LANES, i, rest))))
        body: Statement = Block((loop("run", as_dim(count), whole), last))
        for buffer in (ranks, given, keys):
            body = Allocate(buffer, body)
        return body

    def at(self, half: Expr | int, i: Expr) -> Expr:
        return load(self.out, *self.place, half, i)

    def put(self, half: Expr | int, i: Expr, position: Expr) -> Statement:
        return Store(self.out, (*self.place, lift(half), i), position)

    def level(self, number: Expr) -> Statement:
        width = _power_of_two(number)
        blocks = (self.size + width * 2 - 1) // (width * 2)
        return If(width < self.size, loop("block", blocks, lambda b: self.merge(number, b * (width * 2), width)))

    def merge(self, number: Expr, low: Expr, width: Expr) -> Statement:
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
            def counted(n: Var) -> Statement:
                return If(logical_and(n >= _RUN_LEVELS, _power_of_two(n) < self.size), levels.set(levels.value + 1))

            count = loop("l", _MOST_LEVELS, counted)
            move = loop("c", self.size, lambda c: self.put(0, c, self.at(1, c)))
            return Block((count, If(equal(levels.value % 2, 1), move)))

        return with_cell("levels", lift(0), copy)


def sort_rows(x: Buffer, out: Buffer, task: Var, largest: bool) -> tuple[Dim, Statement]:
    """``out`` [..., 2, n]: the sorted positions of the rows of ``x`` [..., n], and room to work in. Stable."""
    lead = x.shape[:-1]
    row = unravel(task, lead)
    return product(lead), MergeSort(x, row, out, row, largest).of_row()
