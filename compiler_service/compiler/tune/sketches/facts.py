"""What a stage reads, and along which of its axes: the facts that sketch rules ask for."""

from __future__ import annotations

import enum
from collections.abc import Iterator

from compiler_service.compiler.schedule.model.analysis import depends, steps_along
from compiler_service.compiler.schedule.model.tiles import lanes
from compiler_service.compiler.schedule.staging.program import StagedProgram
from compiler_service.compiler.schedule.staging.stage import InPlace, ProgramStage
from compiler_service.compiler.tensor_expr.tensor import Axis, Compute, Load, Tensor, loads, varies
from shared_ir.expr import walk
from shared_ir.expr.dim import Dim
from shared_ir.machine.target import Target


class Along(enum.Enum):
    """Where the lanes of a reduction can lie."""

    RESULTS = "results"
    """Along the last axis of its results: each lane sums one of them."""
    TERMS = "terms"
    """Along an axis that it is reduced over: the lanes are combined at the end."""


def unknown(extent: Dim, otherwise: int) -> int:
    """``extent``, or ``otherwise`` where only the call knows it."""
    return extent if isinstance(extent, int) else otherwise


def is_contiguous(load: Load, axis: str) -> bool:
    """Whether ``load`` reads element after element where ``axis`` advances."""
    if not load.indices or any(depends(i, axis) for i in load.indices[:-1]):
        return False
    return steps_along(load.indices[-1], axis)


def distinct_loads(stage: Compute) -> tuple[Load, ...]:
    return tuple(dict.fromkeys(loads(stage.body)))


def summed_axis(stage: Compute) -> Axis | None:
    """The reduced axis, the last of several, along which most loads read element after element."""
    if stage.reduction is None:
        return None
    counted = [
        (sum(is_contiguous(ld, a.name) for ld in distinct_loads(stage)), n) for n, a in enumerate(_reduced(stage))
    ]
    best = max(counted)
    return _reduced(stage)[best[1]] if best[0] else None


def _reduced(stage: Compute) -> tuple[Axis, ...]:
    return () if stage.reduction is None else stage.reduction.axes


def reused_axis(stage: Compute) -> Axis | None:
    """The axis of the results, beside the last one, along which something is read again that the last one moves along: where
    a register tile of rows pays. The last one of several, of more than one element."""
    if stage.reduction is None or not stage.axes:
        return None
    *others, last = stage.axes
    along = [ld for ld in distinct_loads(stage) if varies(ld, last.name)]
    for axis in reversed(others):
        if axis.extent != 1 and any(not varies(ld, axis.name) for ld in along):
            return axis
    return None


def turned_axis(stage: Compute) -> Axis | None:
    """The axis, none of the last, along which something is read element after element that is not so along the last one."""
    if not stage.axes:
        return None
    *others, last = stage.axes
    across = [ld for ld in distinct_loads(stage) if varies(ld, last.name) and not is_contiguous(ld, last.name)]
    return next((a for a in reversed(others) if any(is_contiguous(ld, a.name) for ld in across)), None)


def lanes_along(stage: Compute, target: Target) -> tuple[Along, ...]:
    """Where the lanes of the reduction ``stage`` can lie, the best first; not where every lane would be read by itself."""
    summed = summed_axis(stage)
    if not stage.axes or stage.axes[-1].extent == 1:
        return (Along.TERMS,)
    last, width = stage.axes[-1], lanes(target, stage.body.dtype)
    terms = [a.name for a in _reduced(stage)]
    along = any(is_contiguous(ld, last.name) and any(varies(ld, t) for t in terms) for ld in distinct_loads(stage))
    is_narrow = unknown(last.extent, width) < max(2, width // 4)
    if summed is None:
        return (Along.RESULTS,)
    is_product = _is_product(stage)
    if is_narrow or not (along or is_product):
        return (Along.TERMS, Along.RESULTS) if along else (Along.TERMS,)
    in_rows = all(is_contiguous(ld, summed.name) for ld in distinct_loads(stage) if varies(ld, summed.name))
    return (Along.RESULTS, Along.TERMS) if in_rows else (Along.RESULTS,)


def _is_product(stage: Compute) -> bool:
    """Whether some of what is read is read again along the last axis, and the rest along another one, which is worth a copy."""
    reused, last = reused_axis(stage), stage.axes[-1]
    return reused is not None and any(not varies(ld, last.name) for ld in distinct_loads(stage))


def readers_of(program: StagedProgram, value: Tensor) -> tuple[str, ...]:
    """Stages that read ``value`` and have loops of their own."""
    return tuple(n for n in program.readers(value) if not isinstance(program.stage(n).place, InPlace))


def operations(stage: Compute) -> int:
    """Nodes of the body that compute something."""
    return sum(1 for e in walk(stage.body) if e.children() and not isinstance(e, Load))


def read_at(program: StagedProgram, value: Tensor, readers: tuple[str, ...]) -> Iterator[tuple[ProgramStage, Load]]:
    """Every load of ``value``, with the stage that reads it."""
    for name in readers:
        stage = program.stage(name)
        yield from ((stage, ld) for ld in distinct_loads(stage.definition) if ld.tensor is value)


def reads_at_own_index(stage: ProgramStage, value: Tensor) -> bool:
    """Whether ``stage`` reads ``value`` element by element, at indices that are axes of its own, the last one at the last."""
    own = [a.var for a in stage.definition.axes]
    for load in distinct_loads(stage.definition):
        if load.tensor is value:
            at = list(load.indices)
            if len(set(at)) < len(at) or any(i not in own for i in at) or (own and at and at[-1] != own[-1]):
                return False
    return True


def axes_behind(
    program: StagedProgram, stage: ProgramStage, root: ProgramStage, members: frozenset[str]
) -> frozenset[str]:
    """Axes of ``root`` that it depends on which part of ``stage`` is read, through ``members``."""
    if stage.name == root.name:
        return frozenset(a.name for a in root.definition.axes)
    found: set[str] = set()
    readers = tuple(n for n in readers_of(program, stage.value) if n in members or n == root.name)
    for reader, load in read_at(program, stage.value, readers):
        moved = {a.name for a in reader.definition.axes if varies(load, a.name)}
        if reader.name == root.name:
            found |= moved
        else:
            found |= _through(program, reader, root, members, moved)
    return frozenset(found)


def _through(
    program: StagedProgram, reader: ProgramStage, root: ProgramStage, members: frozenset[str], moved: set[str]
) -> set[str]:
    """Axes of ``root`` behind the axes ``moved`` of ``reader``, which is a member."""
    found: set[str] = set()
    readers = tuple(n for n in readers_of(program, reader.value) if n in members or n == root.name)
    for other, load in read_at(program, reader.value, readers):
        for axis, index in zip(reader.definition.axes, load.indices, strict=True):
            if axis.name not in moved:
                continue
            behind = {a.name for a in other.definition.axes if depends(index, a.name)}
            found |= behind if other.name == root.name else _through(program, other, root, members, behind)
    return found
