"""What a rule needs to know of a kernel: its reductions, which output axes they hang on, and who reads memory in a row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Self

from compiler_service.compiler.schedule.language.apply import apply_schedule
from compiler_service.compiler.schedule.language.knobs import Knobs
from compiler_service.compiler.schedule.language.schedule import Schedule
from compiler_service.compiler.schedule.language.state import KernelStage, ScheduleState
from compiler_service.compiler.schedule.language.steps import CacheWrite, Inline
from compiler_service.compiler.tensor_expr.tensor import Axis, Load, Placeholder, Tensor, axis_var, loads
from shared_ir.expr import Binary, BinaryOp, Const, Expr, Unary, UnaryOp, Var, substitute, variables, walk
from shared_ir.expr.dim import Dim
from shared_ir.expr.simplify import simplify

_EXPENSIVE_UNARY = frozenset(UnaryOp) - {UnaryOp.NEG, UnaryOp.NOT, UnaryOp.BIT_NOT, UnaryOp.ABS}
_EXPENSIVE_BINARY = frozenset({BinaryOp.POW, BinaryOp.DIV, BinaryOp.ATAN2})


@dataclass(frozen=True)
class KernelView:
    """A kernel to schedule.

    Attributes:
        output: the tensor it computes.
        constants: arguments known at compile time, which may be packed.
        state: the stages before any step.
        knobs: what rules ask where the model of the target may be wrong; they answer as the model has it, unless a tuner asks.
        is_open: whether rules give a schedule also where the model takes another one for faster.
    """

    output: Tensor
    constants: frozenset[Tensor]
    state: ScheduleState
    knobs: Knobs = field(default_factory=Knobs, compare=False, repr=False)
    is_open: bool = False

    @classmethod
    def of(cls, output: Tensor, constants: frozenset[Tensor]) -> KernelView:
        return cls(output, constants, apply_schedule(output, ()))

    def after(self, schedule: Schedule) -> ScheduleState:
        return apply_schedule(self.output, schedule)

    def answered_by(self, knobs: Knobs) -> Self:
        """The same kernel for rules that ask ``knobs``."""
        return replace(self, knobs=knobs)


def reductions(state: ScheduleState) -> tuple[KernelStage, ...]:
    return tuple(s for s in state.stages.values() if s.reduction is not None)


def only_reduction(state: ScheduleState) -> KernelStage | None:
    """The reduction, where there is no other."""
    found = reductions(state)
    return found[0] if len(found) == 1 else None


def accumulated(kernel: KernelView) -> Schedule:
    """The step by which an output that is a reduction itself is accumulated apart."""
    output = kernel.state.output
    return () if output.reduction is None else (CacheWrite(output.name),)


def inlined(state: ScheduleState, keep: frozenset[str] = frozenset()) -> tuple[Inline, ...]:
    """Steps that inline every stage but reductions, the output and ``keep``; consumers last."""
    return tuple(
        Inline(s.name)
        for s in state.stages.values()
        if s.reduction is None and s is not state.output and s.name not in keep
    )


def is_expensive(body: Expr) -> bool:
    """Worth computing once rather than at every use: a division or a transcendental function."""
    return any(
        (isinstance(e, Unary) and e.op in _EXPENSIVE_UNARY) or (isinstance(e, Binary) and e.op in _EXPENSIVE_BINARY)
        for e in walk(body)
    )


def depends(expr: Expr, axis: str) -> bool:
    return axis_var(axis) in variables(expr)


def index_axes(load: Load) -> Iterator[frozenset[str]]:
    """For each index of ``load``, the axes that it mentions."""
    for index in load.indices:
        yield frozenset(v.name[1:] for v in variables(index) if v.name.startswith("$"))


def contiguous_axis(stage: KernelStage) -> str | None:
    """The axis along which the largest argument is read element by element (its last index is that axis plus
    something constant), or None; of several the last of the results', along which lanes need not be combined.

    Where windows slide along the last axis of the results, and no argument is read along another, it is that one.
    """
    best: tuple[int, bool, str] | None = None
    last = stage.compute.axes[-1].name if stage.compute.axes else ""
    found = [ld for ld in loads(stage.body) if ld.indices and isinstance(ld.tensor.op, Placeholder)]
    others = [a.name for a in stage.compute.axes[:-1]]
    slides = not any(depends(ld.indices[-1], name) for ld in found for name in others)
    for load in found:
        names = [a.name for a in stage.compute.all_axes if depends(load.indices[-1], a.name)]
        names = [last] if slides and last in names and steps_along(load.indices[-1], last) else names
        rank = sum(1 for axes in index_axes(load) if axes)
        if len(names) == 1 and (best is None or (rank, names[0] == last) > best[:2]):
            best = (rank, names[0] == last, names[0])
    return None if best is None else best[2]


def _axes_behind(
    state: ScheduleState, start: KernelStage, *, past_reductions: bool
) -> Mapping[str, Mapping[str, frozenset[str]]]:
    """For ``start`` and each stage that it reads, itself or by way of others (reductions only if ``past_reductions``), the axes
    of ``start`` that each of the stage's axes depends on."""
    found = {start.name: {a.name: frozenset({a.name}) for a in start.compute.all_axes}}
    for stage in reversed(list(state.stages.values())):
        own = found.get(stage.name)
        if own is None or (stage.reduction is not None and stage is not start and not past_reductions):
            continue
        for load in loads(stage.body):
            source = state.stage_of(load.tensor)
            if source is None:
                continue
            known = found.setdefault(source.name, {})
            for axis, axes in zip(source.compute.axes, index_axes(load), strict=True):
                known[axis.name] = known.get(axis.name, frozenset()).union(*(own.get(n, frozenset()) for n in axes))
    return found


