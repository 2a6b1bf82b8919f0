"""How a loop that steps by more than one covers an extent that the step need not divide.

A tile that is unrolled or vectorised inside needs a constant size, so what is left over becomes tail pieces:
one exact piece when the extent is known, a cascade of halves when it is not, and a masked (or scalar) last vector. A core does not
hand on what a masked store has written to the loads behind it: where nothing is shared along a row, its end is stored in whole
vectors of half or a quarter of the size.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from compiler_service.compiler.schedule.language.state import KernelStage, LoopKind, ScheduleState, StageLoop
from compiler_service.compiler.schedule.lowering.faults import fault
from compiler_service.compiler.schedule.lowering.ranges import Range
from compiler_service.compiler.schedule.model.analysis import is_expensive
from shared_ir.expr import Expr, ceil_div, equal, lift, minimum, select
from shared_ir.expr.dim import Dim, as_dim

_CONSTANT = (LoopKind.UNROLLED, LoopKind.VECTORIZED)


@dataclass(frozen=True, slots=True)
class Piece:
    """``count`` tiles of ``size`` elements, the first one ``offset`` elements into the range.

    ``cond`` guards the piece at run time; ``limit`` counts the wanted elements of a masked tile.
    ``clipped`` tiles are shorter at the end: their size is ``min(size, extent - offset)``.
    ``last`` is where the last tile starts at the latest; ``interior`` tiles keep away from the ends of the axis.
    """

    count: Dim
    size: Dim
    offset: Expr
    cond: Expr | None = None
    limit: Expr | None = None
    clipped: bool = False
    last: Expr | None = None
    interior: bool = False


def pieces(loop: StageLoop, rest: tuple[StageLoop, ...], extent: Dim, masked: bool, narrow: int = 0) -> Iterator[Piece]:
    """The pieces that cover ``extent`` elements in steps of ``loop.step``; ``rest`` are the loops inside. Up to ``narrow`` smaller
    vectors may take the place of a masked one."""
    inner = [part for o in rest for part in o.advanced if part.axis == loop.axis]
    zero = lift(0)
    if loop.step == 1:
        yield Piece(extent, 1, zero)
        return
    if loop.guarded:
        yield Piece(as_dim(ceil_div(extent, loop.step)), loop.step, zero)
        return
    if not isinstance(extent, int) and inner[0].kind not in _CONSTANT:
        divides = as_dim(extent % loop.step) == 0
        yield Piece(as_dim(ceil_div(extent, loop.step)), loop.step, zero, clipped=not divides)
        return
    full = as_dim(lift(extent) // loop.step)
    if full != 0:
        yield Piece(full, loop.step, zero)
    lanes = _lanes(loop, inner)
    if isinstance(extent, int):
        left = extent % loop.step
        alone = masked and (left % lanes).bit_count() > narrow
        yield from _static_tail(left, lift(extent - left), lanes, alone)
    else:
        rest_of = lift(as_dim(extent % loop.step))
        yield from _dynamic_tail(rest_of, lift(full) * loop.step, loop.step, lanes, masked)


def smaller_vectors(state: ScheduleState, stage: KernelStage, loop: StageLoop, rest: tuple[StageLoop, ...]) -> int:
    """Vectors that may take the place of a masked one at the end of a row: none where they would share what is computed or
    read inside of the loop, one where each costs many operations."""
    inside = {(stage.name, o.name) for o in (loop, *rest)}
    shared = any(o.axis != loop.axis for o in rest) or any(s.attach in inside for s in state.stages.values())
    return 0 if shared or stage.reduction is not None else 1 if is_expensive(stage.body) else 2


def overlapping(loop: StageLoop, extent: int) -> Iterator[Piece]:
    """Full tiles only, for an extent that is larger than one."""
    yield Piece(-(-extent // loop.step), loop.step, lift(0), last=lift(extent - loop.step))


def peeled(loop: StageLoop, extent: Dim, low: Expr, high: Expr) -> Iterator[Piece]:
    """Overlapping tiles over [low, high), where conditions hold, and single elements around them; only these where not even
    one tile fits."""
    inner = high - low
    fits = inner >= loop.step
    yield Piece(as_dim(select(fits, low, lift(extent))), 1, lift(0))
    count = as_dim(ceil_div(inner, loop.step))
    yield Piece(count, loop.step, low, cond=fits, last=high - loop.step, interior=True)
    start = select(fits, high, lift(extent))
    yield Piece(as_dim(extent - start), 1, start)


def _lanes(loop: StageLoop, inner: list[StageLoop]) -> int:
    """Elements of one vector of the axis, 1 when it is not vectorised."""
    if not any(o.kind is LoopKind.VECTORIZED for o in inner):
        return 1
    return min([loop.step, *(o.step for o in inner if o.step > 1)])


def _static_tail(left: int, offset: Expr, lanes: int, masked: bool) -> Iterator[Piece]:
    if masked and left % lanes:  # full vectors and the last one together, so that they share what they read
        yield Piece(1, left + -left % lanes, offset, limit=lift(left))
        return
    whole = left - left % lanes
    if whole:
        yield Piece(1, whole, offset)
    left, offset = left % lanes, offset + whole
    while left:  # binary digits of what is left
        size = 1 << (left.bit_length() - 1)
        yield Piece(1, size, offset)
        left, offset = left - size, offset + size


def _dynamic_tail(left: Expr, offset: Expr, step: int, lanes: int, masked: bool) -> Iterator[Piece]:
    size = lanes
    while size * 2 < step:
        size *= 2
    while size >= lanes and size < step:  # the binary digits of `left`, largest first
        yield Piece(1, size, offset + left // (2 * size) * (2 * size), cond=equal(left // size % 2, 1))
        size //= 2
    if lanes > 1:
        rest = left % lanes
        at = offset + left - rest
        yield Piece(1, lanes, at, cond=rest > 0, limit=rest) if masked else Piece(1, as_dim(rest), at)


def piece_range(piece: Piece, whole: Range, index: Expr | None) -> Range:
    """The range inside tile number ``index`` of ``piece`` (None when it has only one)."""
    offset = piece.offset if index is None else piece.offset + index * piece.size
    if piece.last is not None:
        offset = minimum(offset, piece.last)
    size = piece.size
    if piece.clipped:
        size = as_dim(minimum(piece.size, lift(whole.extent) - offset))
    limit = piece.limit if whole.limit is None else whole.limit - offset
    return Range(whole.base + offset, size, limit, whole.valid, whole.origin, interior=whole.interior or piece.interior)


def halvings(tile: int, lanes: int) -> Iterator[tuple[int, int]]:
    """(count, distance): the first ``count`` of ``tile`` accumulators take in those ``distance`` behind them, until one vector
    of ``lanes`` is left."""
    vectors = tile // lanes
    while vectors > 1:
        kept = -(-vectors // 2)
        yield (vectors - kept) * lanes, kept * lanes
        vectors = kept


def lanes_of_sum(stage: KernelStage, inner: Sequence[StageLoop]) -> tuple[str, int, int]:
    """The axis whose lanes accumulate apart, how many of its elements do, and lanes of a vector."""
    axis = next(o.axis for o in inner if o.kind is LoopKind.VECTORIZED)
    own = [o for o in inner if o.axis == axis]
    constant = next(i for i, o in enumerate(own) if o.kind in (LoopKind.UNROLLED, LoopKind.VECTORIZED))
    if constant == 0 or any(not stage.reduces(o) for o in inner):
        raise fault(f"stage {stage.name}: a vectorised reduction needs an outer tile and spatial loops outside")
    return axis, own[constant - 1].step, own[-2].step
