"""Schedules of any program without a template for it: rules look at its stages, and ask a knob for each decision.

The rules are those of Ansor (Zheng et al., "Ansor: Generating High-Performance Tensor Programs for Deep Learning", OSDI 2020): compute in
place what is cheap, compute inside of its reader what only one nest reads, tile sums of results with reuse on several levels, write
through registers, copy operands in tiles, and cut sums in two steps where there are few results. Unlike there every decision, of sizes
and of rules, is an answer of :class:`~compiler_service.compiler.schedule.language.knobs.Knobs`: the default is that of a model of the
target, and a point of the space is the answers that differ.
"""

from __future__ import annotations

from dataclasses import replace

from compiler_service.compiler.schedule.language.knobs import Knobs
from compiler_service.compiler.schedule.language.state import misfit
from compiler_service.compiler.schedule.staging.program import StagedProgram
from compiler_service.compiler.schedule.staging.rewriting import rfactor
from compiler_service.compiler.schedule.staging.stage import AtRoot, InPlace
from compiler_service.compiler.tune.sketches.facts import Along, lanes_along, unknown
from compiler_service.compiler.tune.sketches.placing import NestGroup, groups, inlined
from compiler_service.compiler.tune.sketches.rows import in_rows
from compiler_service.compiler.tune.sketches.tiles import in_tiles
from shared_ir.machine.target import Target

_FEWEST_TERMS = 4096
"""Terms of a sum from which on it is worth cutting it in parts for several cores."""
_PARTS = (0, 2, 4, 8, 16, 32)


def sketch(program: StagedProgram, target: Target, knobs: Knobs) -> StagedProgram:
    """``program``, all of whose stages are at the root and in no loops yet, with a schedule for ``target``. The knobs are asked for
    every decision; that the schedule can be lowered is seen when it is.

    Raises:
        IngotError: INVALID_ARGUMENT, a stage is scheduled already, or the answers do not fit together.
    """
    for stage in program.stages.values():
        if not stage.is_untouched or not isinstance(stage.place, AtRoot | InPlace):
            raise misfit(f"{stage.name} is scheduled already", "a program whose stages are all at the root", stage.name)
    program, parts = _in_parts(inlined(_expanded_constants(program), knobs), target, knobs)
    for group in groups(program, parts, target, knobs):
        program = _scheduled(program, group, target, knobs)
    return program


def _expanded_constants(program: StagedProgram) -> StagedProgram:
    """Stages that are in place already, those of known elements, are asked for like others."""
    stages = {n: replace(s, place=AtRoot()) if isinstance(s.place, InPlace) else s for n, s in program.stages.items()}
    return replace(program, stages=stages)


def _scheduled(program: StagedProgram, group: NestGroup, target: Target, knobs: Knobs) -> StagedProgram:
    reductions = [n for n in (*group.members, group.root) if program.stage(n).definition.reduction is not None]
    if not program.stage(group.root).definition.axes or (reductions and not group.product):
        return in_rows(program, group, target, knobs)
    return in_tiles(program, group, target, knobs)


def _in_parts(program: StagedProgram, target: Target, knobs: Knobs) -> tuple[StagedProgram, frozenset[str]]:
    """``program`` with long sums of few results in two steps, as the knobs ``NAME parts`` say: the parts are tasks of several cores. With
    it come the stages of the parts."""
    made: set[str] = set()
    for name in tuple(program.stages):
        stage = program.stage(name)
        found, results = stage.definition.reduction, 1
        if found is None or isinstance(stage.place, InPlace):
            continue
        for axis in stage.definition.axes:
            results *= unknown(axis.extent, 256)
        terms = unknown(found.axes[0].extent, 0)
        if (
            results >= target.cores
            or terms < _FEWEST_TERMS
            or lanes_along(stage.definition, target)[0] is not Along.TERMS
        ):
            continue
        parts = knobs.choice(f"{name} parts", _PARTS, next((p for p in _PARTS[1:] if p >= target.cores), _PARTS[-1]))
        if parts:
            program, own = rfactor(program, name, found.axes[0].name, -(-terms // parts), outer=True)
            made.add(own)
    return program, frozenset(made)
