"""What a schedule means: the stages of a kernel with their loops and places, after every step has been applied.

A step is checked first and applied then; a step that does not fit raises INVALID_ARGUMENT with a sentence.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce

from compiler_service.loop_ir.ir import Scope
from compiler_service.schedule.steps import (
    ROOT,
    Alias,
    Attend,
    CacheRead,
    CacheWrite,
    ComputeAt,
    Diagonals,
    FetchNext,
    Guard,
    Inline,
    Overlap,
    Pack,
    Parallel,
    Peel,
    Prefetch,
    Reorder,
    Schedule,
    Split,
    Step,
    Unroll,
    Vectorize,
    Winograd,
)
from compiler_service.tensor_expr.diagonals import GroupedConvolution, diagonal_stages, match_groups
from compiler_service.tensor_expr.tensor import (
    Compute,
    Load,
    Placeholder,
    Reduction,
    Tensor,
    compute,
    loads,
    topological,
)
from compiler_service.tensor_expr.winograd import Convolution, match_convolution, winograd_stages
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.expr import Binary, BinaryOp, Expr, Var, substitute, transform


class LoopKind(enum.StrEnum):
    SERIAL = "serial"
    UNROLLED = "unrolled"
    VECTORIZED = "vectorized"
    PARALLEL = "parallel"


@dataclass(frozen=True, slots=True)
class Loop:
    """Advance ``axis`` by ``step`` elements; ``overlap`` and ``peel``: see the steps of these names."""

    axis: str
    step: int = 1
    kind: LoopKind = LoopKind.SERIAL
    guarded: bool = False
    overlap: bool = False
    peel: bool = False

    @property
    def name(self) -> str:
        return self.axis if self.step == 1 else f"{self.axis}.{self.step}"


@dataclass(frozen=True)
class Stage:
    """One computed tensor of the kernel.

    Attributes:
        body: the compute body after inlining.
        attach: (consumer stage, loop) inside which it is computed; None for the output.
        alias: it lives in the output's memory.
    """

    name: str
    tensor: Tensor
    body: Expr
    loops: tuple[Loop, ...]
    attach: tuple[str, str] | None = None
    scope: Scope = Scope.STACK
    alias: bool = False

    @property
    def compute(self) -> Compute:
        assert isinstance(self.tensor.op, Compute)
        return self.tensor.op

    @property
    def reduction(self) -> Reduction | None:
        return self.compute.reduction

    def loop(self, name: str) -> Loop:
        for candidate in self.loops:
            if candidate.name == name:
                return candidate
        raise _misfit(f"stage {self.name} has no loop {name}", ", ".join(entry.name for entry in self.loops), name)


@dataclass(frozen=True)
class Ahead:
    """The packed constant whose next tile is asked for, and along which axes the present one is read again (see Prefetch)."""

    tensor: Tensor
    sweeps: tuple[tuple[str, int, int], ...]


@dataclass(frozen=True)
class Further:
    """The argument that is asked for where ``axis`` is ``distance`` further (see FetchNext)."""

    tensor: Tensor
    axis: str
    distance: int


@dataclass(frozen=True)
class State:
    """All stages, producers first; the last one is the output.

    Attributes:
        packs: how arguments are laid out.
        prefetches: what the loop of a stage asks memory for, by the names of both.
        transformed: arguments that another tensor, computed from them at compile time, takes the place of.
        attend: how the stages are computed together, where they are attention (see the step of this name).
    """

    stages: Mapping[str, Stage]
    packs: Mapping[Tensor, Pack]
    prefetches: Mapping[tuple[str, str], Ahead | Further]
    transformed: Mapping[Tensor, Tensor]
    attend: Attend | None = None

    @property
    def output(self) -> Stage:
        return list(self.stages.values())[-1]

    def stage(self, name: str) -> Stage:
        if name not in self.stages:
            raise _misfit("no such stage", ", ".join(self.stages), name)
        return self.stages[name]

    def with_stage(self, stage: Stage) -> State:
        return replace(self, stages={**self.stages, stage.name: stage})

    def stage_of(self, tensor: Tensor) -> Stage | None:
        return next((s for s in self.stages.values() if s.tensor is tensor), None)

    def consumers(self, tensor: Tensor) -> tuple[Stage, ...]:
        return tuple(s for s in self.stages.values() if any(ld.tensor is tensor for ld in loads(s.body)))


def _misfit(message: str, expected: str = "", received: str = "") -> IngotError:
    return IngotError(ErrorCode.INVALID_ARGUMENT, f"schedule: {message}", expected=expected, received=received)


def stage_names(output: Tensor) -> dict[Tensor, str]:
    """A unique name for every tensor of a kernel, placeholders too, producers first."""
    names: dict[Tensor, str] = {}
    used: set[str] = set()
    for tensor in topological(output):
        name, i = tensor.name, 1
        while name in used:
            i += 1
            name = f"{tensor.name}_{i}"
        used.add(name)
        names[tensor] = name
    return names


def initial_state(output: Tensor) -> State:
    """Every stage with one serial loop per axis; nothing is placed yet."""
    stages = {name: _stage_of(t, name) for t, name in stage_names(output).items() if isinstance(t.op, Compute)}
    return State(stages, {}, {}, {})


def apply_schedule(output: Tensor, schedule: Schedule) -> State:
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


def _check_place(state: State, stage: Stage) -> None:
    if stage.attach is None or stage.attach[1] == ROOT:
        return
    consumer = state.stage(stage.attach[0])
    at = consumer.loops.index(consumer.loop(stage.attach[1]))
    if any(o.kind is LoopKind.VECTORIZED for o in consumer.loops[: at + 1]):
        raise _misfit(
            f"{stage.name} cannot be computed inside the vector loop of {consumer.name}", "a loop outside of it"
        )


def _apply(state: State, step: Step, placeholders: Mapping[str, Tensor]) -> State:
    match step:
        case Split():
            return state.with_stage(_split(state.stage(step.stage), step))
        case Reorder():
            return state.with_stage(_reorder(state.stage(step.stage), step.loops))
        case Unroll() | Vectorize() | Guard() | Overlap() | Peel():
            return state.with_stage(_marked(state.stage(step.stage), step))
        case Parallel():
            return state.with_stage(_parallel(state, step))
        case Inline():
            return _inline(state, state.stage(step.stage))
        case ComputeAt():
            return _compute_at(state, step)
        case CacheWrite():
            return _cache_write(state, state.stage(step.stage))
        case Attend():
            return replace(state, attend=step)
        case Alias():
            return _alias(state, state.stage(step.stage))
        case CacheRead() | Pack() | Prefetch() | FetchNext() | Winograd() | Diagonals():
            return _apply_to_argument(state, step, placeholders)


def _apply_to_argument(
    state: State,
    step: CacheRead | Pack | Prefetch | FetchNext | Winograd | Diagonals,
    placeholders: Mapping[str, Tensor],
) -> State:
    match step:
        case CacheRead():
            return _cache_read(state, _placeholder(placeholders, step.tensor), step)
        case Pack():
            return _pack(state, _placeholder(placeholders, step.tensor), step)
        case Prefetch():
            return _prefetch(state, step, _placeholder(placeholders, step.tensor))
        case FetchNext():
            return _fetch_next(state, step, _placeholder(placeholders, step.tensor))
        case Winograd():
            return _winograd(state, state.stage(step.stage), step, _placeholder(placeholders, step.weight))
        case Diagonals():
            return _diagonals(state, state.stage(step.stage), _placeholder(placeholders, step.weight))


def _pack(state: State, argument: Tensor, step: Pack) -> State:
    return replace(state, packs={**state.packs, state.transformed.get(argument, argument): step})


def _prefetch(state: State, step: Prefetch, argument: Tensor) -> State:
    stage = state.stage(step.stage)
    loop = stage.loop(step.loop)
    if stage.reduction is None or all(a.name != loop.axis for a in stage.reduction.axes):
        raise _misfit(f"{stage.name} can ask for data in a loop of its reduction only", received=step.loop)
    tensor = state.transformed.get(argument, argument)
    if tensor not in state.packs:
        raise _misfit(f"{step.tensor} must be packed before it is asked for ahead", "a step pack")
    return replace(state, prefetches={**state.prefetches, (step.stage, step.loop): Ahead(tensor, step.sweeps)})


def _fetch_next(state: State, step: FetchNext, argument: Tensor) -> State:
    stage = state.stage(step.stage)
    stage.loop(step.loop)
    if not any(load.tensor is argument for load in loads(stage.body)):
        raise _misfit(f"{stage.name} does not read {step.tensor}")
    found = Further(argument, step.axis, step.distance)
    return replace(state, prefetches={**state.prefetches, (step.stage, step.loop): found})


def _placeholder(placeholders: Mapping[str, Tensor], name: str) -> Tensor:
    if name not in placeholders:
        raise _misfit("no such argument", ", ".join(placeholders), name)
    return placeholders[name]


def _split(stage: Stage, step: Split) -> Stage:
    inner = stage.loop(step.axis)
    steps = [entry.step for entry in stage.loops if entry.axis == step.axis and entry.step > 1]
    if step.factor < 2 or any(s <= step.factor for s in steps):
        raise _misfit(f"cannot split {stage.name}.{step.axis} by {step.factor}", "at least 2, less than the outer tile")
    at = stage.loops.index(inner)
    return replace(stage, loops=(*stage.loops[:at], Loop(step.axis, step.factor), *stage.loops[at:]))


def _reorder(stage: Stage, names: Sequence[str]) -> Stage:
    loops = tuple(stage.loop(n) for n in names)
    if sorted(names) != sorted(entry.name for entry in stage.loops):
        raise _misfit(f"reorder of {stage.name} must name every loop once", received=", ".join(names))
    for i, outer in enumerate(loops):
        for inner in loops[i + 1 :]:
            if inner.axis == outer.axis and inner.step >= outer.step:
                raise _misfit(f"{stage.name}: loop {inner.name} must stay outside {outer.name}")
    return replace(stage, loops=loops)


def _marked(stage: Stage, step: Unroll | Vectorize | Guard | Overlap | Peel) -> Stage:
    if isinstance(step, Overlap | Peel):
        return _overlapping(stage, step)
    if isinstance(step, Guard):
        guarded = stage.loop(step.loop)
        return replace(stage, loops=tuple(replace(o, guarded=True) if o == guarded else o for o in stage.loops))
    kind = LoopKind.UNROLLED if isinstance(step, Unroll) else LoopKind.VECTORIZED
    return _with_kind(stage, (step.loop,), kind)


def _with_kind(stage: Stage, names: Sequence[str], kind: LoopKind) -> Stage:
    for name in names:
        stage.loop(name)
    return replace(stage, loops=tuple(replace(o, kind=kind) if o.name in names else o for o in stage.loops))


def _overlapping(stage: Stage, step: Overlap | Peel) -> Stage:
    loop = stage.loop(step.loop)
    if loop.step == 1 or any(o.axis == loop.axis and o.step > loop.step for o in stage.loops):
        raise _misfit(f"{stage.name}: tiles that overlap must be the outermost of their axis", received=step.loop)
    if stage.reduction is not None:
        raise _misfit(f"{stage.name} is a reduction: its tiles cannot overlap", received=step.loop)
    marked = replace(loop, overlap=True) if isinstance(step, Overlap) else replace(loop, peel=True)
    return replace(stage, loops=tuple(marked if o is loop else o for o in stage.loops))


def _parallel(state: State, step: Parallel) -> Stage:
    stage = state.stage(step.stage)
    if stage is not state.output:
        raise _misfit("only the output stage has parallel loops", state.output.name, stage.name)
    if tuple(o.name for o in stage.loops[: len(step.loops)]) != step.loops:
        raise _misfit("parallel loops must be the outermost ones", received=", ".join(step.loops))
    reduced = {a.name for a in stage.reduction.axes} if stage.reduction else set()
    if any(stage.loop(n).axis in reduced for n in step.loops):
        raise _misfit("a reduction loop cannot be parallel", received=", ".join(step.loops))
    return _with_kind(stage, step.loops, LoopKind.PARALLEL)


def _inline(state: State, stage: Stage) -> State:
    if stage.reduction is not None or stage is state.output:
        raise _misfit("only a stage without reduction that is not the output can be inlined", received=stage.name)
    axes = [a.var for a in stage.compute.axes]

    def expand(node: Expr) -> Expr | None:
        if isinstance(node, Load) and node.tensor is stage.tensor:
            return substitute(stage.body, dict(zip(axes, node.indices, strict=True)))
        return None

    def rewritten(consumer: Stage) -> Stage:
        if all(ld.tensor is not stage.tensor for ld in loads(consumer.body)):
            return consumer
        return replace(consumer, body=transform(consumer.body, expand))

    return replace(state, stages={n: rewritten(s) for n, s in state.stages.items() if n != stage.name})


def _compute_at(state: State, step: ComputeAt) -> State:
    stage, consumer = state.stage(step.stage), state.stage(step.consumer)
    if step.loop != ROOT:
        consumer.loop(step.loop)
    order = list(state.stages)
    if order.index(stage.name) >= order.index(consumer.name):
        raise _misfit(f"{stage.name} is not computed before {consumer.name}")
    return state.with_stage(replace(stage, attach=(consumer.name, step.loop), scope=Scope(step.scope)))


def _cache_write(state: State, stage: Stage) -> State:
    if stage is not state.output:
        raise _misfit("cache_write takes the output stage", state.output.name, stage.name)
    accumulator = replace(stage, name=f"{stage.name}.acc")
    tensor = stage.tensor
    copy = compute(tensor.shape, lambda *i: tensor[i], name=tensor.name, axes=[a.name for a in stage.compute.axes])
    assert isinstance(copy.op, Compute)
    output = Stage(stage.name, copy, copy.op.body, tuple(Loop(a.name) for a in copy.op.axes))
    before = {n: s for n, s in state.stages.items() if n != stage.name}
    return replace(state, stages={**before, accumulator.name: accumulator, output.name: output})


def _cache_read(state: State, tensor: Tensor, step: CacheRead) -> State:
    """``L[i[axes[0]], i[axes[1]], ...] = T[i]``"""
    if sorted(step.axes) != list(range(tensor.rank)):
        raise _misfit("cache_read must name every axis of the tensor once", received=str(step.axes))
    names = tuple(f"{step.tensor}_{a}" for a in step.axes)

    def original(local: tuple[Expr, ...]) -> Load:
        by_axis = dict(zip(step.axes, local, strict=True))
        return tensor[tuple(by_axis[a] for a in range(tensor.rank))]

    copy = compute(
        [tensor.shape[a] for a in step.axes], lambda *i: original(i), name=f"{step.tensor}.local", axes=names
    )
    assert isinstance(copy.op, Compute)
    local = Stage(copy.name, copy, copy.op.body, tuple(Loop(n) for n in names))

    def reroute(node: Expr) -> Expr | None:
        if isinstance(node, Load) and node.tensor is tensor:
            return copy[tuple(node.indices[a] for a in step.axes)]
        return None

    others = {n: replace(s, body=transform(s.body, reroute)) for n, s in state.stages.items()}
    return replace(state, stages={local.name: local, **others})


def _winograd(state: State, stage: Stage, step: Winograd, weight: Tensor) -> State:
    conv = convolution_of(stage)
    if conv is None or conv.weight.tensor is not weight or conv.weight_axes != step.axes:
        raise _misfit(f"{stage.name} is not a convolution of stride 1 by {step.weight}")
    made = winograd_stages(conv, step.tile)
    tensors = (made.data, made.rows, made.transformed, made.accumulated, made.product, made.columns, made.output)
    return replace(_replaced(state, stage, tensors), transformed={**state.transformed, weight: made.weight})


def _diagonals(state: State, stage: Stage, weight: Tensor) -> State:
    conv = grouped_convolution_of(stage)
    if conv is None or conv.weight.tensor is not weight:
        raise _misfit(f"{stage.name} is not a grouped convolution by {weight.name}")
    made = diagonal_stages(conv)
    return replace(
        _replaced(state, stage, (made.diagonals, made.output)), transformed={**state.transformed, weight: made.weight}
    )


def _replaced(state: State, stage: Stage, tensors: Sequence[Tensor]) -> State:
    """``tensors``, producers first, in place of ``stage``, whose name the last of them takes."""
    *made, output = tensors
    new = {t.name: _stage_of(t) for t in made} | {stage.name: _stage_of(output, stage.name)}

    def reroute(node: Expr) -> Expr | None:
        return Load(output, node.indices) if isinstance(node, Load) and node.tensor is stage.tensor else None

    stages: dict[str, Stage] = {}
    for name, other in state.stages.items():
        if other is stage:
            stages |= new
        else:
            stages[name] = replace(other, body=transform(other.body, reroute))
    return replace(state, stages=stages)


def _stage_of(tensor: Tensor, name: str = "") -> Stage:
    assert isinstance(tensor.op, Compute)
    return Stage(name or tensor.name, tensor, tensor.op.body, tuple(Loop(a.name) for a in tensor.op.all_axes))


def convolution_of(stage: Stage) -> Convolution | None:
    """``stage`` as a convolution that Winograd's filtering applies to, or None."""
    return next((c for pair in _factors(stage) if (c := match_convolution(stage.tensor, *pair)) is not None), None)


