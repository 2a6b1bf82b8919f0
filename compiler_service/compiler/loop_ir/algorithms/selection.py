"""Loop functions that choose the first few of a row as if it were sorted: by insertion, or all that reach a threshold. One row per task."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from compiler_service.compiler.loop_ir.algorithms.compact import (
    LANES,
    CompactCell,
    lanes,
    load,
    loop,
    one_where,
    unravel,
    with_cell,
)
from compiler_service.compiler.loop_ir.algorithms.sorting import MergeSort, precedes
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
    reinterpret,
    select,
)
from shared_ir.expr.dim import Dim, as_dim, product

_MOST_INSERTED = 64
_LEAST_SHARE = 32
"""More than so many, or than this share of a row, are found by a threshold: an insertion moves all that are kept, and the shorter the
row the larger the part of it that enters."""
_KEY_BITS = 64
"""Bits of the integers that stand for values while the threshold is sought."""


def best_of_rows(x: Buffer, out: Buffer, task: Var, largest: bool) -> tuple[Dim, Statement]:
    """``out`` [..., k]: the first k sorted positions of the rows of ``x``. Stable; made for k much smaller than the row."""
    lead, count = x.shape[:-1], out.shape[-1]
    row = unravel(task, lead)
    assert isinstance(count, int)
    short = isinstance(x.shape[-1], int) and count * _LEAST_SHARE > x.shape[-1]
    find = _reaching if short or count > _MOST_INSERTED else _inserted

    def written(positions: Callable[[Expr], Expr]) -> Statement:
        return loop("k", count, lambda k: Store(out, (*row, k), positions(k)))

    return product(lead), find(x, row, count, largest, written)


def each_that(holds: Callable[[Expr], Expr], body: Callable[[Expr], Statement], start: int, stop: Dim) -> Statement:
    """``body`` of each of ``[start, stop)`` in order for which ``holds``: ``LANES`` at a time are passed over where it does for none."""
    blocks, rest = (lift(stop) - start) // LANES, (lift(stop) - start) % LANES

    def visit(i: Expr) -> Statement:
        return If(holds(i), body(i))

    def look(first: Expr) -> Statement:
        def over(found: CompactCell) -> Statement:
            count = lanes(lambda lane: found.set(found.value + one_where(holds(first + lane))))
            return Block((count, If(found.value > 0, loop("i", LANES, lambda i: visit(first + i)))))

        return with_cell("found", lift(0, DType.INT32), over)

    middle = loop("block", as_dim(blocks), lambda b: look(b * LANES + start))
    return Block((middle, loop("last", as_dim(rest), lambda i: visit(blocks * LANES + start + i))))


# -- by insertion


@dataclass(frozen=True)
class _Insertion:
    """The first ``count`` elements of a row, kept in order while the others are looked at.

    An element enters before the first of those kept that it precedes: so many vectors of them are compared at once, and moved up by
    one. Few of a long row do: ``LANES`` at a time are passed over where none precedes the last one kept.

    Attributes:
        values, positions: those kept; rank ``r`` is element ``r + 1``, behind one that is read when all move.
        moved, carried: the same while they move.
        kept: how many there are.
    """

    x: Buffer
    row: tuple[Expr, ...]
    count: int
    largest: bool
    values: Buffer
    positions: Buffer
    moved: Buffer
    carried: Buffer
    kept: CompactCell

    def statement(self) -> Statement:
        first = loop("first", self.count, self.enter)
        return Block((first, each_that(self.enters, self.enter, self.count, self.x.shape[-1])))

    def element(self, i: Expr) -> Expr:
        return load(self.x, *self.row, i)

    def enters(self, i: Expr) -> Expr:
        return precedes(self.element(i), load(self.values, self.count), self.largest)

    def enter(self, i: Expr) -> Statement:
        """Element ``i`` among those kept; of equal ones it comes last."""

        def ranked(rank: CompactCell) -> Statement:
            def stays(place: Expr) -> Statement:
                ahead = logical_not(precedes(self.element(i), load(self.values, place + 1), self.largest))
                return rank.set(rank.value + one_where(logical_and(place < self.kept.value, ahead)))

            grow = If(self.kept.value < self.count, self.kept.set(self.kept.value + 1))
            return Block((self.ranks(stays), self.put(i, cast(rank.value, DType.INT64)), grow))

        return with_cell("rank", lift(0, DType.INT32), ranked)

    def put(self, i: Expr, rank: Expr) -> Statement:
        """Element ``i`` at ``rank``, and what is there and behind it one further."""
        value = self.shifted(self.values, self.moved, self.element(i), rank)
        return Block((value, self.shifted(self.positions, self.carried, cast(i, DType.INT64), rank)))

    def shifted(self, old: Buffer, new: Buffer, own: Expr, rank: Expr) -> Statement:
        def at(place: Expr) -> Expr:
            here = select(equal(place, rank), own, load(old, place + 1))
            return select(place > rank, load(old, place), here)

        moved = self.ranks(lambda place: Store(new, (place,), at(place)))
        return Block((moved, self.ranks(lambda place: Store(old, (place + 1,), load(new, place)))))

    def ranks(self, body: Callable[[Expr], Statement]) -> Statement:
        """``body`` of every rank there is room for."""
        return loop("v", self.moved.shape[0] // LANES, lambda v: lanes(lambda lane: body(v * LANES + lane)))


_Written = Callable[[Callable[[Expr], Expr]], Statement]
"""What is made of the function that tells position ``k``."""


def _inserted(x: Buffer, row: tuple[Expr, ...], count: int, largest: bool, written: _Written) -> Statement:
    room = -(-count // LANES) * LANES
    values, moved = (Buffer(n, x.dtype, (s,), BufferScope.STACK) for n, s in (("values", room + 1), ("moved", room)))
    positions, carried = (
        Buffer(n, DType.INT64, (s,), BufferScope.STACK) for n, s in (("positions", room + 1), ("carried", room))
    )
    start = loop(
        "r", room + 1, lambda r: Block((Store(values, (r,), load(x, *row, 0)), Store(positions, (r,), lift(0))))
    )

    def over(kept: CompactCell) -> Statement:
        insertion = _Insertion(x, row, count, largest, values, positions, moved, carried, kept)
        return Block((start, insertion.statement(), written(lambda k: load(positions, k + 1))))

    body = with_cell("kept", lift(0), over)
    for buffer in (carried, moved, positions, values):
        body = Allocate(buffer, body)
    return body


# -- by a threshold


@dataclass(frozen=True)
class _Threshold:
    """All elements that come before a number, and of those equal to it as many as are missing; these are sorted.

    The number is the last for which ``count`` elements reach it, found by halving the range of its type: floats are ordered as the
    integers of their bits are, but for the negative ones (IEEE 754-2019, 5.10), which are turned around. NaN counts as the largest.
    """

    x: Buffer
    row: tuple[Expr, ...]
    count: int
    largest: bool

    @property
    def dtype(self) -> DType:
        return self.x.dtype.arithmetic

    def element(self, i: Expr) -> Expr:
        return cast(load(self.x, *self.row, i), self.dtype)

    def range(self) -> tuple[int, int]:
        """The numbers of the least and of the greatest value."""
        if self.dtype.is_float:
            infinity = 0x7F800000 if self.dtype is DType.FLOAT32 else 0x7FF0000000000000
            return -infinity - 1, infinity
        return (DType.INT64 if self.dtype.bits == _KEY_BITS else self.dtype).limits

    def value(self, number: Expr) -> Expr:
        """What ``number``, an int64, stands for."""
        if self.dtype.is_float:
            bits = DType.INT32 if self.dtype is DType.FLOAT32 else DType.INT64
            own, rest = cast(number, bits), lift((1 << (bits.bits - 1)) - 1, bits)
            return reinterpret(select(own < 0, binary(BinaryOp.XOR, own, rest), own), self.dtype)
        if self.dtype.is_signed or self.dtype.bits < _KEY_BITS:
            return cast(number, self.dtype)
        return reinterpret(binary(BinaryOp.XOR, number, lift(-(1 << (_KEY_BITS - 1)))), self.dtype)

    def reaches(self, i: Expr, value: Expr) -> Expr:
        x = self.element(i)
        return logical_not(x < value) if self.largest else x <= value

    def precedes(self, i: Expr, value: Expr) -> Expr:
        x = self.element(i)
        return logical_not(x <= value) if self.largest else x < value

    def halve(self, low: CompactCell, high: CompactCell) -> Statement:
        """One of both ends moves to the middle, which is rounded towards the other than the one that is sure to do."""
        differing = binary(BinaryOp.XOR, low.value, high.value) // 2
        if self.largest:
            middle = binary(BinaryOp.OR, low.value, high.value) - differing
        else:
            middle = binary(BinaryOp.AND, low.value, high.value) + differing

        def decide(at: CompactCell) -> Statement:
            def with_value(value: CompactCell) -> Statement:
                return self.counted(
                    lambda i: self.reaches(i, value.value),
                    lambda total: If(total >= self.count, sure.set(at.value), other.set(at.value + step)),
                )

            return with_cell("value", self.value(at.value), with_value)

        sure, other, step = (low, high, -1) if self.largest else (high, low, 1)
        return with_cell("middle", middle, decide)

    def counted(self, holds: Callable[[Expr], Expr], body: Callable[[Expr], Statement]) -> Statement:
        """``body`` of the number of elements for which ``holds``."""
        size = lift(self.x.shape[-1])
        blocks = size // LANES
        sums = Buffer("sums", DType.INT32, (LANES,), BufferScope.STACK)

        def count(b: Var) -> Statement:
            return lanes(lambda lane: Store(sums, (lane,), load(sums, lane) + one_where(holds(b * LANES + lane))))

        def over(total: CompactCell) -> Statement:
            def single(i: Var) -> Statement:
                return total.set(total.value + one_where(holds(blocks * LANES + i)))

            rest = loop("last", as_dim(size % LANES), single)
            added = lanes(lambda lane: total.set(total.value + load(sums, lane)))
            return Block((loop("block", as_dim(blocks), count), added, rest, body(total.value)))

        zero = lanes(lambda lane: Store(sums, (lane,), lift(0, DType.INT32)))
        return Allocate(sums, Block((zero, with_cell("total", lift(0, DType.INT32), over))))

    def collect(self, holds: Callable[[Expr], Expr], order: Buffer, taken: CompactCell) -> Statement:
        """Positions for which ``holds`` behind those that are in ``order``, as long as there is room."""

        def take(i: Expr) -> Statement:
            put = Block((Store(order, (lift(0), taken.value), i), taken.set(taken.value + 1)))
            return If(taken.value < self.count, put)

        return each_that(holds, take, 0, self.x.shape[-1])


def _reaching(x: Buffer, row: tuple[Expr, ...], count: int, largest: bool, written: _Written) -> Statement:
    threshold = _Threshold(x, row, count, largest)
    order = Buffer("order", DType.INT64, (2, count), BufferScope.STACK)
    least, greatest = threshold.range()

    def collected(value: Expr, taken: CompactCell) -> Statement:
        steps = [
            threshold.collect(lambda i: threshold.precedes(i, value), order, taken),
            threshold.collect(lambda i: equal(threshold.element(i), value), order, taken),
        ]
        if threshold.dtype.is_float and not largest:
            no_number = threshold.collect(lambda i: Unary(UnaryOp.IS_NAN, threshold.element(i)), order, taken)
            steps.append(If(taken.value < count, no_number))
        return Block((*steps, MergeSort(x, row, order, (), largest).of_given()))

    def over(low: CompactCell, high: CompactCell) -> Statement:
        narrowed = loop("step", threshold.dtype.bits, lambda _: threshold.halve(low, high))
        limit = threshold.value(low.value if largest else high.value)
        found = with_cell(
            "limit", limit, lambda at: with_cell("taken", lift(0), lambda taken: collected(at.value, taken))
        )
        return Block((narrowed, found, written(lambda k: load(order, 0, k))))

    ends = with_cell("low", lift(least), lambda low: with_cell("high", lift(greatest), lambda high: over(low, high)))
    return Allocate(order, ends)
