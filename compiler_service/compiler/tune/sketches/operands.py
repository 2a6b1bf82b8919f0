"""Copies of what a sum of products reads: in tiles as wide as a register tile, so that the sum goes through memory in order."""

from __future__ import annotations

from dataclasses import dataclass

from compiler_service.compiler.schedule.language.knobs import Knobs
from compiler_service.compiler.schedule.model.tiles import SQUARE_SIDES, lanes
from compiler_service.compiler.schedule.staging import rewriting
from compiler_service.compiler.schedule.staging.program import StagedProgram
from compiler_service.compiler.schedule.staging.stage import ProgramStage
from compiler_service.compiler.tensor_expr.tensor import Compute, Load, axis_var, varies
from compiler_service.compiler.tune.sketches.facts import distinct_loads, is_contiguous, unknown
from compiler_service.compiler.tune.sketches.nesting import StageLoops, vector_loops
from shared_ir.expr.dim import Dim
from shared_ir.machine.target import Target

_PAGE_BYTES = 4096
_SWEEPS_OF_COPY = 16
"""How often a copy is read at least that is made by default."""
_FEWEST_TERMS = 64
"""Terms of a sum from which on a copy in tiles pays."""


@dataclass(frozen=True)
class TiledOperand:
    """What the sum ``stage`` reads at ``axis``, an axis of its results, in one index of its own.

    Attributes:
        place: which index.
        other: an axis of the results along which the same is read again.
    """

    load: Load
    axis: str
    place: int
    other: str


def operand(stage: ProgramStage, axis: str, other: str | None) -> TiledOperand | None:
    """What ``stage`` reads that varies with ``axis`` in one index, which is the axis itself, and not with ``other``."""
    if other is None:
        return None
    found = [
        ld
        for ld in distinct_loads(stage.definition)
        if varies(ld, axis) and not varies(ld, other) and axis_var(axis) in ld.indices
    ]
    tensors = {ld.tensor for ld in distinct_loads(stage.definition)}
    same = [ld for ld in found if sum(o.tensor is ld.tensor for o in distinct_loads(stage.definition)) == 1]
    if len(same) != 1 or len(tensors) < 2:
        return None
    return TiledOperand(same[0], axis, same[0].indices.index(axis_var(axis)), other)


def packs_columns(stage: ProgramStage, found: TiledOperand, rows: int, tile: int, knobs: Knobs) -> bool:
    """The knob ``NAME packs TENSOR``: by default where rows of it are far apart or not contiguous, and it is read often."""
    terms = _terms(stage.definition)
    row_bytes = unknown(found.load.tensor.shape[-1], 1024) * found.load.dtype.itemsize
    far = not is_contiguous(found.load, found.axis) or row_bytes >= _PAGE_BYTES // 2
    often = unknown(_extent(stage.definition, found.other), 256) >= _SWEEPS_OF_COPY * rows
    default = tile > 1 and terms >= _FEWEST_TERMS and far and often
    return tile > 1 and knobs.flag(f"{stage.name} packs {found.load.tensor.name}", default=default)


def packs_rows(stage: ProgramStage, found: TiledOperand, tile: int, target: Target, knobs: Knobs) -> bool:
    """The knob ``NAME packs TENSOR``, of the operand that is broadcast: by default where its rows are whole pages apart, and so fall
    into one set of a cache, which holds fewer of them than the register tile has."""
    row_bytes = unknown(found.load.tensor.shape[-1], 0) * found.load.dtype.itemsize
    width = lanes(target, found.load.dtype)
    often = unknown(_extent(stage.definition, found.other), 256) >= 8 * width
    default = tile > 8 and bool(row_bytes) and row_bytes % _PAGE_BYTES == 0 and often
    return tile > 1 and knobs.flag(f"{stage.name} packs {found.load.tensor.name}", default=default)


def _terms(stage: Compute) -> int:
    count = 1
    for axis in stage.reduction.axes if stage.reduction else ():
        count *= unknown(axis.extent, 256)
    return count


def _extent(stage: Compute, axis: str) -> Dim:
    return next(a.extent for a in stage.all_axes if a.name == axis)


def packed(program: StagedProgram, stage: str, found: TiledOperand, tile: int, target: Target) -> StagedProgram:
    """``program`` with a copy of the operand in tiles of ``tile`` of its axis, in a nest of its own.

    Raises:
        IngotError: INVALID_ARGUMENT, it cannot be packed.
    """
    program, name = rewriting.pack(program, found.load.tensor, (stage,), found.place, tile)
    copy = program.stage(name)
    tiles, *others, place = (a.name for a in copy.definition.axes)
    loops = StageLoops.of(copy)
    width = min(lanes(target, copy.value.dtype), tile)
    lane = vector_loops(loops, place, width, 1)
    last = others[-1] if others else ""
    depth = unknown(loops.extents[last], 0) if last else 0
    side = next((s for s in SQUARE_SIDES if s <= width and depth and depth % s == 0), 0)
    is_turned = bool(last) and not is_contiguous(distinct_loads(copy.definition)[0], place)
    if is_turned and side and tile % width == 0:
        squares = loops.split(last, side)
        loops.order((tiles, *others[:-1], *squares, *lane.tiles, last, lane.lane))
        loops.unroll((last,))
    else:
        loops.order((tiles, *others, *lane.tiles, lane.lane))
    if lane.is_vector:
        loops.vectorize(lane.lane)
    return loops.put_in(program, (tiles,))
