"""Stages that take the place of another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from compiler_service.compiler.schedule.language.state import KernelStage, ScheduleState, StageLoop
from compiler_service.compiler.tensor_expr.tensor import Compute, Load, Tensor
from shared_ir.expr import Expr, transform


def replaced_by(state: ScheduleState, stage: KernelStage, tensors: Sequence[Tensor]) -> ScheduleState:
    """``tensors``, producers first, in place of ``stage``, whose name the last of them takes."""
    *made, output = tensors
    new = {t.name: stage_of_tensor(t) for t in made} | {stage.name: stage_of_tensor(output, stage.name)}

    def reroute(node: Expr) -> Expr | None:
        return Load(output, node.indices) if isinstance(node, Load) and node.tensor is stage.tensor else None

    stages: dict[str, KernelStage] = {}
    for name, other in state.stages.items():
        if other is stage:
            stages |= new
        else:
            stages[name] = replace(other, body=transform(other.body, reroute))
    return replace(state, stages=stages)


def stage_of_tensor(tensor: Tensor, name: str = "") -> KernelStage:
    """The stage that computes ``tensor``, with one serial loop per axis."""
    assert isinstance(tensor.op, Compute)
    return KernelStage(
        name or tensor.name, tensor, tensor.op.body, tuple(StageLoop(a.name) for a in tensor.op.all_axes)
    )
