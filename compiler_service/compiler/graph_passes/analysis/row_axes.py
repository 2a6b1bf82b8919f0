"""Which axes of a tensor expression count the rows of a batch: those along which row ``i`` is made of row ``i`` of its operands alone.

It is read off the definition. An axis counts rows where its extent is ``batch * inner``, and position ``p`` along it belongs to row
``p // inner``. So the position is written as ``row * inner + within``, and then ``row`` and the number of rows may stand
nowhere in the body but where an operand's own axis of rows is read, at ``row * its inner + something below its inner``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from compiler_service.compiler.tensor_expr.tensor import Axis, Compute, Load, Tensor, loads
from shared_ir.expr import Expr, Var, lift, substitute
from shared_ir.expr.dim import Dim, as_dim, bind, dim_symbols
from shared_ir.expr.simplify import Interval, Simplifier

_ROW = Var("$$row")
_WITHIN = Var("$$within")


@dataclass(frozen=True, slots=True)
class RowAxis:
    """Position ``p`` along axis ``axis`` belongs to row ``p // inner``."""

    axis: int
    inner: Dim = 1


Rows: TypeAlias = frozenset[RowAxis] | None
"""What is known of a value: axes that count rows, each of which would do. None of them: it is the same whatever the rows are
and however many. ``None``: nothing is known."""

SAME: frozenset[RowAxis] = frozenset()
"""Of a value that depends on no row, nor on how many there are."""


@dataclass(frozen=True)
class BatchRows:
    """The rows of a run: as many as the symbol ``name`` says. ``others`` are the other symbols that inputs define."""

    name: str
    others: frozenset[str]

    @cached_property
    def symbol(self) -> Var:
        return Var(self.name)

    def is_same(self, dims: Iterable[Dim]) -> bool:
        """Whether ``dims`` depend neither on the number of rows, nor on what is in them."""
        return dim_symbols(dims) <= self.others

    def axes(self, shape: tuple[Dim, ...]) -> Iterator[RowAxis]:
        """The axes of ``shape`` that may count rows; the extents of all others are the same for any rows."""
        for axis, extent in enumerate(shape):
            if self.is_same((*shape[:axis], *shape[axis + 1 :])) and self.name in dim_symbols([extent]):
                inner = bind(extent, {self.name: 1})
                if self.is_same([inner]) and as_dim(self.symbol * lift(inner)) == extent:
                    yield RowAxis(axis, inner)


def rows_of(tensor: Tensor, known: Mapping[Tensor, Rows], batch: BatchRows) -> Rows:
    """What is known of ``tensor``, which is computed from those in ``known``."""
    op = tensor.op
    if not isinstance(op, Compute) or any(known.get(load.tensor) is None for load in loads(op.body)):
        return None
    if not batch.is_same(a.extent for a in op.all_axes[len(op.axes) :]):
        return None
    if batch.is_same(tensor.shape):
        return SAME if _Reading(op, None, known, batch).is_apart() else None
    found = (axis for axis in batch.axes(tensor.shape) if _Reading(op, axis, known, batch).is_apart())
    return frozenset(found) or None


@dataclass(frozen=True)
class _Reading:
    """What ``op`` reads where its rows are counted by ``rows``; ``None``: it has none."""

    op: Compute
    rows: RowAxis | None
    known: Mapping[Tensor, Rows]
    batch: BatchRows

    def is_apart(self) -> bool:
        """Whether one row is made of the same row of every operand alone."""
        seen = set[Expr]()
        stack = [self._by_row(self.op.body)]
        while stack:
            node = stack.pop()
            if node in seen:
                continue
            seen.add(node)
            if isinstance(node, Var) and node not in self._free:
                return False
            left = self._read(node) if isinstance(node, Load) else node.children()
            if left is None:
                return False
            stack.extend(left)
        return True

    def _read(self, load: Load) -> tuple[Expr, ...] | None:
        """What is left to be looked at of the indices of ``load``; ``None`` where it reads another row."""
        rows = self.known[load.tensor]
        indices = tuple(self._simplify(i) for i in load.indices)
        if not rows:
            return indices if rows is not None else None
        for own in rows:
            within = self._simplify(indices[own.axis] - _ROW * lift(own.inner))
            if self._is_below(within, own.inner):
                return (*indices[: own.axis], within, *indices[own.axis + 1 :])
        return None

    def _is_below(self, position: Expr, inner: Dim) -> bool:
        if position == _WITHIN:
            return self.rows is not None and self.rows.inner == inner
        low, high = self._simplify.interval(position)
        return isinstance(inner, int) and low is not None and low >= 0 and high is not None and high < inner

    def _by_row(self, body: Expr) -> Expr:
        if self.rows is None:
            return body
        position = _ROW if self.rows.inner == 1 else _ROW * lift(self.rows.inner) + _WITHIN
        return substitute(body, {self.op.axes[self.rows.axis].var: position})

    @cached_property
    def _free(self) -> frozenset[Expr]:
        """What may stand anywhere: positions along other axes and within a row, and sizes that are the same for any rows."""
        counting = {self.op.axes[self.rows.axis].var} if self.rows is not None else set()
        positions = {a.var for a in self.op.all_axes} - counting
        return frozenset([_WITHIN, *positions, *(Var(name) for name in self.batch.others)])

    @cached_property
    def _simplify(self) -> Simplifier:
        ranges = dict(filter(None, map(_range, self.op.all_axes)))
        if self.rows is not None and isinstance(self.rows.inner, int):
            ranges[_WITHIN.name] = (0, self.rows.inner - 1)
        return Simplifier(ranges)


def _range(axis: Axis) -> tuple[str, Interval] | None:
    return (axis.var.name, (0, axis.extent - 1)) if isinstance(axis.extent, int) and axis.extent > 0 else None
