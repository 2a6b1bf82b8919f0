"""Sets of axes that are numbers known at compile time, or symbols that the run defines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from compiler_service.compiler.tensor_expr.axes import normal_axes, require_few_axes
from compiler_service.compiler.tensor_expr.meaning.known import known_dims
from compiler_service.compiler.tensor_expr.tensor import Tensor
from shared_ir.dtype import DType
from shared_ir.expr import Expr, equal, lift, logical_and, logical_or, not_equal, select
from shared_ir.expr.dim import Dim, as_dim
from shared_ir.expr.simplify import unbounded


def _from_start(axis: Dim, rank: int) -> Dim:
    """``axis`` counted from the start, where only the run knows whether it is."""
    low, _ = unbounded().interval(lift(axis))
    return axis if low is not None and low >= 0 else as_dim(select(lift(axis) < 0, lift(axis) + rank, lift(axis)))


@dataclass(frozen=True)
class ChosenAxes:
    """Some of ``rank`` axes: different ones, each in ``[0, rank)``."""

    rank: int
    axes: tuple[Dim, ...]

    @classmethod
    def of(cls, x: Tensor, name: str, rank: int) -> ChosenAxes:
        """The axes that the elements of ``x`` name; the input is called ``name`` by ONNX.

        Raises:
            IngotError: UNSUPPORTED_ATTRIBUTE when the run computes them, TYPE_MISMATCH when one is out of range, LIMIT_EXCEEDED for
                very many.
        """
        found = known_dims(x, name)
        require_few_axes(max(rank, len(found)))
        numbers = [a for a in found if isinstance(a, int)]
        if len(numbers) == len(found):
            return cls(rank, normal_axes(numbers, rank))
        return cls(rank, tuple(_from_start(a, rank) for a in found))

    @property
    def numbers(self) -> tuple[int, ...] | None:
        """The axes, where they are known at compile time."""
        found = tuple(a for a in self.axes if isinstance(a, int))
        return found if len(found) == len(self.axes) else None

    def has(self, axis: int) -> Expr:
        """Whether ``axis`` is one of them."""
        result: Expr = lift(False, DType.BOOL)
        for chosen in self.axes:
            result = logical_or(result, equal(lift(chosen), axis))
        return result

    def places(self, axis: int) -> Iterator[tuple[int, Expr]]:
        """(j, whether ``axis`` is number j of the other axes, in order) for every j that is possible."""
        before: Expr = lift(0)
        for other in range(axis):
            before = before + select(self.has(other), 0, 1)
        left_out: Expr = lift(True, DType.BOOL)
        for chosen in self.axes:
            left_out = logical_and(left_out, not_equal(lift(chosen), axis))
        for place in range(max(0, axis - len(self.axes)), min(axis, self.rank - len(self.axes) - 1) + 1):
            yield place, logical_and(left_out, equal(before, place))

    def dropped(self, shape: Sequence[Dim]) -> tuple[Dim, ...]:
        """``shape`` without these axes."""
        kept: list[Expr] = [lift(0)] * (self.rank - len(self.axes))
        for axis in reversed(range(self.rank)):
            for place, is_here in self.places(axis):
                kept[place] = select(is_here, lift(shape[axis]), kept[place])
        return tuple(as_dim(d) for d in kept)

    def index(self, own: Sequence[Expr], chosen: Sequence[Expr]) -> tuple[Expr, ...]:
        """An index of all axes, from one of the other axes in order and one that gives ``chosen[axis]`` along these."""
        return tuple(self._along(axis, own, chosen[axis]) for axis in range(self.rank))

    def _along(self, axis: int, own: Sequence[Expr], chosen: Expr) -> Expr:
        found = chosen
        for place, is_here in self.places(axis):
            found = select(is_here, own[place], found)
        return found

    def inserted(self, shape: Sequence[Dim]) -> tuple[Dim, ...]:
        """A shape of all axes whose other axes are those of ``shape``; these have the extent 1."""
        found = []
        for axis in range(self.rank):
            extent = lift(1)
            for place, is_here in self.places(axis):
                extent = select(is_here, lift(shape[place]), extent)
            found.append(as_dim(extent))
        return tuple(found)

    def others(self, index: Sequence[Expr]) -> tuple[Expr, ...]:
        """The part of an index of all axes that belongs to the other axes."""
        kept = [lift(0)] * (self.rank - len(self.axes))
        for axis, i in enumerate(index):
            for place, is_here in self.places(axis):
                kept[place] = select(is_here, i, kept[place])
        return tuple(kept)

    def values_of(self, values: Sequence[Dim], default: Dim) -> list[Dim]:
        """For every axis, the value that goes with it: ``values[j]`` where it is axis j of these, else ``default``."""
        found = []
        for axis in range(self.rank):
            value = lift(default)
            for chosen, own in zip(self.axes, values, strict=True):
                value = select(equal(lift(chosen), axis), lift(own), value)
            found.append(as_dim(value))
        return found

    def pick(self, values: Sequence[Dim]) -> Dim:
        """``values[axis]`` of the one axis."""
        return as_dim(self.pick_index([lift(v) for v in values]))

    def pick_index(self, values: Sequence[Expr]) -> Expr:
        """``values[axis]`` of the one axis."""
        found = values[-1]
        for axis in reversed(range(len(values) - 1)):
            found = select(self.has(axis), values[axis], found)
        return found
