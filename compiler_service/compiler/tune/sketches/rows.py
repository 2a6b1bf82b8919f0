"""Nests of rows: reductions of a row, and what is computed of them, one after the other while the row is in a near cache."""

from __future__ import annotations

from compiler_service.compiler.schedule.language.knobs import Knobs
from compiler_service.compiler.schedule.model.tasks import TASKS_PER_CORE
from compiler_service.compiler.schedule.model.tiles import chunk, lanes
from compiler_service.compiler.schedule.staging.program import StagedProgram
from compiler_service.compiler.schedule.staging.rewriting import cache_write
from compiler_service.compiler.schedule.staging.stage import ProgramStage
from compiler_service.compiler.tensor_expr.tensor import Axis
from compiler_service.compiler.tune.sketches.facts import axes_behind, unknown
from compiler_service.compiler.tune.sketches.members import member_loops, place_members
from compiler_service.compiler.tune.sketches.nesting import StageLoops, VectorLoops, vector_loops, vectors_knob
from compiler_service.compiler.tune.sketches.placing import NestGroup
from shared_ir.machine.target import Target

_ROWS_TOGETHER = (1, 2, 3, 4, 6, 8, 16)
_VECTORS_OF_SHORT_ROW = 16
"""Vectors of a row from which on it is walked alone by default."""


def in_rows(program: StagedProgram, group: NestGroup, target: Target, knobs: Knobs) -> StagedProgram:
    """``program`` with the nest ``group`` in rows: loops over the axes that its reductions hang on, in turns of a few rows, with the
    reductions inside, and the rest of the axes innermost."""
    members = list(group.members)
    if program.stage(group.root).definition.reduction is not None:
        program, own = cache_write(program, group.root)
        members.append(own)
    root = program.stage(group.root)
    bound = _bound_axes(program, root, members)
    loops = StageLoops.of(root)
    sequence, inner, tasks = _loops_of_root(loops, root, bound, program, members, target, knobs)
    if root.definition.axes:
        loops.order((*sequence, *inner.order))
        loops.unroll(inner.unrolled)
        if inner.lane:
            loops.vectorize(inner.lane)
    program = loops.put_in(program, tasks)
    program = place_members(program, root.name, members, sequence, {name: len(sequence) for name in members}, {}, knobs)
    for name in members:
        program = member_loops(program, name, target, knobs)
    return program


class _Inner:
    """The loops inside of those that members are computed in."""

    def __init__(self, order: tuple[str, ...], unrolled: tuple[str, ...], lane: str) -> None:
        self.order, self.unrolled, self.lane = order, unrolled, lane


def _bound_axes(program: StagedProgram, root: ProgramStage, members: list[str]) -> tuple[Axis, ...]:
    """Axes of the root that reductions inside of it hang on."""
    inside = frozenset(members)
    found: set[str] = set()
    for name in members:
        stage = program.stage(name)
        if stage.definition.reduction is not None:
            found |= axes_behind(program, stage, root, inside)
    return tuple(a for a in root.definition.axes if a.name in found)


def _loops_of_root(
    loops: StageLoops,
    root: ProgramStage,
    bound: tuple[Axis, ...],
    program: StagedProgram,
    members: list[str],
    target: Target,
    knobs: Knobs,
) -> tuple[tuple[str, ...], _Inner, tuple[str, ...]]:
    axes = root.definition.axes
    if not axes:
        return (), _Inner((), (), ""), ()
    last, width = axes[-1], lanes(target, root.value.dtype)
    turned = [a for a in bound if a is not last]
    sequence: list[str] = [a.name for a in turned[:-1]]
    inner: list[str] = []
    if turned:
        sequence += _turns(loops, root.name, turned[-1], _rows(program, members, target), target, knobs, inner)
    if last in bound and not (turned or len(axes) > 1):
        return _vector_of_rows(loops, root.name, last, width, target, knobs)
    count = vectors_knob(knobs, f"{root.name} vectors", last.extent, width, 4)
    lane = vector_loops(loops, last.name, width, count)
    free = [a.name for a in axes if a not in bound and a is not last]
    if last in bound:
        sequence += lane.tiles
        order = (*inner, *free, *_of_lane(lane))
    else:
        order = (*inner, *free, *lane.tiles, *_of_lane(lane))
    most = _tasks(sequence, lane.tiles if last in bound else (), inner)
    tasks = knobs.range(f"{root.name} tasks", 0, most, most)
    return tuple(sequence), _Inner(order, lane.vectors, lane.lane if lane.is_vector else ""), tuple(sequence[:tasks])


