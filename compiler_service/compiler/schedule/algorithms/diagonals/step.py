"""The step ``diagonals``: what it matches, its stages, and what it does to weights."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from compiler_service.compiler.schedule.algorithms.diagonals.stages import (
    GroupedConvolution,
    Turned,
    diagonal_stages,
    match_groups,
)
from compiler_service.compiler.schedule.algorithms.matching import factors
from compiler_service.compiler.schedule.language.algorithm import AlgorithmStep
from compiler_service.compiler.schedule.language.replacing import replaced_by
from compiler_service.compiler.schedule.language.state import KernelStage, ScheduleState, misfit
from compiler_service.compiler.tensor_expr.tensor import Tensor
from shared_ir.expr.dim import static


@dataclass(frozen=True, slots=True)
class Diagonals(AlgorithmStep):
    """Compute the grouped convolution ``stage`` by the diagonals of its groups' matrices.

    before: ``stage[.., oc] = sum data[.., oc // g * g + ic] * weight[oc, ic, ..]``
    after:  the stages of :class:`DiagonalStages`; the constant ``weight`` is turned at
            compile time to ``[r, i, ..]``, which a later ``Pack`` of it lays out.
    """

    name: ClassVar[str] = "diagonals"

    def replaced(self, state: ScheduleState, stage: KernelStage, weight: Tensor) -> ScheduleState:
        conv = grouped_convolution_of(stage)
        if conv is None or conv.weight.tensor is not weight:
            raise misfit(f"{stage.name} is not a grouped convolution by {weight.name}")
        made = diagonal_stages(conv)
        done = replaced_by(state, stage, (made.diagonals, made.output))
        return replace(done, transformed={**state.transformed, weight: made.weight})

    def transform(self, weight: Tensor) -> Turned:
        return Turned(static(weight.shape[1]))


def grouped_convolution_of(stage: KernelStage) -> GroupedConvolution | None:
    """``stage`` as a convolution of groups that have as many outputs as channels, or None."""
    return next((c for pair in factors(stage) if (c := match_groups(stage.tensor, *pair)) is not None), None)
