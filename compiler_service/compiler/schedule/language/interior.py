"""The part of an axis where conditions on it hold: away from the padding of an image."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from compiler_service.compiler.loop_ir.thresholds import Threshold, comparisons, threshold
from compiler_service.compiler.schedule.language.state import KernelStage, ScheduleState
from compiler_service.compiler.tensor_expr.tensor import axis_var, loads
from shared_ir.dtype import DType
from shared_ir.expr import Binary, BinaryOp, Const, Expr, Select, lift, maximum, minimum, transform, variables, walk
from shared_ir.expr.simplify import Simplifier


def interior(state: ScheduleState, stage: KernelStage, axis: str, simplify: Simplifier) -> tuple[Expr, Expr]:
    """(low, high): ``stage`` and the stages that it reads at its own place need not ask where ``axis`` is in [low, high)."""
    low = lift(0)
    high = lift(next(a.extent for a in stage.compute.axes if a.name == axis))
    for bound in _bounds(state, stage, axis, simplify):
        if bound.rising:
            low = maximum(low, bound.true)
        else:
            high = minimum(high, bound.true)
    return simplify(low), simplify(high)


def padded_part(stage: KernelStage, axis: str, simplify: Simplifier) -> tuple[Expr, Expr] | None:
    """[low, high) of ``axis`` outside of which ``stage`` is zero: it is padding there. None where it is not known."""
    body = stage.body
    if not isinstance(body, Select) or body.otherwise != lift(0, body.dtype) or not _is_conjunction(body.cond):
        return None
    low, high = lift(0), lift(next(a.extent for a in stage.compute.axes if a.name == axis))
    for bound in _thresholds(stage, axis, simplify):
        if bound.rising:
            low = maximum(low, bound.false)
        else:
            high = minimum(high, bound.false)
    return simplify(low), simplify(high)


def _is_conjunction(cond: Expr) -> bool:
    """Whether comparisons hold together only."""
    if isinstance(cond, Binary) and cond.op is BinaryOp.AND:
        return _is_conjunction(cond.lhs) and _is_conjunction(cond.rhs)
    return isinstance(cond, Binary) and cond.lhs.dtype is not DType.BOOL


def _bounds(state: ScheduleState, stage: KernelStage, axis: str, simplify: Simplifier) -> Iterator[Threshold]:
    yield from _thresholds(stage, axis, simplify)
    for load in loads(stage.body):
        source = state.stage_of(load.tensor)
        if source is not None:
            for own, index in zip(source.compute.axes, load.indices, strict=True):
                if index == axis_var(axis):
                    yield from _thresholds(source, own.name, simplify)


def inside(stage: KernelStage, axes: Sequence[str], simplify: Simplifier) -> Expr:
    """The body of ``stage`` without the conditions that hold within the interior of ``axes``."""
    known = {t.cond for name in axes for t in _thresholds(stage, name, simplify)}
    if not known:
        return stage.body
    return transform(stage.body, lambda e: Const(True, DType.BOOL) if e in known else None)


def _thresholds(stage: KernelStage, axis: str, simplify: Simplifier) -> Iterator[Threshold]:
    """Conditions of ``stage`` on ``axis`` and on reduced axes of constant extent alone."""
    if all(a.name != axis for a in stage.compute.axes):
        return
    var = axis_var(axis)
    reduced = stage.reduction.axes if stage.reduction is not None else ()
    inner = {a.var: a.extent - 1 if isinstance(a.extent, int) else None for a in reduced}
    others = {a.var for a in stage.compute.axes} - {var}
    asked = {c for e in walk(stage.body) if isinstance(e, Select) for c in comparisons(e.cond)}
    for cond in sorted(asked, key=str):
        if var in variables(cond) and not variables(cond) & others:
            found = threshold(cond, var, inner, simplify)
            if found is not None:
                yield found
