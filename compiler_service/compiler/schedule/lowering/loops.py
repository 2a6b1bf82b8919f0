"""Loops for nests that are written by hand: variables with known bounds, vectors side by side, extents that no vector divides."""

from __future__ import annotations

from collections.abc import Callable

from compiler_service.compiler.loop_ir.ir import (
    Allocate,
    Block,
    Buffer,
    BufferLoad,
    BufferScope,
    For,
    ForKind,
    Statement,
    Store,
)
from compiler_service.compiler.schedule.lowering.statements import block, guard
from shared_ir.dtype import DType
from shared_ir.expr import Expr, Var, lift
from shared_ir.expr.dim import Dim, as_dim
from shared_ir.expr.simplify import Interval, Simplifier

Body = Callable[[Expr], Statement]
Element = Callable[[Expr, Expr, Expr | None], Statement]
"""A statement for (place among the vectors side by side, index of the element, which lanes exist or None for all)."""


class Loops:
    """Makes loops over vectors of ``width`` lanes.

    Attributes:
        simplify: knows the bounds of every variable made here.
        width: lanes of a vector.
        masked: whether the target can leave out lanes of a vector; elements behind the last full one go alone where not.
    """

    def __init__(self, width: int, masked: bool) -> None:
        self._ranges: dict[str, Interval] = {}
        self._count = 0
        self.simplify = Simplifier(self._ranges)
        self.width, self.masked = width, masked

    def fresh(self, base: str, low: int, high: int | None) -> Var:
        """A variable of its own, within [low, high]."""
        self._count += 1
        var = Var(f"{base}.{self._count}")
        self._ranges[var.name] = (low, high)
        return var

    def each(self, name: str, extent: Dim, body: Body, kind: ForKind = ForKind.SERIAL) -> Statement:
        """``body`` for every index below ``extent``."""
        if extent == 0:
            return Block(())
        if extent == 1:
            return body(lift(0))
        upper = extent if isinstance(extent, int) else self.simplify.interval(extent)[1]
        var = self.fresh(name, 0, None if upper is None else upper - 1)
        return For(var, lift(extent), kind, body(var))

    def vector(self, body: Body, width: int = 0) -> Statement:
        """``body`` for each lane of one vector."""
        return self.each("lane", width or self.width, body, ForKind.VECTORIZED)

    def vectors(self, count: int, body: Body, width: int = 0) -> Statement:
        """``body`` for each lane of ``count`` vectors side by side."""
        size = width or self.width
        return self.each(
            "vector", count, lambda v: self.vector(lambda lane: body(v * size + lane), size), ForKind.UNROLLED
        )

    def tile(self, height: int, count: int, body: Callable[[Expr, Expr], Statement], width: int = 0) -> Statement:
        """``body(row, column)`` for a register tile of ``height`` rows and ``count`` vectors."""
        return self.each("row", height, lambda r: self.vectors(count, lambda at: body(r, at), width), ForKind.UNROLLED)

    def accumulated(
        self,
        height: int,
        count: int,
        before: Callable[[Expr, Expr], Expr],
        steps: tuple[str, Dim],
        term: Callable[[Expr, Expr, Expr], Expr],
        after: Callable[[Expr, Expr, Expr], Statement],
        width: int = 0,
    ) -> Statement:
        """A register tile that starts as ``before(row, column)``, takes in ``term(step, row, column)`` at each of the ``steps``
        (name, extent), and is handed over to ``after(row, column, value)``."""
        size = width or self.width
        tile = Buffer("tile", DType.FLOAT32, (height, count * size), BufferScope.STACK)

        def update(step: Expr) -> Statement:
            def add(r: Expr, at: Expr) -> Statement:
                return Store(tile, (r, at), BufferLoad(tile, (r, at)) + term(step, r, at))

            return self.tile(height, count, add, size)

        nest = block(
            self.tile(height, count, lambda r, at: Store(tile, (r, at), before(r, at)), size),
            self.each(*steps, update),
            self.tile(height, count, lambda r, at: after(r, at, BufferLoad(tile, (r, at))), size),
        )
        return Allocate(tile, nest)

    def along(self, extent: Dim, body: Element, count: int = 1, width: int = 0) -> Statement:
        """``body`` for every element: ``count`` vectors at a time, then one by one, then what is left of the last one."""
        size = width or self.width
        groups = as_dim(lift(extent) // (count * size))
        singles = as_dim(lift(extent) % (count * size) // size) if count > 1 else 0
        left = as_dim(lift(extent) % size)
        behind_groups, behind_vectors = lift(groups) * (count * size), lift(extent) - left

        def group(g: Expr) -> Statement:
            return self.vectors(count, lambda at: body(at, g * (count * size) + at, None), size)

        def single(v: Expr) -> Statement:
            return self.vector(lambda lane: body(lane, self.simplify(behind_groups + v * size + lane), None), size)

        return block(
            self.each("group", groups, group),
            self.each("vector", singles, single),
            self._rest(behind_vectors, left, body, size),
        )

    def _rest(self, start: Expr, left: Dim, body: Element, size: int) -> Statement:
        if left == 0:
            return Block(())
        if not self.masked:
            return self.each("element", left, lambda i: body(lift(0), self.simplify(start + i), None))
        last = self.vector(lambda lane: body(lane, self.simplify(start + lane), lane < left), size)
        return guard(self.simplify(lift(left) > 0), last)

    def reduced(
        self,
        extent: Dim,
        identity: float,
        element: Callable[[Buffer, Expr, Expr, Expr | None], Statement],
        combine: Callable[[Expr, Expr], Expr],
        result: tuple[Buffer, Expr],
    ) -> Statement:
        """``result`` (an element of a buffer): what ``element(lanes, ...)`` accumulates over ``extent`` elements, combined."""
        count = _ACCUMULATORS_OF_ROW
        if isinstance(extent, int):
            count = next(c for c in (_ACCUMULATORS_OF_ROW, 2, 1) if c <= max(1, extent // self.width))
        lanes = Buffer("lanes", DType.FLOAT32, (count * self.width,), BufferScope.STACK)
        start = lift(identity, DType.FLOAT32)
        buffer, at = result

        def onto(distance: int) -> Statement:
            def store(i: Expr) -> Statement:
                here, there = (BufferLoad(lanes, (place,)) for place in (i, i + distance * self.width))
                return Store(lanes, (i,), combine(here, there))

            return self.vectors(distance, store)

        def total(lane: Expr) -> Statement:
            return Store(buffer, (at,), combine(BufferLoad(buffer, (at,)), BufferLoad(lanes, (lane,))))

        body = block(
            self.vectors(count, lambda i: Store(lanes, (i,), start)),
            self.along(extent, lambda lane, j, wanted: element(lanes, lane, j, wanted), count),
            *(onto(d) for d in (2, 1) if d < count),
            Store(buffer, (at,), start),
            self.vector(total),
        )
        return Allocate(lanes, body)


_ACCUMULATORS_OF_ROW = 4
"""Number of vectors in which the lanes of a row accumulate side by side."""