def _of_lane(lane: VectorLoops) -> tuple[str, ...]:
    return (*lane.vectors, lane.lane)


def _tasks(sequence: list[str], lane_tiles: tuple[str, ...], inner: list[str]) -> int:
    """How many of the outermost loops may be parallel: each axis once."""
    axes: list[str] = []
    for name in sequence:
        axis = name.rsplit(".", 1)[0] if name.rsplit(".", 1)[-1].isdigit() else name
        if axis in axes:
            break
        axes.append(axis)
    return len(axes)


def _turns(
    loops: StageLoops, name: str, axis: Axis, most: int, target: Target, knobs: Knobs, inner: list[str]
) -> list[str]:
    """Loops over rows: chunks for the tasks, and some rows in a turn, whose own loop is one of ``inner``."""
    options = [n for n in _ROWS_TOGETHER if n <= unknown(axis.extent, 16)]
    height = knobs.choice(f"{name}.{axis.name} together", options, max(n for n in options if n <= most))
    size = unknown(axis.extent, 0)
    default = (
        chunk(axis.extent, height, TASKS_PER_CORE * target.cores) if target.cores > 1 and size else max(size, height)
    )
    block = knobs.split(f"{name}.{axis.name} block", axis.extent, default, multiple=height)
    found = [*(loops.split(axis.name, block) if block > height else ()), *loops.split(axis.name, height)]
    if height == 1:
        return [*found, axis.name]
    inner.append(axis.name)
    return found


def _rows(program: StagedProgram, members: list[str], target: Target) -> int:
    """Rows that are walked together: several short ones, whose ends wait for sums across lanes; of a long one the end is no part."""
    longest = 0
    for name in members:
        found = program.stage(name).definition
        longest = max(longest, *(unknown(a.extent, 512) for a in found.all_axes[-1:]), 0)
    return 1 if longest > _VECTORS_OF_SHORT_ROW * lanes(target, program.stage(members[0]).value.dtype) else 4


def _vector_of_rows(
    loops: StageLoops, name: str, axis: Axis, width: int, target: Target, knobs: Knobs
) -> tuple[tuple[str, ...], _Inner, tuple[str, ...]]:
    """Of a vector of results: some of them in a turn, which are written as one vector."""
    options = [n for n in (1, 2, 4, 8, 16) if n <= min(width, unknown(axis.extent, width))]
    size = unknown(axis.extent, 0)
    few = target.cores > 1 and 0 < size <= TASKS_PER_CORE * target.cores  # each one is a task
    height = knobs.choice(f"{name}.{axis.name} together", options, 1 if few else options[min(2, len(options) - 1)])
    default = (
        chunk(axis.extent, height, TASKS_PER_CORE * target.cores) if target.cores > 1 and size else max(size, height)
    )
    block = knobs.split(f"{name}.{axis.name} block", axis.extent, default, multiple=height)
    sequence = [*(loops.split(axis.name, block) if block > height else ()), *loops.split(axis.name, height)]
    if height == 1:
        sequence.append(axis.name)
    tasks = knobs.range(f"{name} tasks", 0, min(1, len(sequence)), min(1, len(sequence)))
    if height == 1:
        return tuple(sequence), _Inner((), (), ""), tuple(sequence[:tasks])
    return tuple(sequence), _Inner((axis.name,), (), axis.name), tuple(sequence[:tasks])
