"""What the steps of a schedule do to the state of a kernel.

A step is checked first and applied then; a step that does not fit raises INVALID_ARGUMENT with a sentence.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce
from typing import TypeAlias

from compiler_service.compiler.loop_ir.ir import BufferScope
from compiler_service.compiler.schedule.language.algorithm import AlgorithmStep, NestStep
from compiler_service.compiler.schedule.language.fusing import fused
from compiler_service.compiler.schedule.language.interior import padded_part
from compiler_service.compiler.schedule.language.recomputing import recomputed
from compiler_service.compiler.schedule.language.replacing import stage_of_tensor
from compiler_service.compiler.schedule.language.schedule import Schedule, Step
from compiler_service.compiler.schedule.language.state import (
    Ahead,
    Further,
    KernelStage,
    LoopKind,
    ScheduleState,
    StageLoop,
    misfit,
    stage_names,
)
from compiler_service.compiler.schedule.language.steps import (
    ROOT,
    Alias,
    CacheRead,
    CacheWrite,
    ComputeAt,
    FetchNext,
    FuseLoops,
    Guard,
    Inline,
    Overlap,
    Pack,
    Parallel,
    Peel,
    PrefetchTile,
    Recompute,
    Reorder,
    SkipPadding,
    Split,
    Stagger,
    StorageAlign,
    Unroll,
    Vectorize,
)
from compiler_service.compiler.tensor_expr.tensor import (
    Compute,
    Load,
    Placeholder,
    Tensor,
    compute,
    loads,
    varies,
)
from shared_ir.expr import Expr, Var, substitute, transform
from shared_ir.expr.simplify import Simplifier

_Mark: TypeAlias = Unroll | Vectorize | Guard | Overlap | Peel | Stagger


def initial_state(output: Tensor) -> ScheduleState:
    """Every stage with one serial loop per axis; nothing is placed yet."""
    stages = {name: stage_of_tensor(t, name) for t, name in stage_names(output).items() if isinstance(t.op, Compute)}
    return ScheduleState(stages, {}, {}, {}, strides=output.strides)


def apply_schedule(output: Tensor, schedule: Schedule) -> ScheduleState:
    """The state after all steps.

    Raises:
        IngotError: INVALID_ARGUMENT, a step does not fit the kernel.
    """
    names = stage_names(output)
    placeholders = {n: t for t, n in names.items() if isinstance(t.op, Placeholder)}
    state = reduce(lambda state, step: _apply(state, step, placeholders), schedule, initial_state(output))
    for stage in state.stages.values():
        _check_place(state, stage)
    return state


def _check_place(state: ScheduleState, stage: KernelStage) -> None:
    if stage.attach is None or stage.attach[1] == ROOT:
        return
    consumer = state.stage(stage.attach[0])
    at = consumer.loops.index(consumer.loop(stage.attach[1]))
    if any(o.kind is LoopKind.VECTORIZED for o in consumer.loops[: at + 1]):
        raise misfit(
            f"{stage.name} cannot be computed inside the vector loop of {consumer.name}", "a loop outside of it"
        )


def _apply(state: ScheduleState, step: Step, placeholders: Mapping[str, Tensor]) -> ScheduleState:
    match step:
        case (
            Split()
            | Reorder()
            | FuseLoops()
            | Parallel()
            | Unroll()
            | Vectorize()
            | Guard()
            | Overlap()
            | Peel()
            | Stagger()
        ):
            return state.with_stage(_with_loops(state, step))
        case Inline() | CacheWrite() | Alias() | ComputeAt() | StorageAlign() | Recompute() | SkipPadding():
            return _with_stages(state, step)
        case NestStep():
            return state  # what it does, it does when the kernel is lowered
        case CacheRead() | Pack() | PrefetchTile() | FetchNext():
            argument = _placeholder(placeholders, step.tensor)
            return _apply_to_argument(state, step, state.transformed.get(argument, argument))
        case AlgorithmStep():
            return step.replaced(state, state.stage(step.stage), _placeholder(placeholders, step.weight))


def _with_stages(
    state: ScheduleState, step: Inline | CacheWrite | Alias | ComputeAt | StorageAlign | Recompute | SkipPadding
) -> ScheduleState:
    """``state`` with its stages at other places, or other stages."""
    match step:
        case Inline():
            return _inline(state, state.stage(step.stage))
        case CacheWrite():
            return _cache_write(state, state.stage(step.stage))
        case Alias():
            return _alias(state, state.stage(step.stage))
        case ComputeAt():
            return _compute_at(state, step)
        case StorageAlign():
            return _storage_align(state, step)
        case Recompute():
            return recomputed(state)
        case SkipPadding():
            return _skip_padding(state, step)


def _with_loops(state: ScheduleState, step: Split | Reorder | FuseLoops | Parallel | _Mark) -> KernelStage:
    """The stage of ``step`` with other loops."""
    match step:
        case Split():
            return _split(state.stage(step.stage), step)
        case Reorder():
            return _reorder(state.stage(step.stage), step.loops)
        case FuseLoops():
            return fused(state.stage(step.stage), step)
        case Parallel():
            return _parallel(state, step)
        case Unroll() | Vectorize() | Guard() | Overlap() | Peel() | Stagger():
            return _marked(state.stage(step.stage), step)


def _apply_to_argument(
    state: ScheduleState, step: CacheRead | Pack | PrefetchTile | FetchNext, argument: Tensor
) -> ScheduleState:
    """``argument`` is what is read in its place."""
    match step:
        case CacheRead():
            return _cache_read(state, argument, step)
        case Pack():
            return _pack(state, argument, step)
        case PrefetchTile():
            return _prefetch(state, step, argument)
        case FetchNext():
            return _fetch_next(state, step, argument)


def _pack(state: ScheduleState, argument: Tensor, step: Pack) -> ScheduleState:
    return replace(state, packs={**state.packs, argument: step})


def _prefetch(state: ScheduleState, step: PrefetchTile, argument: Tensor) -> ScheduleState:
    stage = state.stage(step.stage)
    loop = stage.loop(step.loop)
    if stage.reduction is None or all(a.name != loop.axis for a in stage.reduction.axes):
        raise misfit(f"{stage.name} can ask for data in a loop of its reduction only", received=step.loop)
    load = next((e for e in loads(stage.body) if e.tensor is argument), None)
    if load is None:
        raise misfit(f"{stage.name} does not read {step.tensor}")
    if argument not in state.packs and not stage.reads_rows(load):
        raise misfit(
            f"{step.tensor} is not read along rows that follow each other", "rows of the reduction, or a step pack"
        )
    return _asking(state, step, Ahead(argument, step.sweeps))


def _skip_padding(state: ScheduleState, step: SkipPadding) -> ScheduleState:
    stage, padded = state.stage(step.stage), state.stage(step.padded)
    loop = stage.loop(step.loop)
    if stage.reduction is None or all(a.name != loop.axis for a in stage.reduction.axes):
        raise misfit(f"{stage.name} can leave out padding in a loop of its reduction only", received=step.loop)
    if not stage.adds_products_of(padded.tensor):
        raise misfit(f"{stage.name} is not a sum of products of {step.padded}")
    if all(a.name != step.axis for a in padded.compute.axes):
        raise misfit(f"{step.padded} has no axis {step.axis}", ", ".join(a.name for a in padded.compute.axes))
    if padded_part(padded, step.axis, Simplifier({})) is None:
        raise misfit(f"{step.padded} is not padding with zeros", received=step.axis)
    place = (step.stage, step.loop)
    found = (*state.skips.get(place, ()), (step.padded, step.axis))
    return replace(state, skips={**state.skips, place: found})


def _asking(state: ScheduleState, step: PrefetchTile | FetchNext, found: Ahead | Further) -> ScheduleState:
    """``state`` where the loop of ``step`` asks for what is ``found`` as well."""
    loop = (step.stage, step.loop)
    return replace(state, prefetches={**state.prefetches, loop: (*state.prefetches.get(loop, ()), found)})


def _fetch_next(state: ScheduleState, step: FetchNext, argument: Tensor) -> ScheduleState:
    stage = state.stage(step.stage)
    stage.loop(step.loop)
    reader = state.stage(step.reader) if step.reader else stage
    if not any(load.tensor is argument for load in loads(reader.body)):
        raise misfit(f"{reader.name} does not read {step.tensor}")
    if step.sweeps and argument not in state.packs:
        raise misfit(f"{step.tensor} must be packed before it is asked for in parts", "a step pack")
    found = Further(argument, step.axis, step.distance, reader.name, step.sweeps)
    return _asking(state, step, found)


def _placeholder(placeholders: Mapping[str, Tensor], name: str) -> Tensor:
    if name not in placeholders:
        raise misfit("no such argument", ", ".join(placeholders), name)
    return placeholders[name]


def _split(stage: KernelStage, step: Split) -> KernelStage:
    own = [entry for entry in stage.loops if entry.axis == step.axis]
    if not own:
        raise misfit(f"stage {stage.name} has no axis {step.axis}", ", ".join(a.name for a in stage.compute.all_axes))
    if step.factor < 2 or any(entry.step == step.factor for entry in own):
        raise misfit(f"cannot split {stage.name}.{step.axis} by {step.factor}", "at least 2, and no tile that there is")
    fused = [part for entry in stage.loops for part in entry.parts if part.axis == step.axis]
    if any(part.step <= step.factor for part in fused):
        raise misfit(f"cannot split {stage.name}.{step.axis} around a loop that is fused", "less than the fused tile")
    inner = max((entry for entry in own if entry.step < step.factor), key=lambda entry: entry.step)
    at = stage.loops.index(inner)
    return replace(stage, loops=(*stage.loops[:at], StageLoop(step.axis, step.factor), *stage.loops[at:]))


def _reorder(stage: KernelStage, names: Sequence[str]) -> KernelStage:
    loops = tuple(stage.loop(n) for n in names)
    if sorted(names) != sorted(entry.name for entry in stage.loops):
        raise misfit(f"reorder of {stage.name} must name every loop once", received=", ".join(names))
    for i, outer in enumerate(loops):
        for inner in loops[i + 1 :]:
            pairs = itertools.product(outer.advanced, inner.advanced)
            if any(b.axis == a.axis and b.step >= a.step for a, b in pairs):
                raise misfit(f"{stage.name}: loop {inner.name} must stay outside {outer.name}")
    return replace(stage, loops=loops)


def _marked(stage: KernelStage, step: _Mark) -> KernelStage:
    if isinstance(step, Overlap | Peel):
        return _overlapping(stage, step)
    if isinstance(step, Guard | Stagger):
        loop = stage.loop(step.loop)
        marked = replace(loop, guarded=True) if isinstance(step, Guard) else replace(loop, staggered=step.rows)
        return replace(stage, loops=tuple(marked if o == loop else o for o in stage.loops))
    kind = LoopKind.UNROLLED if isinstance(step, Unroll) else LoopKind.VECTORIZED
    return _with_kind(stage, (step.loop,), kind)


def _with_kind(stage: KernelStage, names: Sequence[str], kind: LoopKind) -> KernelStage:
    for name in names:
        stage.loop(name)
    return replace(stage, loops=tuple(replace(o, kind=kind) if o.name in names else o for o in stage.loops))


def _overlapping(stage: KernelStage, step: Overlap | Peel) -> KernelStage:
    loop = stage.loop(step.loop)
    if loop.step == 1 or any(o.axis == loop.axis and o.step > loop.step for o in stage.loops):
        raise misfit(f"{stage.name}: tiles that overlap must be the outermost of their axis", received=step.loop)
    if stage.reduction is not None:
        raise misfit(f"{stage.name} is a reduction: its tiles cannot overlap", received=step.loop)
    marked = replace(loop, overlap=True) if isinstance(step, Overlap) else replace(loop, peel=True)
    return replace(stage, loops=tuple(marked if o is loop else o for o in stage.loops))


def _parallel(state: ScheduleState, step: Parallel) -> KernelStage:
    stage = state.stage(step.stage)
    if stage is not state.output:
        raise misfit("only the output stage has parallel loops", state.output.name, stage.name)
    if tuple(o.name for o in stage.loops[: len(step.loops)]) != step.loops:
        raise misfit("parallel loops must be the outermost ones", received=", ".join(step.loops))
    if any(stage.reduces(stage.loop(n)) for n in step.loops):
        raise misfit("a reduction loop cannot be parallel", received=", ".join(step.loops))
    axes = [part.axis for n in step.loops for part in stage.loop(n).advanced]
    if len(set(axes)) < len(axes):
        raise misfit(
            "tiles of an axis and what is inside of them cannot both be parallel", received=", ".join(step.loops)
        )
    return _with_kind(stage, step.loops, LoopKind.PARALLEL)


def _inline(state: ScheduleState, stage: KernelStage) -> ScheduleState:
    if stage.reduction is not None or stage is state.output:
        raise misfit("only a stage without reduction that is not the output can be inlined", received=stage.name)
    axes = [a.var for a in stage.compute.axes]

    def expand(node: Expr) -> Expr | None:
        if isinstance(node, Load) and node.tensor is stage.tensor:
            return substitute(stage.body, dict(zip(axes, node.indices, strict=True)))
        return None

    def rewritten(consumer: KernelStage) -> KernelStage:
        if all(ld.tensor is not stage.tensor for ld in loads(consumer.body)):
            return consumer
        return replace(consumer, body=transform(consumer.body, expand))

    return replace(state, stages={n: rewritten(s) for n, s in state.stages.items() if n != stage.name})


def _compute_at(state: ScheduleState, step: ComputeAt) -> ScheduleState:
    stage, consumer = state.stage(step.stage), state.stage(step.consumer)
    if step.loop != ROOT:
        consumer.loop(step.loop)
    order = list(state.stages)
    if order.index(stage.name) >= order.index(consumer.name):
        raise misfit(f"{stage.name} is not computed before {consumer.name}")
    return state.with_stage(replace(stage, attach=(consumer.name, step.loop), scope=BufferScope(step.scope)))


def _storage_align(state: ScheduleState, step: StorageAlign) -> ScheduleState:
    stage = state.stage(step.stage)
    if stage.attach is None:
        raise misfit(f"{stage.name} has the memory of a result, which has no gaps", "a stage inside of another")
    if stage.tensor.rank < 2:
        raise misfit(f"{stage.name} has no rows", "a stage of at least two axes", f"{stage.tensor.rank}")
    if step.factor < 1 or not 0 <= step.offset < step.factor:
        received = f"{step.factor}, {step.offset}"
        raise misfit("rows cannot be aligned so", "a factor of at least 1, and an offset below it", received)
    return state.with_stage(replace(stage, align=(step.factor, step.offset)))


def _cache_write(state: ScheduleState, stage: KernelStage) -> ScheduleState:
    if stage is not state.output:
        raise misfit("cache_write takes the output stage", state.output.name, stage.name)
    accumulator = replace(stage, name=f"{stage.name}.acc")
    tensor = stage.tensor
    copy = compute(tensor.shape, lambda *i: tensor[i], name=tensor.name, axes=[a.name for a in stage.compute.axes])
    assert isinstance(copy.op, Compute)
    output = KernelStage(stage.name, copy, copy.op.body, tuple(StageLoop(a.name) for a in copy.op.axes))
    before = {n: s for n, s in state.stages.items() if n != stage.name}
    return replace(state, stages={**before, accumulator.name: accumulator, output.name: output})


def _cache_read(state: ScheduleState, tensor: Tensor, step: CacheRead) -> ScheduleState:
    """``L[i[axes[0]], i[axes[1]], ...] = T[i]``"""
    if sorted(step.axes) != list(range(tensor.rank)):
        raise misfit("cache_read must name every axis of the tensor once", received=str(step.axes))
    names = tuple(f"{step.tensor}_{a}" for a in step.axes)

    def original(local: tuple[Expr, ...]) -> Load:
        by_axis = dict(zip(step.axes, local, strict=True))
        return tensor[tuple(by_axis[a] for a in range(tensor.rank))]

    copy = compute(
        [tensor.shape[a] for a in step.axes], lambda *i: original(i), name=f"{step.tensor}.local", axes=names
    )
    assert isinstance(copy.op, Compute)
    local = KernelStage(copy.name, copy, copy.op.body, tuple(StageLoop(n) for n in names))

    def reroute(node: Expr) -> Expr | None:
        if isinstance(node, Load) and node.tensor is tensor and (not step.along or varies(node, step.along)):
            return copy[tuple(node.indices[a] for a in step.axes)]
        return None

    others = {
        n: replace(s, body=transform(s.body, reroute)) if step.stage in ("", n) else s for n, s in state.stages.items()
    }
    return replace(state, stages={local.name: local, **others})


def _alias(state: ScheduleState, stage: KernelStage) -> ScheduleState:
    output = state.output
    own = tuple(a.var for a in output.compute.axes)
    reads = [ld for ld in loads(output.body) if ld.tensor is stage.tensor]
    if stage.tensor.dtype is not output.tensor.dtype or any(_indices(ld) != own for ld in reads):
        raise misfit(f"{output.name} must read {stage.name} at its own index, with its own element type")
    return state.with_stage(replace(stage, alias=True))


def _indices(load: Load) -> tuple[Expr, ...] | tuple[Var, ...]:
    return load.indices
