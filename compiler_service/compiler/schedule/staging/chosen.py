"""The schedule that rules choose for a program, as places and steps of its stages, to be looked at and gone on with.

Rules schedule kernels; which stages make one kernel is chosen here: a stage is computed inside of the nest of the one that reads it,
up to one sum of products in a nest, with what can be computed from its elements one by one behind it, and any number of other
reductions in a nest without one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from compiler_service.compiler.schedule.default import PLAIN_RULES, chosen_schedule
from compiler_service.compiler.schedule.language.schedule import Schedule, Step
from compiler_service.compiler.schedule.language.state import misfit
from compiler_service.compiler.schedule.language.steps import (
    Alias,
    CacheRead,
    CacheWrite,
    ComputeAt,
    FetchNext,
    FuseLoops,
    Guard,
    Inline,
    Overlap,
    Parallel,
    Peel,
    PrefetchTile,
    Reorder,
    Split,
    Stagger,
    Unroll,
    Vectorize,
)
from compiler_service.compiler.schedule.model.analysis import KernelView
from compiler_service.compiler.schedule.staging.lowered import Lowerings
from compiler_service.compiler.schedule.staging.program import Nest, ProgramKernel, StagedProgram
from compiler_service.compiler.schedule.staging.rewriting import cache_read, cache_write
from compiler_service.compiler.schedule.staging.stage import InPlace, Inside, ProgramStage
from compiler_service.compiler.tensor_expr.tensor import Load, ReduceOp, loads
from shared_ir.errors import IngotError
from shared_ir.expr import Binary, BinaryOp, Cast
from shared_ir.machine.target import Target

_OF_ONE_STAGE = (Split, Reorder, FuseLoops, Unroll, Vectorize, Guard, Overlap, Peel, Stagger, PrefetchTile, FetchNext)
"""Steps that are those of a stage by hand too."""


def chosen_program(program: StagedProgram, target: Target) -> StagedProgram:
    """``program``, all of whose stages are at the root as at first, with the choice of the rules for ``target``.

    Where a rule computes something in another way than is written (an algorithm of its own), the next one is asked that does not; a
    nest that none fits stays as it is.
    """
    known = Lowerings()
    for nest in _nests(program):
        for schedule in _choices(nest, target):
            try:
                found = _with_schedule(program, schedule)
                known.of(found, target)
            except IngotError:
                continue
            program = found
            break
    return program


def _choices(nest: Nest, target: Target) -> Iterator[Schedule]:
    kernel = ProgramKernel.of(nest)
    yield chosen_schedule(kernel.output, frozenset(), target).schedule
    for row in PLAIN_RULES:
        schedule = row.rule(KernelView.of(kernel.output, frozenset()), target)
        if schedule is not None:
            yield schedule


def _with_schedule(program: StagedProgram, schedule: Schedule) -> StagedProgram:
    """``program`` with ``schedule`` for one of its nests. Raises IngotError INVALID_ARGUMENT, a step does not fit."""
    for step in schedule:
        program = _with_step(program, step)
    return program


def _with_step(program: StagedProgram, step: Step) -> StagedProgram:
    match step:
        case CacheWrite(stage=name):
            return cache_write(program, name)[0]
        case CacheRead():
            return _with_copy(program, step)
        case Inline(stage=name):
            return program.with_stage(replace(program.stage(name), place=InPlace()))
        case ComputeAt(stage=name, consumer=consumer, loop=loop):
            return program.with_stage(replace(program.stage(name), place=Inside(consumer, loop)))
        case Parallel(stage=name, loops=loops):
            return program.with_stage(replace(program.stage(name), tasks=loops))
        case Alias(stage=name):
            return program.with_stage(replace(program.stage(name), in_result=True))
    if not isinstance(step, _OF_ONE_STAGE):
        raise misfit("the step is none of those by hand", "a step of places or loops", type(step).__name__)
    stage = program.stage(step.stage)
    return program.with_stage(replace(stage, steps=(*stage.steps, step)))


def _with_copy(program: StagedProgram, step: CacheRead) -> StagedProgram:
    """With the copy of an argument under the name that the steps behind ``step`` give it."""
    readers = (step.stage,) if step.stage else ()
    found = [v for v in program.values.values() if v.name == step.tensor and v.name not in program.stages]
    if not readers or not found:
        raise misfit("the step is none of those by hand", "a copy of an argument for one stage", str(step))
    program, name = cache_read(program, found[0], readers, step.axes, step.along)
    if name != f"{step.tensor}.local":
        raise misfit("the name of the copy is taken", f"{step.tensor}.local", name)
    return program


def _nests(program: StagedProgram) -> tuple[Nest, ...]:
    """Stages that become one kernel each, the last of which is read by others or is a result."""
    left, found = dict(program.stages), list[Nest]()
    while left:
        last = list(left)[-1]
        nest = {last: left[last]}
        for name in reversed(list(program.stages)):
            if name in left and name not in program.outputs and _joins(program, left[name], nest):
                nest[name] = left[name]
        left = {n: s for n, s in left.items() if n not in nest}
        found.append(tuple(s for n, s in program.stages.items() if n in nest))
    return tuple(reversed(found))


def _joins(program: StagedProgram, stage: ProgramStage, nest: Mapping[str, ProgramStage]) -> bool:
    """Whether ``stage`` can be computed inside of ``nest``, all of whose readers are in there."""
    readers = program.readers(stage.value)
    if stage.name in nest or not readers or not set(readers) <= set(nest):
        return False
    reductions = [s for s in nest.values() if s.definition.reduction is not None]
    if any(map(_is_product, reductions)):
        return stage.definition.reduction is None and not _reads_reduction(program, stage)
    return not (reductions and _is_product(stage))


def _reads_reduction(program: StagedProgram, stage: ProgramStage) -> bool:
    """Whether a reduction is computed before ``stage``, behind which it belongs."""
    producers = [
        program.stages[ld.tensor.name] for ld in loads(stage.definition.body) if ld.tensor.name in program.stages
    ]
    return any(p.definition.reduction is not None or _reads_reduction(program, p) for p in producers)


def _is_product(stage: ProgramStage) -> bool:
    """Whether it sums products of two elements."""
    reduction, body = stage.definition.reduction, stage.definition.body
    if reduction is None or reduction.op is not ReduceOp.SUM or not isinstance(body, Binary):
        return False
    left, right = (x.x if isinstance(x, Cast) else x for x in (body.lhs, body.rhs))
    return body.op is BinaryOp.MUL and isinstance(left, Load) and isinstance(right, Load) and left is not right
