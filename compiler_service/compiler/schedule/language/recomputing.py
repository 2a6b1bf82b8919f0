"""What the step ``Recompute`` does to the state of a kernel: no part of a reduction is kept but the element that is read next."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from compiler_service.compiler.schedule.language.replacing import stage_of_tensor
from compiler_service.compiler.schedule.language.state import KernelStage, ScheduleState, misfit
from compiler_service.compiler.schedule.language.steps import ROOT
from compiler_service.compiler.tensor_expr.tensor import Axis, Compute, Load, Tensor, axis_var, identity_of, loads
from shared_ir.dtype import DType
from shared_ir.expr import Const, Expr, Var, lift, logical_and, select, substitute, transform, variables
from shared_ir.expr.simplify import Simplifier


def recomputed(state: ScheduleState) -> ScheduleState:
    """``state`` with a reduction of its own, over the axes of the reader, for each index at which one is read."""
    output = state.output
    if any(s.reduction is None for s in state.stages.values() if s is not output) or output.reduction is not None:
        raise misfit("recompute takes reductions and an output that is none", "cache_write and compute_inline before")
    made = _Recomputed(state)
    made.read(output, (output.name, output.loops[-1].name if output.loops else ROOT))
    return replace(state, stages=made.stages)


@dataclass
class _Recomputed:
    """Attributes: stages: those made so far, producers first."""

    state: ScheduleState
    stages: dict[str, KernelStage] = field(default_factory=dict)

    def read(self, stage: KernelStage, place: tuple[str, str]) -> None:
        """Adds ``stage``, which is computed inside the loop ``place``, behind all that it reads."""
        copies: dict[Load, Load] = {}
        for load in dict.fromkeys(loads(stage.body)):
            source = self.state.stage_of(load.tensor)
            if source is not None:
                copies[load] = self._copy(stage, source, load, place)
        body = transform(stage.body, lambda e: copies.get(e) if isinstance(e, Load) else None)
        self.stages[stage.name] = replace(stage, body=body)

    def _copy(self, reader: KernelStage, source: KernelStage, load: Load, place: tuple[str, str]) -> Load:
        """A reduction that is the element of ``source`` which ``load`` reads; how ``reader`` reads it."""
        used = frozenset().union(*(variables(i) for i in load.indices))
        axes = tuple(a for a in reader.compute.all_axes if a.var in used)
        summed = {a.name for a in reader.reduction.axes} if reader.reduction is not None else set()
        if any(a.name in summed for a in axes):
            place = reader.name, reader.loops[-1].name
        name = self._name(source.name)
        tensor = _at(source, load, axes, name)
        self.read(replace(stage_of_tensor(tensor, name), attach=place), place)
        return tensor[tuple(a.var for a in axes)]

    def _name(self, base: str) -> str:
        names = (f"{base}.at" if i == 1 else f"{base}.at_{i}" for i in range(1, len(self.stages) + 2))
        return next(name for name in names if name not in self.stages)


def _at(source: KernelStage, load: Load, axes: tuple[Axis, ...], name: str) -> Tensor:
    """``source`` at the indices of ``load``, over ``axes``; where these lead out of it, as what a select does not take, nothing."""
    reduction = source.reduction
    assert reduction is not None
    own = tuple(Axis(f"{name}.{a.name}", a.extent) for a in reduction.axes)
    renamed = {old.var: new.var for old, new in zip(reduction.axes, own, strict=True)}
    places = {a.var: i for a, i in zip(source.compute.axes, load.indices, strict=True)}
    body = substitute(source.body, renamed | places)
    inside = list(_inside(source, load, axes))
    if inside:
        nothing = lift(identity_of(reduction.op, source.tensor.dtype), body.dtype)
        body = select(logical_and(*inside) if len(inside) > 1 else inside[0], body, nothing)
    operation = Compute(axes, body, replace(reduction, axes=own))
    return Tensor(name, tuple(a.extent for a in axes), source.tensor.dtype, operation)


def _inside(source: KernelStage, load: Load, axes: tuple[Axis, ...]) -> Iterator[Expr]:
    """Conditions, each not known to hold, under which ``load`` reads what there is."""
    simplify = Simplifier(
        {axis_var(a.name).name: (0, a.extent - 1 if isinstance(a.extent, int) else None) for a in axes}
    )
    extents = {a.var: a.extent for a in axes}
    for index, axis in zip(load.indices, source.compute.axes, strict=True):
        if isinstance(index, Var) and extents.get(index) == axis.extent:
            continue
        for condition in (index >= 0, index < lift(axis.extent)):
            found = simplify(condition)
            if found != Const(True, DType.BOOL):
                yield found
