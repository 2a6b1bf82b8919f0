"""Strided accesses that together cover memory without gaps become contiguous ones and shuffles of registers.

::

    y[0:+4] = x[i + ramp(0, n, 4)]            row_0 = x[i:+4]
    y[m:+4] = x[i + ramp(1, n, 4)]      ->    row_1 = x[i + n:+4]      ... (16 elements, read row by row)
    y[2m:+4] = ...                            y[0:+4] = shuffle(shuffle(row_0, row_1, ..), shuffle(row_2, row_3, ..), ..)

A square of loads is transposed in ``lanes * log2(lanes)`` shuffles, where gathering takes ``lanes ** 2`` loads. Stores that
interleave a few vectors (pixels of 3 channels) become as many contiguous stores.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from compiler_service.compiler.loop_ir.ir import (
    Block,
    Buffer,
    BufferLoad,
    For,
    Function,
    Let,
    Ramp,
    Shuffle,
    Statement,
    Store,
    VectorVar,
    lanes_of,
    substatements,
    walk_statements,
)
from compiler_service.compiler.loop_ir.passes.permutations import permutations
from compiler_service.compiler.loop_ir.passes.rewrite import block, with_expressions, with_substatements
from shared_ir.dtype import DType
from shared_ir.expr import Const, Expr, Select, transform, walk
from shared_ir.expr.simplify import simplify

_LANE_BITS = 128
"""Shuffles within such a part of a register are the cheap ones on every architecture."""
_MOST_INTERLEAVED = 8


def shuffle(function: Function) -> Function:
    """The same function with groups of strided accesses done in rows; flat and simplified before and after."""
    binders = {s.var.name for s in walk_statements(function.body) if isinstance(s, Let | For)}
    taken = binders | {v.name for v in (*function.symbols, function.task)}
    body = _Shuffler(taken).statement(function.body)
    return function if body is function.body else replace(function, body=body)


class _Strided(NamedTuple):
    """Elements ``base + offset + stride * lane`` of ``buffer``."""

    buffer: Buffer
    base: Expr
    stride: Expr
    lanes: int


Definitions = list[tuple[VectorVar, Expr]]
"""Lets, outermost first."""


@dataclass
class _Shuffler:
    taken: set[str]
    _count: int = field(default=0)

    def statement(self, statement: Statement) -> Statement:
        if isinstance(statement, Store):
            return block(self.run([statement]))
        if not isinstance(statement, Block):
            parts = tuple([self.statement(part) for part in substatements(statement)])
            return with_substatements(statement, parts)
        new: list[Statement] = []
        for part in _runs(statement.statements):
            new += self.run(part) if isinstance(part, list) else [self.statement(part)]
        same = len(new) == len(statement.statements) and all(map(operator.is_, new, statement.statements))
        return statement if same else block(new)

    def run(self, stores: Sequence[Store]) -> Sequence[Statement]:
        """Stores one after the other, rewritten."""
        definitions: Definitions = []
        run = self.stores(self.loads(list(stores), definitions), definitions)
        if not definitions:
            return stores
        body = block(run)
        for var, value in reversed(definitions):
            body = Let(var, value, body)
        return [body]

    def name(self, dtype: DType, lanes: int) -> VectorVar:
        while f"lanes_{self._count}" in self.taken:
            self._count += 1
        name = f"lanes_{self._count}"
        self.taken.add(name)
        return VectorVar(name, dtype, lanes)

    def define(self, value: Expr, definitions: Definitions) -> VectorVar:
        var = self.name(value.dtype, lanes_of(value))
        definitions.append((var, value))
        return var

    # -- loads

    def loads(self, stores: list[Store], definitions: Definitions) -> list[Store]:
        """Every square of strided loads, or the half or quarter of one, is read in rows and transposed; what picks from a short
        stretch is permuted."""
        written = {s.buffer for s in stores}
        groups: dict[_Strided, dict[int, list[BufferLoad]]] = {}
        read = dict.fromkeys(x for s in stores for x in _unconditional_loads(s.value) if x.buffer not in written)
        for load in read:
            found = _strided(load)
            if found is not None:
                groups.setdefault(found[0], {}).setdefault(found[1], []).append(load)
        replaced = permutations(read, lambda row: self.define(row, definitions))
        for access, members in groups.items():
            for first, count in _squares(sorted(members), access):
                columns = self.square(access, first, count, definitions)
                for i, column in enumerate(columns):
                    replaced.update(dict.fromkeys(members[first + i], column))
        if not replaced:
            return stores
        memo: dict[Expr, Expr] = dict(replaced)
        return [_with_value(s, transform(s.value, lambda e: None, memo)) for s in stores]

    def square(self, access: _Strided, first: int, count: int, definitions: Definitions) -> list[VectorVar]:
        """``count`` columns; where they are fewer than lanes, several short rows are one vector."""
        start = access.base + first
        part, together = _part(count, access.buffer.dtype.itemsize), access.lanes // count
        rows: list[Expr] = []
        for group in range(0, access.lanes, part * together):
            for i in range(group, group + part):
                read = [self.row(access, start, lane, count) for lane in range(i, i + part * together, part)]
                rows.append(self.joined([self.define(row, definitions) for row in read], definitions))

        def combine(lhs: Expr, rhs: Expr, order: tuple[int, ...]) -> Expr:
            return self.define(Shuffle(lhs, rhs, order), definitions)

        columns = transposed(rows, access.lanes, access.buffer.dtype.itemsize, combine)
        return [c for c in columns if isinstance(c, VectorVar)]

    def row(self, access: _Strided, start: Expr, lane: int, count: int) -> BufferLoad:
        return BufferLoad(access.buffer, (Ramp(simplify(start + access.stride * lane), Const(1), count),))

    def joined(self, vectors: list[VectorVar], definitions: Definitions) -> VectorVar:
        """One vector after the other."""
        while len(vectors) > 1:
            lanes = tuple(range(2 * vectors[0].lanes))
            pairs = zip(vectors[::2], vectors[1::2], strict=True)
            vectors = [self.define(Shuffle(a, b, lanes), definitions) for a, b in pairs]
        return vectors[0]

    # -- stores

    def stores(self, stores: list[Store], definitions: Definitions) -> list[Store]:
        """Vectors that one after the other fill every ``k``-th element are interleaved and stored in order."""
        read = {x.buffer for s in stores for x in walk(s.value) if isinstance(x, BufferLoad)}
        groups: dict[_Strided, dict[int, int]] = {}
        for i, store in enumerate(stores):
            found = _strided(store)
            if found is not None and store.buffer not in read:
                groups.setdefault(found[0], {})[found[1]] = i
        gone: dict[int, list[Store]] = {}
        for access, members in groups.items():
            for first in _interleaved(members, access):
                stride = len(range(first, first + _constant(access.stride)))
                places = [members[first + k] for k in range(stride)]
                values = [self.define(stores[i].value, definitions) for i in places]
                gone.update({i: [] for i in places})
                gone[max(places)] = list(_in_order(access, first, values))
        return [s for i, store in enumerate(stores) for s in gone.get(i, [store])]


def _runs(statements: Sequence[Statement]) -> Iterator[list[Store] | Statement]:
    """Consecutive stores together, everything else as it comes."""
    run: list[Store] = []
    for statement in statements:
        if isinstance(statement, Store):
            run.append(statement)
            continue
        if run:
            yield run
            run = []
        yield statement
    if run:
        yield run


def _unconditional_loads(value: Expr) -> Iterator[BufferLoad]:
    """Loads that are performed whatever the data is."""
    stack, seen = [value], set[Expr]()
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        if isinstance(node, Select):
            stack.append(node.cond)
            continue
        if isinstance(node, BufferLoad):
            yield node
        stack.extend(node.children())


def _strided(access: BufferLoad | Store) -> tuple[_Strided, int] | None:
    """An unmasked access by a ramp of stride 2 or more: the group of its like, and its constant offset."""
    index = access.indices[0]
    if access.mask is not None or not isinstance(index, Ramp) or index.stride == Const(1):
        return None
    if isinstance(index.stride, Const) and int(index.stride.value) < 2:
        return None
    base = simplify(index.base)
    offset = _constant_term(base)
    return _Strided(access.buffer, simplify(base - offset), index.stride, index.lanes), offset


def _constant_term(expr: Expr) -> int:
    """The constant of a sum in normal form, where it comes last."""
    if isinstance(expr, Const):
        return int(expr.value)
    rest = getattr(expr, "rhs", None)
    sign = {"add": 1, "sub": -1}.get(str(getattr(expr, "op", "")), 0)
    return sign * int(rest.value) if isinstance(rest, Const) else 0


def _constant(expr: Expr) -> int:
    return int(expr.value) if isinstance(expr, Const) else 0


def _squares(offsets: list[int], access: _Strided) -> Iterator[tuple[int, int]]:
    """First offset and length of disjoint runs of consecutive ones: as many as there are lanes (a power of two), a half or a
    quarter, which fill at least a part of a register."""
    sizes = [access.lanes // k for k in (1, 2, 4) if access.lanes % k == 0 and access.lanes & (access.lanes - 1) == 0]
    sizes = [s for s in sizes if s == access.lanes or s * access.buffer.dtype.itemsize * 8 >= _LANE_BITS]
    i = 0
    while i < len(offsets):
        size = next((s for s in sizes if offsets[i + s - 1 : i + s] == [offsets[i] + s - 1]), 0)
        if size:
            yield offsets[i], size
        i += max(1, size)


def _part(lanes: int, itemsize: int) -> int:
    """Elements of the part of a register within which shuffles are cheap."""
    return max(1, min(lanes, _LANE_BITS // 8 // itemsize))


def _interleaved(members: dict[int, int], access: _Strided) -> Iterator[int]:
    """First offsets of runs that fill the stride."""
    stride = _constant(access.stride)
    if not 2 <= stride <= _MOST_INTERLEAVED:
        return
    for first in sorted(members):
        if first % stride == min(members) % stride and all(first + k in members for k in range(stride)):
            yield first


def _in_order(access: _Strided, first: int, values: Sequence[Expr]) -> Iterator[Store]:
    """Stores of the elements of ``values`` taken in turn."""
    lanes, count = access.lanes, len(values)
    for part in range(count):
        elements = range(part * lanes, (part + 1) * lanes)
        vector = values[0]
        for k in range(1, count):
            order = [lanes + e // count if e % count == k else i for i, e in enumerate(elements)]
            if k == 1:  # not yet in place
                order = [lanes + e // count if e % count == 1 else e // count for e in elements]
            vector = Shuffle(vector, values[k], tuple(order))
        start = simplify(access.base + (first + part * lanes))
        yield Store(access.buffer, (Ramp(start, Const(1), lanes),), vector)


def _with_value(store: Store, value: Expr) -> Store:
    changed = with_expressions(store, lambda e: value if e is store.value else e)
    assert isinstance(changed, Store)
    return changed


# -- transposition

Combine = Callable[[Expr, Expr, tuple[int, ...]], Expr]


def transposed(rows: Sequence[Expr], lanes: int, itemsize: int, combine: Combine) -> list[Expr]:
    """The columns of a square of ``lanes`` rows, or those of several squares of ``len(rows)`` columns each, one below the other:
    group ``g`` of as many vectors as a part has elements then holds their rows from ``g * part * squares`` on, those of
    each next square a part further.

    Parts of :data:`_LANE_BITS` are transposed in place first (zip), then moved between registers (unzip of whole parts).
    """
    part = _part(len(rows), itemsize)
    groups = [_zipped(rows[i : i + part], lanes, part, combine) for i in range(0, len(rows), part)]
    columns: list[Expr] = [rows[0]] * len(rows)
    for j in range(part):
        moved = _unzipped([g[j] for g in groups], lanes, part, combine)
        for b, column in enumerate(moved):
            columns[b * part + j] = column
    return columns


def _zipped(rows: Sequence[Expr], lanes: int, part: int, combine: Combine) -> list[Expr]:
    """Vector ``j`` holds in each part what the rows have there at place ``j``."""
    count = len(rows)
    if count == 1:
        return [rows[0]]
    half = count // 2
    first, second = (_zipped(rows[i : i + half], lanes, part, combine) for i in (0, half))
    result: list[Expr] = []
    for a, b in zip(first, second, strict=True):
        for start in (0, part // 2):
            order: list[int] = []
            for at in range(0, lanes, part):
                for unit in range(at + start, at + start + part // 2, half):
                    order += [*range(unit, unit + half), *range(lanes + unit, lanes + unit + half)]
            result.append(combine(a, b, tuple(order)))
    return result


def _unzipped(vectors: Sequence[Expr], lanes: int, part: int, combine: Combine) -> list[Expr]:
    """Vector ``b`` consists of part ``b`` of every vector."""
    if len(vectors) == 1:
        return [vectors[0]]
    blocks = lanes // part
    results: list[list[Expr]] = []
    for odd in (0, 1):
        order = [p * part + i for p in range(odd, 2 * blocks, 2) for i in range(part)]
        pairs = [combine(a, b, tuple(order)) for a, b in zip(vectors[::2], vectors[1::2], strict=True)]
        results.append(_unzipped(pairs, lanes, part, combine))
    even, uneven = results
    return [v for pair in zip(even, uneven, strict=True) for v in pair]