def bound_axes(state: ScheduleState, output: KernelStage, ignore: frozenset[str] = frozenset()) -> tuple[str, ...]:
    """Axes of the output on which some other remaining stage (but ``ignore``) depends: it must be computed inside their
    loops."""
    behind = _axes_behind(state, output, past_reductions=True)
    others = [axes for name, axes in behind.items() if name != output.name and name not in ignore]
    bound = frozenset().union(*(found for axes in others for found in axes.values()))
    return tuple(a.name for a in output.compute.axes if a.name in bound)


def stays_in_row(state: ScheduleState, stage: KernelStage, bound: Iterable[str]) -> bool:
    """Whether everything that reads ``stage``, which has the axes of the output, does so at the output's own place along
    the ``bound`` axes: the rows of different tasks are then apart."""
    output = state.output
    own = [a.var for a in output.compute.axes]
    fixed = [i for i, a in enumerate(output.compute.axes) if a.name in set(bound)]
    places: dict[str, Mapping[Var, Expr] | None] = {output.name: {v: v for v in own}}
    for reader in reversed(list(state.stages.values())):
        place = places.get(reader.name, {})
        for load in loads(reader.body):
            source = state.stage_of(load.tensor)
            if source is None or reader.name not in places:
                continue
            indices = None if place is None else [substitute(i, place) for i in load.indices]
            if source is stage and (indices is None or any(indices[i] != own[i] for i in fixed)):
                return False
            found = None if indices is None else {a.var: i for a, i in zip(source.compute.axes, indices, strict=True)}
            places[source.name] = found if places.get(source.name, found) == found else None
    return True


def one_per_row(state: ScheduleState) -> frozenset[str]:
    """Stages with fewer elements than the output that say something of a reduction, the mean where there was a sum, or that
    all terms of one read: what is taken off each."""
    wide = [a for a in state.output.compute.axes if a.extent != 1]
    shared = {name for s in reductions(state) for name in _one_for_all_terms(state, s)}
    said: set[str] = set()
    found: set[str] = set()
    for stage in state.stages.values():
        if stage is state.output or stage.reduction is not None:
            continue
        own = [a for a in stage.compute.axes if a.extent != 1]
        reads = [s for ld in loads(stage.body) if (s := state.stage_of(ld.tensor)) is not None]
        says = any(s.reduction is not None or s.name in said for s in reads)
        if len(own) < len(wide) and (says or (stage.name in shared and not is_free(stage))):
            found.add(stage.name)
            said |= {stage.name} if says else set()
    return frozenset(found)


def _one_for_all_terms(state: ScheduleState, stage: KernelStage) -> Iterator[str]:
    """What a reduction reads at one place, itself or by way of stages that are no reductions, for all terms of an element."""
    assert stage.reduction is not None
    reduced = frozenset(a.name for a in stage.reduction.axes)
    for name, axes in _axes_behind(state, stage, past_reductions=False).items():
        if name != stage.name and reduced.isdisjoint(frozenset().union(*axes.values())):
            yield name


def extent_of(axes: tuple[Axis, ...], name: str) -> Dim:
    return next(a.extent for a in axes if a.name == name)


def reads_in_place(consumer: KernelStage, producer: Tensor) -> bool:
    """Whether ``consumer`` reads ``producer`` only at its own index."""
    own = tuple(a.var for a in consumer.compute.axes)
    return all(ld.indices == own for ld in loads(consumer.body) if ld.tensor is producer)


def ends_in_place(kernel: KernelView, tensor: Tensor) -> bool:
    """Whether the output, everything inlined, is ``tensor`` or reads it at its own index alone."""
    output = kernel.after(inlined(kernel.state)).output
    return output.tensor is tensor or reads_in_place(output, tensor)


def slope(stage: KernelStage, axis: str) -> int:
    """How many elements the reads of ``stage`` move on when ``axis`` advances by one; 1 when that is not constant."""
    var = axis_var(axis)
    for load in loads(stage.body):
        for index in load.indices:
            if var in variables(index):
                moved = simplify(substitute(index, {var: var + 1}) - index)
                return int(moved.value) if isinstance(moved, Const) else 1
    return 1


def steps_along(index: Expr, axis: str) -> bool:
    """Whether ``index`` advances by one where ``axis`` does: the axis itself, or it plus something that stands still."""
    var = axis_var(axis)
    return var in variables(index) and simplify(substitute(index, {var: var + 1}) - index) == Const(1)


def lane_axis(stage: KernelStage) -> str | None:
    """The axis along which the largest argument is read element by element; None where that is the last axis of the stage,
    or no argument is read so.

    In case of doubt the last axis wins: reading one argument in rows is better than none.
    """
    best: tuple[int, str] | None = None
    last = stage.compute.axes[-1].name
    for load in loads(stage.body):
        if not load.indices or not isinstance(load.tensor.op, Placeholder):
            continue
        rank = sum(1 for axes in index_axes(load) if axes)
        for axis in stage.compute.axes:
            own = steps_along(load.indices[-1], axis.name)
            if own and sum(depends(i, axis.name) for i in load.indices) == 1:
                found = (rank, axis.name)
                if best is None or found[0] > best[0] or (found[0] == best[0] and axis.name == last):
                    best = found
    return None if best is None else best[1]


def is_free(stage: KernelStage) -> bool:
    """Whether an element is one element of something else: only the place to read from is calculated."""
    return stage.reduction is None and isinstance(stage.body, Load)
