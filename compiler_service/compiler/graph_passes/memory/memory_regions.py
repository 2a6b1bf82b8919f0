"""Where memory of a plan begins and ends, for many sizes of a model at once.

Regions are compared at sizes that are drawn once: small ones, and those around which blocks are rounded up. Constant sizes are
compared exactly. Nothing here knows how memory was planned.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from shared_ir.expr import Binary, BinaryOp, Cast, Const, Expr, Select, Unary, UnaryOp, Var
from shared_ir.expr.dim import Dim, dim_symbols
from shared_ir.plan.program import Constraint, Storage

SAMPLES = 48
_CANDIDATES = 2048
_SIZES = (0, 1, 2, 3, 4, 5, 6, 7, 8, 11, 13, 15, 16, 17, 31, 32, 33, 47, 63, 64, 65, 96, 127, 128, 129, 160, 224, 255)

_ENDLESS = 1 << 60
_BEYOND = 1 << 61
"""No run has sizes as large: it is refused, and what int64 would make of them says nothing."""
_MAY_WRAP = (BinaryOp.ADD, BinaryOp.SUB, BinaryOp.MUL)

Numbers: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"
Mask: TypeAlias = "np.ndarray[Any, np.dtype[np.bool_]]"


@dataclass(frozen=True, slots=True)
class StorageRegion:
    """Bytes ``[offset, offset + size)`` of a storage; without a size, all behind the offset."""

    storage: Storage
    index: int
    offset: Dim
    size: Dim | None

    @property
    def place(self) -> tuple[Storage, int]:
        return self.storage, self.index


def _divided(function: Callable[[Numbers, Numbers], Numbers]) -> Callable[[Numbers, Numbers], Numbers]:
    return lambda a, b: function(a, np.where(b == 0, 1, b))


_MEANING: Mapping[BinaryOp, Callable[[Numbers, Numbers], Any]] = {
    BinaryOp.ADD: np.add,
    BinaryOp.SUB: np.subtract,
    BinaryOp.MUL: np.multiply,
    BinaryOp.FLOOR_DIV: _divided(np.floor_divide),
    BinaryOp.FLOOR_MOD: _divided(np.mod),
    BinaryOp.TRUNC_DIV: _divided(lambda a, b: np.sign(a) * np.sign(b) * (abs(a) // abs(b))),
    BinaryOp.TRUNC_MOD: _divided(np.fmod),
    BinaryOp.MIN: np.minimum,
    BinaryOp.MAX: np.maximum,
    BinaryOp.LT: np.less,
    BinaryOp.LE: np.less_equal,
    BinaryOp.GT: np.greater,
    BinaryOp.GE: np.greater_equal,
    BinaryOp.EQ: np.equal,
    BinaryOp.NE: np.not_equal,
    BinaryOp.AND: np.logical_and,
    BinaryOp.OR: np.logical_or,
}


@dataclass
class SampledSizes:
    """Values of dims, one for each sample: ``count`` of them, until :meth:`settle` has chosen those that the run would not refuse."""

    count: int = _CANDIDATES
    _symbols: dict[str, Numbers] = field(default_factory=dict)
    _known: dict[Expr, Numbers] = field(default_factory=dict)
    _beyond: set[int] = field(default_factory=set)
    """Samples that have a size beyond int64."""

    def settle(self, constraints: Sequence[Constraint], later: Iterable[Constraint], dims: Iterable[Dim]) -> None:
        """Keep samples for which ``constraints`` hold and no dim is negative or beyond; none, where nothing that was drawn is such.

        Args:
            later: constraints that only a part of the run depends on. Symbols are drawn such that they hold too, where that is easy.
        """
        for item in (*constraints, *later):
            if not item.lower:
                self._follow(item.actual, item.expected)
        valid = np.ones(self.count, np.bool_)
        for item in constraints:
            valid &= self.holds(item)
        for dim in dims:
            valid &= self.of(dim) >= 0
        chosen = np.flatnonzero(valid & self.sensible())[:SAMPLES]
        self._symbols = {name: numbers[chosen] for name, numbers in self._symbols.items()}
        self._known, self._beyond, self.count = {}, set(), len(chosen)

    def holds(self, constraint: Constraint) -> Mask:
        actual, expected = self.of(constraint.actual), self.of(constraint.expected)
        return actual >= expected if constraint.lower else actual == expected

    def sensible(self) -> Mask:
        """The samples for which no size that was asked for so far is beyond int64."""
        found = self.all()
        found[list(self._beyond)] = False
        return found

    def all(self) -> Mask:
        """Every sample."""
        return np.ones(self.count, np.bool_)

    def _follow(self, one: Dim, other: Dim) -> None:
        """Let a symbol that nothing else was said of be what it must equal."""
        for symbol, dim in ((one, other), (other, one)):
            if isinstance(symbol, Var) and symbol.name not in self._symbols | dict.fromkeys(dim_symbols([dim])):
                self._symbols[symbol.name] = self.of(dim)
                return

    def of(self, dim: Dim) -> Numbers:
        if isinstance(dim, int):
            return np.full(self.count, dim, np.int64)
        stack: list[Expr] = [dim]
        while stack:
            expr = stack[-1]
            missing = [c for c in expr.children() if c not in self._known]
            if expr in self._known or missing:
                stack = stack[:-1] if expr in self._known else [*stack, *missing]
                continue
            self._known[expr] = self._value(expr)
        return self._known[dim]

    def iterate(self, counter: str, limit: Dim | None) -> Mask:
        """Lets the iteration number ``counter`` stay below ``limit``; the samples for which there is an iteration."""
        drawn = self._drawn(counter)
        if limit is None:
            self._symbols[counter] = drawn % 7
            return self.all()
        trips = self.of(limit)
        self._symbols[counter] = drawn % np.maximum(trips, 1)
        return trips > 0

    def _value(self, expr: Expr) -> Numbers:
        match expr:
            case Const(value=value):
                return np.full(self.count, int(value), np.int64)
            case Var(name=name):
                if name not in self._symbols:
                    self._symbols[name] = np.asarray(_SIZES, np.int64)[self._drawn(name) % len(_SIZES)]
                return self._symbols[name]
            case Binary(op=op, lhs=lhs, rhs=rhs) if op in _MEANING:
                if op in _MAY_WRAP:
                    near = _MEANING[op](self._known[lhs].astype(np.float64), self._known[rhs].astype(np.float64))
                    self._beyond.update(np.flatnonzero(abs(near) >= _BEYOND).tolist())
                return np.asarray(_MEANING[op](self._known[lhs], self._known[rhs]), np.int64)
            case Unary(op=UnaryOp.NEG) | Unary(op=UnaryOp.NOT):
                (operand,) = (self._known[c] for c in expr.children())
                return -operand if expr.op is UnaryOp.NEG else np.asarray(operand == 0, np.int64)
            case Cast():
                return self._known[expr.children()[0]]
            case Select():
                condition, yes, no = (self._known[c] for c in expr.children())
                return np.where(condition != 0, yes, no)
        raise TypeError(f"{expr} is no size")

    def _drawn(self, name: str) -> Numbers:
        return np.random.default_rng(zlib.crc32(name.encode())).integers(0, 1 << 20, self.count)


@dataclass
class MemoryRegions:
    """Questions about regions, at the samples in ``mask``."""

    sizes: SampledSizes
    mask: Mask

    def overlap(self, one: StorageRegion, other: StorageRegion) -> bool:
        if one.place != other.place or one.size == 0 or other.size == 0:
            return False
        return self._any(self._meet(one, other))

    def counts(self, region: StorageRegion) -> bool:
        """Whether its size is a number of bytes: at least 0."""
        return region.size is None or not self._any(self.sizes.of(region.size) < 0)

    def within(self, inner: StorageRegion, outer: StorageRegion) -> bool:
        """Whether all of ``inner`` is in ``outer``; what is empty is everywhere."""
        if inner.place != outer.place or inner.size is None or outer.size is None:
            return False
        first, start = self.sizes.of(inner.offset), self.sizes.of(outer.offset)
        last, end = first + self.sizes.of(inner.size), start + self.sizes.of(outer.size)
        return not self._any((first < last) & ((first < start) | (last > end)))

    def ends_before(self, one: StorageRegion, other: StorageRegion) -> bool:
        """Whether ``other`` reaches at least as far as ``one``."""
        end, limit = self._ends(one)[1], self._ends(other)[1]
        return end is limit or not self._any(self.sizes.of(end) > self.sizes.of(limit))

    def start_together(self, one: StorageRegion, other: StorageRegion) -> bool:
        return one.place == other.place and self.equal(one.offset, other.offset)

    def end_together(self, one: StorageRegion, other: StorageRegion) -> bool:
        return one.place == other.place and self.equal(self._ends(one)[1], self._ends(other)[1])

    def equal(self, one: Dim, other: Dim) -> bool:
        if isinstance(one, int) and isinstance(other, int):
            return one == other
        return one is other or not self._any(self.sizes.of(one) != self.sizes.of(other))

    def _any(self, where: Mask | bool) -> bool:
        """Constants are compared whatever the samples are; there may be none that the run would take."""
        return where if isinstance(where, bool) else bool(np.any(where & self.mask & self.sizes.sensible()))

    def _meet(self, one: StorageRegion, other: StorageRegion) -> Mask | bool:
        first, second = self._ends(one), self._ends(other)
        if all(isinstance(d, int) for d in (*first, *second)):
            return bool(first[0] < second[1] and second[0] < first[1])
        (a, b), (c, d) = ((self.sizes.of(start), self.sizes.of(end)) for start, end in (first, second))
        return np.asarray((np.maximum(a, c) < np.minimum(b, d)), np.bool_)

    def _ends(self, region: StorageRegion) -> tuple[Dim, Dim]:
        return region.offset, region.offset + (_ENDLESS if region.size is None else region.size)
