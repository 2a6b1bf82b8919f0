"""A loop function as a tree of loops with what each of them does itself: operations, accesses to memory, branches."""

from __future__ import annotations

import enum
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from compiler_service.compiler.loop_ir.ir import (
    Allocate,
    Broadcast,
    Buffer,
    BufferLoad,
    BufferScope,
    For,
    ForKind,
    Function,
    If,
    Let,
    Prefetch,
    Ramp,
    Shuffle,
    Statement,
    Store,
    VectorReduce,
    expressions_of,
    substatements,
)
from compiler_service.compiler.schedule.model.tiles import CACHE_LINE_BYTES
from compiler_service.compiler.tune.cost.scope import LoopScope
from shared_ir.expr import (
    COMPARISONS,
    Binary,
    BinaryOp,
    Cast,
    Const,
    Expr,
    Reinterpret,
    Select,
    Unary,
    UnaryOp,
    Var,
    lift,
)

EXTENT_OF_SYMBOL = 64
"""What a symbol is taken for that nothing is said of."""


class OperationKind(enum.StrEnum):
    """Operations that cost about as much as each other."""

    ADD = "add"  # of floats; also what changes a sign
    MULTIPLY = "multiply"
    FUSED = "fused"  # products that are added to something at once; counted as a product and a sum too
    DIVIDE = "divide"  # of floats; square roots
    FUNCTION = "function"  # exp, tanh, pow, ...
    SELECT = "select"  # minima, comparisons, selections
    INTEGER = "integer"  # of integers that are values, bits included
    INTEGER_DIVIDE = "integer divide"
    DOT = "dot"  # of four bytes
    CONVERT = "convert"  # between types
    SHUFFLE = "shuffle"  # lanes moved, or reduced to a scalar
    INDEX = "index"  # of integers that say where, whether or how often


_SUMS = (BinaryOp.ADD, BinaryOp.SUB)
_OF_FLOATS: Mapping[UnaryOp | BinaryOp, OperationKind] = {
    **dict.fromkeys((*_SUMS, UnaryOp.NEG, UnaryOp.ABS), OperationKind.ADD),
    BinaryOp.MUL: OperationKind.MULTIPLY,
    **dict.fromkeys((BinaryOp.DIV, UnaryOp.SQRT, UnaryOp.RSQRT, UnaryOp.RECIPROCAL), OperationKind.DIVIDE),
    **dict.fromkeys((BinaryOp.MIN, BinaryOp.MAX, BinaryOp.MAX_NUMBER), OperationKind.SELECT),
    **dict.fromkeys((UnaryOp.FLOOR, UnaryOp.CEIL, UnaryOp.ROUND, UnaryOp.TRUNC), OperationKind.CONVERT),
    **dict.fromkeys((UnaryOp.IS_NAN, UnaryOp.IS_INF), OperationKind.SELECT),
}
"""Those of floats that are no functions."""
_OF_INTEGERS: Mapping[UnaryOp | BinaryOp, OperationKind] = {
    **dict.fromkeys((BinaryOp.DOT4, BinaryOp.SIGNED_DOT4), OperationKind.DOT),
    **dict.fromkeys((BinaryOp.MIN, BinaryOp.MAX), OperationKind.SELECT),
    **dict.fromkeys(
        (BinaryOp.FLOOR_DIV, BinaryOp.FLOOR_MOD, BinaryOp.TRUNC_DIV, BinaryOp.TRUNC_MOD), OperationKind.INTEGER_DIVIDE
    ),
}


def kind_of(expr: Expr) -> OperationKind | None:
    """What kind of operation ``expr`` is, where it is a value; None of what costs nothing."""
    match expr:
        case Binary(op=op) if op in COMPARISONS:
            return OperationKind.SELECT
        case Select():
            return OperationKind.SELECT
        case Unary(op=op) | Binary(op=op):
            if expr.children()[0].dtype.is_float:
                return _OF_FLOATS.get(op, OperationKind.FUNCTION)
            return _OF_INTEGERS.get(op, OperationKind.INTEGER)
        case Cast() | Reinterpret():
            return OperationKind.CONVERT
        case Shuffle() | VectorReduce():
            return OperationKind.SHUFFLE
    return None


