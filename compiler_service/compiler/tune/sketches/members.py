"""Stages that are computed inside of a nest: at which of its loops, and in which loops of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from compiler_service.compiler.schedule.language.knobs import Knobs
from compiler_service.compiler.schedule.language.steps import ROOT
from compiler_service.compiler.schedule.model.tiles import lanes
from compiler_service.compiler.schedule.staging.program import StagedProgram
from compiler_service.compiler.schedule.staging.stage import Inside, ProgramStage
from compiler_service.compiler.tune.sketches.facts import Along, lanes_along, readers_of, summed_axis
from compiler_service.compiler.tune.sketches.nesting import StageLoops, vector_loops, vectors_knob
from shared_ir.machine.target import Target

_VECTORS_OF_SUM = 4
"""Vectors that a sum over terms adds side by side: an addition takes as many cycles as that, and two are begun at once."""


def place_members(
    program: StagedProgram,
    root: str,
    names: Sequence[str],
    sequence: Sequence[str],
    defaults: Mapping[str, int],
    known: Mapping[str, int],
    knobs: Knobs,
) -> StagedProgram:
    """``program`` with the stages ``names`` computed inside of loops of ``root``, as the knobs ``NAME level`` say: after so many loops of
    ``sequence``, and not further in than what reads them.

    Args:
        defaults: the level of each.
        known: levels of stages that are placed already.
    """
    levels = dict(known)
    for name in reversed(names):
        readers = readers_of(program, program.stage(name).value)
        most = min((levels[r] for r in readers if r in levels), default=len(sequence))
        is_sized = all(isinstance(a.extent, int) for a in program.stage(name).definition.axes)
        options = range(most + 1) if is_sized else (most,)  # what is kept of it must have a constant size
        level = knobs.choice(f"{name} level", options, min(most, defaults[name]) if is_sized else most)
        levels[name] = level
        loop = sequence[level - 1] if level else ROOT
        program = program.with_stage(replace(program.stage(name), place=Inside(root, loop)))
    return program


def member_loops(program: StagedProgram, name: str, target: Target, knobs: Knobs) -> StagedProgram:
    """``program`` with loops for the stage ``name``: vectors along its last axis, or along its terms."""
    stage = program.stage(name)
    if stage.definition.reduction is None:
        return _element_loops(program, stage, target, knobs)
    way = knobs.choice(f"{name} lanes", [w.value for w in lanes_along(stage.definition, target)], _first(stage, target))
    if way == Along.RESULTS.value:
        return _column_loops(program, stage, target, knobs)
    return _term_loops(program, stage, target, knobs)


def _first(stage: ProgramStage, target: Target) -> str:
    return lanes_along(stage.definition, target)[0].value


def _element_loops(program: StagedProgram, stage: ProgramStage, target: Target, knobs: Knobs) -> StagedProgram:
    if not stage.definition.axes:
        return program
    loops, axis = StageLoops.of(stage), stage.definition.axes[-1]
    width = lanes(target, stage.value.dtype)
    count = vectors_knob(knobs, f"{stage.name} vectors", axis.extent, width, 2)
    lane = vector_loops(loops, axis.name, width, count)
    others = [a.name for a in stage.definition.axes[:-1]]
    loops.order((*others, *lane.tiles, *lane.vectors, lane.lane))
    loops.unroll(lane.vectors)
    if lane.is_vector:
        loops.vectorize(lane.lane)
    return loops.put_in(program)


def _column_loops(program: StagedProgram, stage: ProgramStage, target: Target, knobs: Knobs) -> StagedProgram:
    """A sum whose lanes lie along its results: vectors of them are summed over all terms, then the next."""
    assert stage.definition.reduction is not None
    loops, axis = StageLoops.of(stage), stage.definition.axes[-1]
    width = lanes(target, stage.value.dtype)
    count = vectors_knob(knobs, f"{stage.name} vectors", axis.extent, width, 2)
    lane = vector_loops(loops, axis.name, width, count)
    others = [a.name for a in stage.definition.axes[:-1]]
    reduced = [a.name for a in stage.definition.reduction.axes]
    loops.order((*others, *lane.tiles, *reduced, *lane.vectors, lane.lane))
    loops.unroll(lane.vectors)
    if lane.is_vector:
        loops.vectorize(lane.lane)
    return loops.put_in(program)


def _term_loops(program: StagedProgram, stage: ProgramStage, target: Target, knobs: Knobs) -> StagedProgram:
    """A sum whose lanes lie along its terms."""
    assert stage.definition.reduction is not None
    loops, width = StageLoops.of(stage), lanes(target, stage.value.dtype)
    axes = stage.definition.reduction.axes
    along = summed_axis(stage.definition) or axes[-1]
    others = [*(a.name for a in stage.definition.axes), *(a.name for a in axes if a is not along)]
    if isinstance(along.extent, int):
        while width >= along.extent and width > 1:
            width //= 2
    if width < 2 or summed_axis(stage.definition) is None:
        loops.order((*others, along.name))
        return loops.put_in(program)
    count = vectors_knob(knobs, f"{stage.name} vectors", along.extent, width, _VECTORS_OF_SUM)
    lane = vector_loops(loops, along.name, width, count)
    loops.order((*others, *lane.tiles, *lane.vectors, lane.lane))
    loops.unroll(lane.vectors if lane.tiles else ())
    loops.vectorize(lane.lane)
    return loops.put_in(program)
