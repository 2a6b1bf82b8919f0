"""Loads whose lanes pick elements of one short stretch of memory become a contiguous load and a shuffle of its register.

::

    x[i + 4 * (lane // 4)] * a        row = x[i:+8]
    x[i + 4 * (lane // 4) + 1] * b    ->    shuffle(row, row, (0, 0, 0, 0, 4, 4, 4, 4)) * a
    ...                                     shuffle(row, row, (1, 1, 1, 1, 5, 5, 5, 5)) * b

Loads of the same stretch share the load of it. Together they must read its first and its last element, so that nothing is
touched that was not; or it must be known to exist.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from compiler_service.compiler.loop_ir.ir import Broadcast, Buffer, BufferLoad, Ramp, Shuffle, VectorVar
from shared_ir.expr import Binary, BinaryOp, Const, Expr
from shared_ir.expr.simplify import simplify, unbounded

_COMPARED: Mapping[BinaryOp, Callable[[int], bool]] = {
    BinaryOp.LT: lambda difference: difference < 0,
    BinaryOp.LE: lambda difference: difference <= 0,
    BinaryOp.GT: lambda difference: difference > 0,
    BinaryOp.GE: lambda difference: difference >= 0,
}


class Lanes(NamedTuple):
    """``base + offsets[lane]``, the base a scalar."""

    base: Expr
    offsets: tuple[int, ...]


class _Stretch(NamedTuple):
    """Elements from ``base + start`` on, as many as there are lanes; ``mask`` as of the loads."""

    buffer: Buffer
    base: Expr
    start: int
    lanes: int
    mask: Expr | None


@dataclass(frozen=True)
class _Pick:
    """One load: lane ``i`` wants element ``places[i]`` of the stretch, unless it is masked out."""

    load: BufferLoad
    places: tuple[int, ...]
    wanted: tuple[bool, ...]

    def order(self) -> tuple[int, ...]:
        return tuple(p if wanted else 0 for p, wanted in zip(self.places, self.wanted, strict=True))


def permutations(loads: Iterable[BufferLoad], define: Callable[[Expr], VectorVar]) -> dict[Expr, Expr]:
    """What takes the place of each of ``loads`` that another form is found for; ``define`` names a shared value."""
    stretches: dict[_Stretch, list[_Pick]] = {}
    for load in loads:
        found = _pick(load)
        if found is not None:
            stretches.setdefault(found[0], []).append(found[1])
    replaced: dict[Expr, Expr] = {}
    for stretch, picks in stretches.items():
        first = simplify(stretch.base + stretch.start)
        inside = _is_inside(stretch, first)
        lanes = stretch.lanes if inside else _read_lanes(stretch, picks)
        if lanes > 1:
            mask = None if inside else stretch.mask  # of lanes, not of places: it hides what other lanes pick
            row = define(BufferLoad(stretch.buffer, (Ramp(first, Const(1), lanes),), mask))
            replaced |= {pick.load: Shuffle(row, row, pick.order()) for pick in picks}
    return replaced


def _read_lanes(stretch: _Stretch, picks: Sequence[_Pick]) -> int:
    """How much of ``stretch`` may be loaded for ``picks``: a part of a vector whose ends they read; 0 where that is not enough."""
    read = {p for pick in picks for p, wanted in zip(pick.places, pick.wanted, strict=True) if wanted}
    last = max(read)
    if 0 not in read:
        return 0
    if stretch.mask is not None:
        return stretch.lanes if last == sum(picks[0].wanted) - 1 else 0
    return last + 1 if stretch.lanes % (last + 1) == 0 else 0


def _is_inside(stretch: _Stretch, first: Expr) -> bool:
    """Whether all of ``stretch`` is known to be in its buffer."""
    (size,) = stretch.buffer.shape
    return isinstance(first, Const) and isinstance(size, int) and 0 <= int(first.value) <= size - stretch.lanes


def _pick(load: BufferLoad) -> tuple[_Stretch, _Pick] | None:
    index = load.indices[0]
    if isinstance(index, Ramp | Broadcast):
        return None
    found = known_lanes(index)
    if found is None:
        return None
    base, offsets = found
    lanes = len(offsets)
    wanted = (True,) * lanes if load.mask is None else _truths(load.mask)
    if wanted is None or not any(wanted) or wanted != tuple(i < sum(wanted) for i in range(lanes)):
        return None
    unit = math.gcd(lanes, *(o - offsets[0] for o in offsets))
    constant = unbounded().polynomial(base).get((), 0)
    start = (constant + min(o for o, is_wanted in zip(offsets, wanted, strict=True) if is_wanted)) // unit * unit
    places = tuple(constant + o - start for o in offsets)
    if any(not 0 <= p < lanes for p, is_wanted in zip(places, wanted, strict=True) if is_wanted):
        return None
    stretch = _Stretch(load.buffer, simplify(base - constant), start, lanes, load.mask)
    return stretch, _Pick(load, places, wanted)


def known_lanes(index: Expr) -> Lanes | None:
    """An index whose lanes lie apart by what is known."""
    match index:
        case Broadcast(x=x, lanes=lanes):
            return Lanes(x, (0,) * lanes)
        case Ramp(base=base, stride=Const(value=stride), lanes=lanes):
            return Lanes(base, tuple(int(stride) * i for i in range(lanes)))
        case Binary(op=op, lhs=lhs, rhs=rhs):
            left, right = known_lanes(lhs), known_lanes(rhs)
            return None if left is None or right is None else _combined(op, left, right)
    return None


def _combined(op: BinaryOp, left: Lanes, right: Lanes) -> Lanes | None:
    match op:
        case BinaryOp.ADD:
            return Lanes(left.base + right.base, tuple(a + b for a, b in zip(left.offsets, right.offsets, strict=True)))
        case BinaryOp.SUB:
            return Lanes(left.base - right.base, tuple(a - b for a, b in zip(left.offsets, right.offsets, strict=True)))
        case BinaryOp.MUL if isinstance(right.base, Const) and not any(right.offsets):
            factor = int(right.base.value)
            return Lanes(left.base * factor, tuple(o * factor for o in left.offsets))
        case BinaryOp.FLOOR_DIV | BinaryOp.FLOOR_MOD if isinstance(right.base, Const) and not any(right.offsets):
            return _divided(op, left, int(right.base.value))
    return None


def _divided(op: BinaryOp, left: Lanes, divisor: int) -> Lanes | None:
    """``(d * q + r + offset) // d = q + (r + offset) // d``, and the remainder of ``r + offset``."""
    terms = unbounded().polynomial(left.base)
    if divisor <= 0 or any(factor % divisor for monomial, factor in terms.items() if monomial):
        return None
    rest = terms.get((), 0) % divisor
    if op is BinaryOp.FLOOR_MOD:
        return Lanes(Const(0), tuple((rest + o) % divisor for o in left.offsets))
    return Lanes(simplify((left.base - rest) // divisor), tuple((rest + o) // divisor for o in left.offsets))


def _truths(mask: Expr) -> tuple[bool, ...] | None:
    """The lanes of a comparison, where they are known."""
    if not isinstance(mask, Binary) or mask.op not in _COMPARED:
        return None
    left, right = known_lanes(mask.lhs), known_lanes(mask.rhs)
    difference = None if left is None or right is None else _combined(BinaryOp.SUB, left, right)
    base = None if difference is None else simplify(difference.base)
    if difference is None or not isinstance(base, Const):
        return None
    return tuple(_COMPARED[mask.op](int(base.value) + o) for o in difference.offsets)