@dataclass(frozen=True, eq=False)
class MemoryAccess:
    """An element, or a vector of them, that is read or written at a place.

    Attributes:
        instances: how often the instruction runs, over all tasks; copies of a loop that is unrolled count, lanes do not.
        lanes: elements of one instruction.
    """

    buffer: Buffer
    indices: tuple[Expr, ...]
    is_store: bool
    is_masked: bool
    scope: LoopScope
    instances: float
    lanes: float

    @property
    def bytes(self) -> float:
        """Of all instances together."""
        return self.instances * self.lanes * self.buffer.dtype.itemsize

    @cached_property
    def shape(self) -> tuple[float, ...]:
        return tuple(float(self.scope.extent(extent)) for extent in self.buffer.shape)

    def stride(self, first: int, last: int) -> float:
        """Elements from one turn of the loops at depths ``first`` to below ``last`` to the next, on average."""
        turns = self.scope.turns(range(first, last)) - 1
        if not turns:
            return 0.0
        pitch, moved = 1.0, 0.0
        for index, extent in zip(reversed(self.indices), reversed(self.shape), strict=True):
            moved += pitch * self.scope.width(index, first, last)
            pitch *= max(1.0, extent)
        return moved / turns

    @cached_property
    def _axes(self) -> tuple[tuple[Expr, frozenset[int], int, float], ...]:
        """(index, depths of the loops that it depends on, its lanes, extent) of each axis, the last one first."""
        scope, indices = self.scope, reversed(self.indices)
        found = zip(indices, reversed(self.shape), strict=True)
        return tuple((index, scope.levels(index), scope.lanes(index), max(1.0, extent)) for index, extent in found)

    @cached_property
    def lane_stride(self) -> float:
        """Elements from one lane to the next; 0 where all lanes are one element, or there is but one."""
        vectors = [loop.depth for loop in self.scope.loops if loop.kind is ForKind.VECTORIZED]
        if vectors:
            return self.stride(vectors[-1], vectors[-1] + 1)
        ramps = [i for i in self.indices if isinstance(i, Ramp)]
        return abs(float(ramps[-1].stride.value)) if ramps and isinstance(ramps[-1].stride, Const) else 0.0

    def footprint(self, depth: int) -> tuple[float, float]:
        """(distinct bytes, bytes of the cache lines that they lie in) of the loops from ``depth`` on, those around them standing still."""
        scope, end = self.scope, len(self.scope.loops)
        item, elements, lines, is_last = self.buffer.dtype.itemsize, 1.0, 1.0, True
        for index, levels, lanes, extent in self._axes:
            span = min(scope.width(index, depth, end) + 1, extent)
            turns = lanes
            for level in levels:
                turns *= scope.loops[level].extent if level >= depth else 1
            count = min(span, turns)
            elements *= count
            lines *= min(count, max(1.0, span * item / CACHE_LINE_BYTES)) if is_last else count
            is_last = False
        return elements * item, max(elements * item, lines * CACHE_LINE_BYTES)


@dataclass(eq=False)
class LoopNode:
    """A loop whose turns are run one after the other, and what stands in it but in none of these inside: loops that are unrolled or vectors
    are copies and lanes of what they hold.

    Attributes:
        scope: of its body.
        trips: how often its body runs in all tasks together.
        operations, elements: instructions in it by their kind, and results of theirs, lanes counted; both of all trips.
        branches: how often it comes by a condition.
        prefetches: how often it asks for a cache line.
        copies: the most that anything in it is copied.
    """

    scope: LoopScope
    inner: list[LoopNode] = field(default_factory=list)
    accesses: list[MemoryAccess] = field(default_factory=list)
    operations: dict[OperationKind, float] = field(default_factory=lambda: dict.fromkeys(OperationKind, 0.0))
    elements: dict[OperationKind, float] = field(default_factory=lambda: dict.fromkeys(OperationKind, 0.0))
    branches: float = 0.0
    prefetches: float = 0.0
    copies: float = 1.0

    @property
    def extent(self) -> int:
        return self.scope.loops[-1].extent

    @cached_property
    def trips(self) -> float:
        return self.scope.runs

    def walk(self) -> Iterator[LoopNode]:
        """It and all loops in it, outer ones first."""
        stack = [self]
        while stack:
            node = stack.pop()
            yield node
            stack.extend(reversed(node.inner))

    def all_accesses(self) -> Iterator[MemoryAccess]:
        """Those in it, wherever."""
        for node in self.walk():
            yield from node.accesses

    @cached_property
    def footprints(self) -> Mapping[Buffer, tuple[float, float]]:
        """For each buffer, :meth:`MemoryAccess.footprint` of one run of the loop, the largest of any access to it."""
        return _largest(self.all_accesses(), self.scope.loops[-1].depth)

    @cached_property
    def working_set(self) -> float:
        """Bytes of the cache lines that one run of the loop touches."""
        return sum(lines for _, lines in self.footprints.values())

    def traffic(self, sizes: tuple[int, ...]) -> tuple[float, ...]:
        """Bytes that one run of the loop brings into caches of these sizes, the smallest first, each empty at the beginning: the lines of
        whatever loops fit are brought once for each time that they are begun."""
        if self.working_set <= sizes[0]:
            return (self.working_set,) * len(sizes)
        own = sum(lines for _, lines in _largest(self.accesses, len(self.scope.loops)).values())
        turn = [own] * len(sizes)
        for inner in self.inner:
            turn = [a + b for a, b in zip(turn, inner.traffic(sizes), strict=True)]
        return tuple(
            self.working_set if self.working_set <= size else max(self.working_set, bytes * self.extent)
            for size, bytes in zip(sizes, turn, strict=True)
        )


