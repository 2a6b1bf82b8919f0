"""Ranges of axes while a nest is being built, and the region of a producer that a consumer needs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from compiler_service.compiler.schedule.language.state import KernelStage, ScheduleState
from compiler_service.compiler.tensor_expr.tensor import Axis, Load, axis_var, loads
from shared_ir.expr import (
    Binary,
    BinaryOp,
    Const,
    Expr,
    Select,
    Var,
    lift,
    maximum,
    minimum,
    substitute,
    variables,
    walk,
)
from shared_ir.expr.dim import Dim, as_dim
from shared_ir.expr.simplify import Interval, Simplifier


@dataclass(frozen=True, slots=True)
class Range:
    """Where an axis stands: the remaining loops cover [base, base + extent).

    Attributes:
        interior: conditions that hold away from the ends of the axis hold here.
        limit: only offsets below it are wanted; the rest of a vector is masked out.
        valid: the mask, once the vector loop is open.
        origin: base of the tile that the lanes of a vectorised reduction count from.
        lanes: the variable of the open vector loop and how many of its values are wanted, where that is known.
    """

    base: Expr
    extent: Dim
    interior: bool = field(default=False, kw_only=True)
    limit: Expr | None = None
    valid: Expr | None = None
    origin: Expr | None = None
    lanes: tuple[str, int] | None = None


_DIVISIONS = frozenset({BinaryOp.FLOOR_DIV, BinaryOp.FLOOR_MOD})

Ranges = Mapping[str, Range]
"""By axis name, for the axes of one stage."""


def _sum(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else a + b


def _divides(expr: Expr) -> bool:
    return isinstance(expr, Binary) and expr.op in _DIVISIONS


def whole(stage: KernelStage) -> dict[str, Range]:
    """Every axis in full."""
    return {a.name: Range(lift(0), a.extent) for a in stage.compute.all_axes}


def at_base(expr: Expr, ranges: Ranges) -> Expr:
    """``expr`` over axes, with every axis at its base."""
    return substitute(expr, {axis_var(name): r.base for name, r in ranges.items()})


class Regions:
    """Finds what part of a producer is needed, by interval arithmetic on index expressions."""

    def __init__(self, state: ScheduleState, simplifier: Simplifier) -> None:
        self._state = state
        self._simplify = simplifier
        self._behind: dict[tuple[str, str], bool] = {}

    def needed(self, producer: KernelStage, consumer: KernelStage, ranges: Ranges) -> dict[str, Range]:
        """Ranges of the axes of ``producer`` that ``consumer`` (standing at ``ranges``) needs, directly or through
        stages between them; reduction axes of those stages run in full."""
        order = list(self._state.stages.values())
        found: dict[str, Ranges] = {consumer.name: ranges}
        for stage in reversed(order[: order.index(consumer) + 1] if consumer in order else order):
            if stage.name not in found:
                continue
            standing = _Standing(found[stage.name], self._simplify)
            for load in dict.fromkeys(loads(stage.body)):
                source = self._state.stage_of(load.tensor)
                if source is not None:
                    region = self._ended(source, load, standing)
                    known = found.get(source.name)
                    found[source.name] = region if known is None else self._union(known, region, source)
        return {**whole(producer), **found[producer.name]}

    def _ended(self, source: KernelStage, load: Load, standing: _Standing) -> Ranges:
        """The region of ``source`` that ``load`` needs, and nothing behind the ends of its axes where that would be read."""
        region = standing.region(load, source)
        for axis, index in zip(source.compute.axes, load.indices, strict=True):
            here = region[axis.name]
            if isinstance(here.extent, int) and standing.is_clipped(index) and self._reads_behind(source, axis):
                end = as_dim(self._simplify(minimum(lift(here.extent), lift(axis.extent) - here.base)))
                region = {**region, axis.name: replace(here, extent=end)}
        return region

    def _reads_behind(self, stage: KernelStage, axis: Axis) -> bool:
        """Whether ``stage`` may read behind the end of an argument for elements behind the end of ``axis``."""
        key = (stage.name, axis.name)
        if key not in self._behind:
            self._behind[key] = False  # a stage does not read itself
            found = _guarded_loads(stage.body)
            self._behind[key] = any(self._is_read(load, below, axis.var) for load, below in found)
        return self._behind[key]

    def _is_read(self, load: Load, below: Sequence[Expr], var: Var) -> bool:
        """``below``: what is known to be below 0 where ``load`` counts."""
        source = self._state.stage_of(load.tensor)
        if source is not None:
            along = zip(source.compute.axes, load.indices, strict=True)
            return any(self._reads_behind(source, own) for own, index in along if var in variables(index))
        along_argument = zip(load.tensor.shape, load.indices, strict=True)
        ends = [index - extent for extent, index in along_argument if var in variables(index)]
        return any(not any(self._is_at_most(end, known) for known in below) for end in ends)

    def _is_at_most(self, one: Expr, other: Expr) -> bool:
        high = self._simplify.interval(self._simplify(one - other))[1]
        return high is not None and high <= 0

    def _union(self, a: Ranges, b: Ranges, source: KernelStage) -> dict[str, Range]:
        return {axis.name: self._join(a[axis.name], b[axis.name], axis.extent) for axis in source.compute.all_axes}

    def _join(self, a: Range, b: Range, extent: Dim) -> Range:
        if a == b:
            return a
        distance = as_dim(b.base - a.base)
        if not isinstance(distance, int):
            return Range(lift(0), extent)
        if not (isinstance(a.extent, int) and isinstance(b.extent, int)):
            return self._up_to(a, b, distance, extent)
        low = min(0, distance)
        high = max(a.extent, distance + b.extent)
        limit = None
        if a.limit is not None or b.limit is not None:
            ends = (a.extent if a.limit is None else a.limit, b.extent if b.limit is None else b.limit)
            limit = self._simplify(maximum(ends[0], lift(ends[1]) + distance) - low)
        return Range(self._simplify(a.base + low), high - low, limit)

    def _up_to(self, a: Range, b: Range, distance: int, extent: Dim) -> Range:
        """Both, of tiles that may be shorter at the end: as long as they can be, and no further than the axis goes."""
        longest, other = (self._simplify.interval(lift(r.extent))[1] for r in (a, b))
        if longest is None or other is None:
            return Range(lift(0), extent)
        low = min(0, distance)
        base = self._simplify(a.base + low)
        size = max(longest, distance + other) - low
        return Range(base, as_dim(self._simplify(minimum(lift(size), lift(extent) - base))))


def _guarded_loads(body: Expr) -> Iterator[tuple[Load, tuple[Expr, ...]]]:
    """What ``body`` loads, each with what is below 0 where selections choose it."""
    pending: list[tuple[Expr, tuple[Expr, ...]]] = [(body, ())]
    seen: set[tuple[Expr, tuple[Expr, ...]]] = set()
    while pending:
        expr, below = pending.pop()
        if (expr, below) in seen:
            continue
        seen.add((expr, below))
        if isinstance(expr, Load):
            yield expr, below
        if isinstance(expr, Select):
            pending.append((expr.then, (*below, *_below_zero(expr.cond))))
        pending += [(part, below) for part in expr.children() if not (isinstance(expr, Select) and part is expr.then)]


def _below_zero(cond: Expr) -> Iterator[Expr]:
    """Expressions that are below 0 where ``cond`` holds."""
    match cond:
        case Binary(op=BinaryOp.AND, lhs=lhs, rhs=rhs):
            yield from _below_zero(lhs)
            yield from _below_zero(rhs)
        case Binary(op=BinaryOp.LT, lhs=lhs, rhs=rhs) | Binary(op=BinaryOp.GT, lhs=rhs, rhs=lhs):
            yield lhs - rhs
        case Binary(op=BinaryOp.LE, lhs=lhs, rhs=rhs) | Binary(op=BinaryOp.GE, lhs=rhs, rhs=lhs):
            yield lhs - rhs - 1


class _Standing:
    """A stage standing at ``ranges``: where its indices lead."""

    def __init__(self, ranges: Ranges, simplify: Simplifier) -> None:
        self._ranges, self._outside = ranges, simplify
        bounds: dict[str, Interval] = {}
        for name, r in ranges.items():
            high = r.extent - 1 if isinstance(r.extent, int) else self._upper(r.extent, -1)
            bounds[axis_var(name).name] = (0, high)
        self._inside = Simplifier({**simplify.ranges, **bounds})
        self._moved = {axis_var(name): r.base + (axis_var(name) if r.extent != 1 else 0) for name, r in ranges.items()}
        self._found: dict[tuple[Expr, Dim], Range] = {}

    def region(self, load: Load, source: KernelStage) -> dict[str, Range]:
        axes = source.compute.axes
        spatial = {a.name: self._along(i, a.extent) for a, i in zip(axes, load.indices, strict=True)}
        return {**whole(source), **spatial}

    def _along(self, index: Expr, extent: Dim) -> Range:
        key = (index, extent)
        if key not in self._found:
            self._found[key] = self._search(index, extent)
        return self._found[key]

    def _search(self, index: Expr, extent: Dim) -> Range:
        own = next((r for n, r in self._ranges.items() if index == axis_var(n)), None)
        if own is not None:  # the axis itself: keep its limit
            return Range(own.base, own.extent, own.limit, interior=own.interior)
        if any(isinstance(e, Load) for e in walk(index)):  # the data says where: anywhere
            return Range(lift(0), extent)
        first = at_base(index, self._ranges)
        distance = self._inside(substitute(index, self._moved) - first)
        low, high = self._inside.interval(distance)
        known = low is not None and high is not None
        if not known:
            low, high = self._reach(index)
        if low is None or high is None:
            return Range(lift(0), extent)
        base, size = self._outside(first + low), high - low + 1
        if not variables(distance) <= set(self._moved) and any(_divides(e) for e in walk(distance)):
            # what is divided depends on where the tile stands: the interval may be too wide
            size = min(size, extent) if isinstance(extent, int) else size
            base = self._within(base, size, extent)
        if not known and not isinstance(extent, int):
            return Range(base, as_dim(minimum(lift(size), extent)))
        return Range(base, size, self._limit(index, size))

    def is_clipped(self, index: Expr) -> bool:
        """Whether an axis that ``index`` steps along stands at a tile whose extent only the run knows: the last may be shorter."""
        named = variables(index)
        return any(axis_var(n) in named and not isinstance(r.extent, int) for n, r in self._ranges.items())

    def _reach(self, index: Expr) -> Interval:
        """How far ``index`` may get from where it is at the base, term by term: ``(a + d) // c`` is ``d // c`` further than
        ``a // c``, rounded up or down."""
        match index:
            case Binary(op=BinaryOp.FLOOR_DIV, lhs=lhs, rhs=Const(value=divisor)) if int(divisor) > 0:
                low, high = self._reach(lhs)
                return None if low is None else low // int(divisor), None if high is None else -(-high // int(divisor))
            case Binary(op=BinaryOp.ADD, lhs=lhs, rhs=rhs):
                (low, high), (less, more) = self._reach(lhs), self._reach(rhs)
                return _sum(low, less), _sum(high, more)
        return self._inside.interval(self._inside(substitute(index, self._moved) - at_base(index, self._ranges)))

    def _limit(self, index: Expr, size: int) -> Expr | None:
        """Where the ``size`` elements that ``index`` leads to are behind the limits of its axes, if it steps evenly along them."""
        unwanted: Expr = lift(0)
        for name, r in self._ranges.items():
            var = axis_var(name)
            if r.limit is None or var not in variables(index):
                continue
            step = self._inside(substitute(index, {var: var + 1}) - index)
            if not isinstance(step, Const) or int(step.value) < 0:
                return self._reached(index, size)
            unwanted = unwanted + (lift(r.extent) - r.limit) * int(step.value)
        return None if unwanted == lift(0) else self._outside(size - unwanted)

    def _reached(self, index: Expr, size: int) -> Expr | None:
        """How many of ``size`` elements the wanted values of axes lead to at most, where limits are known: none behind them."""
        bounds = {
            axis_var(n).name: (0, int(r.limit.value) - 1) for n, r in self._ranges.items() if isinstance(r.limit, Const)
        }
        if any(r.limit is not None and axis_var(n).name not in bounds for n, r in self._ranges.items()):
            return None
        distance = self._inside(substitute(index, self._moved) - at_base(index, self._ranges))
        low, high = Simplifier({**self._inside.ranges, **bounds}).interval(distance)
        first = self._inside.interval(distance)[0]
        if low is None or high is None or first is None or high - first + 1 >= size:
            return None
        return lift(high - first + 1)

    def _within(self, base: Expr, size: int, extent: Dim) -> Expr:
        """``base``, moved so that ``size`` elements from there are in range."""
        low, high = self._outside.interval(base)
        room = self._outside.interval(lift(extent) - size)[0]
        if low is not None and high is not None and room is not None and low >= 0 and high <= room:
            return base
        return maximum(minimum(base, lift(extent) - size), 0)

    def _upper(self, extent: Expr, shift: int) -> int | None:
        high = self._outside.interval(extent)[1]
        return None if high is None else high + shift