def grouped_convolution_of(stage: Stage) -> GroupedConvolution | None:
    """``stage`` as a convolution of groups that have as many outputs as channels, or None."""
    return next((c for pair in _factors(stage) if (c := match_groups(stage.tensor, *pair)) is not None), None)


def _factors(stage: Stage) -> tuple[tuple[Load, Load], ...]:
    """The loads that ``stage`` multiplies, in both orders."""
    factors = stage.body.children() if isinstance(stage.body, Binary) and stage.body.op is BinaryOp.MUL else ()
    if len(factors) != 2 or not all(isinstance(f, Load) for f in factors):
        return ()
    first, second = (f for f in factors if isinstance(f, Load))
    return (first, second), (second, first)


def _alias(state: State, stage: Stage) -> State:
    output = state.output
    own = tuple(a.var for a in output.compute.axes)
    reads = [ld for ld in loads(output.body) if ld.tensor is stage.tensor]
    if stage.tensor.dtype is not output.tensor.dtype or any(_indices(ld) != own for ld in reads):
        raise _misfit(f"{output.name} must read {stage.name} at its own index, with its own element type")
    return state.with_stage(replace(stage, alias=True))


def _indices(load: Load) -> tuple[Expr, ...] | tuple[Var, ...]:
    return load.indices