def _largest(accesses: Iterable[MemoryAccess], depth: int) -> dict[Buffer, tuple[float, float]]:
    found: dict[Buffer, tuple[float, float]] = {}
    for access in accesses:
        own, known = access.footprint(depth), found.get(access.buffer, (0.0, 0.0))
        found[access.buffer] = max(own[0], known[0]), max(own[1], known[1])
    return found


@dataclass(frozen=True)
class LoopTree:
    """A function.

    Attributes:
        root: the loop over its tasks.
        allocated: bytes of each buffer that it makes, by scope.
        loops: in its text, by their kind, the one over tasks included.
        depth: loops around its innermost statement.
    """

    root: LoopNode
    allocated: Mapping[BufferScope, tuple[float, ...]]
    loops: Mapping[ForKind, int]
    depth: int
    branches: int
    statements: int


def loop_tree(function: Function, sizes: Mapping[str, int]) -> LoopTree:
    """The loops of ``function`` where its symbols have these ``sizes``; those that are not named have :data:`EXTENT_OF_SYMBOL`."""
    symbols = {symbol: sizes.get(symbol.name, EXTENT_OF_SYMBOL) for symbol in function.symbols}
    tasks = LoopScope((), symbols).extent(lift(function.tasks))
    scope = LoopScope.of_tasks(function.task, tasks, symbols)
    root, loops, depth, branches, statements = LoopNode(scope), Counter({ForKind.SERIAL: 1}), 1, 0, 0
    allocated: dict[BufferScope, list[float]] = {BufferScope.STACK: [], BufferScope.SCRATCH: []}
    pending: list[tuple[Statement, LoopScope, LoopNode]] = [(function.body, scope, root)]
    while pending:
        statement, scope, node = pending.pop()
        statements += 1
        match statement:
            case For():
                _count(node, expressions_of(statement), scope, positions=True)
                loops[statement.kind] += 1
                scope = scope.inside(statement)
                depth = max(depth, len(scope.loops))
                if statement.kind is ForKind.SERIAL:
                    node.inner.append(inner := LoopNode(scope))
                    node = inner
            case Let(var=var, value=value):
                _count(node, (value,), scope, positions=not value.dtype.is_float)
                scope = scope.with_value(var, value)
            case Allocate(buffer=buffer):
                elements = math.prod(scope.extent(extent) for extent in buffer.shape)
                allocated[buffer.scope].append(float(elements * buffer.dtype.itemsize))
            case If(cond=cond):
                _count(node, (cond,), scope, positions=True)
                branches += 1
                node.branches += scope.runs * scope.copies
            case Prefetch():
                node.prefetches += scope.runs * scope.copies
            case Store():
                _store(node, statement, scope)
        pending.extend((part, scope, node) for part in reversed(substatements(statement)))
    return LoopTree(root, {k: tuple(v) for k, v in allocated.items()}, loops, depth, branches, statements)


def _store(node: LoopNode, store: Store, scope: LoopScope) -> None:
    own = (*store.indices, store.value)
    _count(node, (store.value, *(() if store.mask is None else (store.mask,))), scope, positions=False)
    _count(node, store.indices, scope, positions=True)
    levels = frozenset().union(*map(scope.levels, own))
    instances, lanes = scope.instances(levels)
    lanes *= max(map(scope.lanes, own))
    access = MemoryAccess(store.buffer, store.indices, True, store.mask is not None, scope, instances, lanes)
    node.accesses.append(access)
    node.copies = max(node.copies, scope.copies)


def _count(node: LoopNode, roots: tuple[Expr, ...], scope: LoopScope, *, positions: bool) -> None:
    """Add the operations and loads of expressions to ``node``; of ``positions`` all operations say where to read or how often."""
    pending, seen = [(root, positions) for root in roots], set[Expr]()
    while pending:
        expr, says_where = pending.pop()
        if expr in seen or isinstance(expr, Const | Var):
            continue
        seen.add(expr)
        instances, lanes = scope.instances(scope.levels(expr))
        if isinstance(expr, BufferLoad):
            lanes *= max([1, *map(scope.lanes, expr.indices)])
            masked = expr.mask is not None
            node.accesses.append(MemoryAccess(expr.buffer, expr.indices, False, masked, scope, instances, lanes))
        kind = OperationKind.INDEX if says_where else kind_of(expr)
        if kind is not None and not isinstance(expr, BufferLoad | Ramp | Broadcast):
            lanes *= scope.lanes(expr)
            node.operations[kind] += instances
            node.elements[kind] += instances * lanes
            if kind is OperationKind.ADD and any(
                isinstance(e, Binary) and e.op is BinaryOp.MUL for e in expr.children()
            ):
                node.operations[OperationKind.FUSED] += instances
                node.elements[OperationKind.FUSED] += instances * lanes
        inside = says_where or isinstance(expr, BufferLoad | Ramp)
        pending.extend((part, inside) for part in expr.children())
