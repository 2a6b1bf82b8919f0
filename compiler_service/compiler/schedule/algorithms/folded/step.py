"""The step ``fold``: what it matches, its stages, and what it does to weights."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from compiler_service.compiler.schedule.algorithms.folded.stages import Laid, folded_stages
from compiler_service.compiler.schedule.algorithms.product import product_by
from compiler_service.compiler.schedule.language.algorithm import AlgorithmStep
from compiler_service.compiler.schedule.language.replacing import replaced_by
from compiler_service.compiler.schedule.language.state import KernelStage, ScheduleState, misfit
from compiler_service.compiler.tensor_expr.tensor import Tensor


@dataclass(frozen=True, slots=True)
class Fold(AlgorithmStep):
    """Compute the product ``stage`` with ``parts`` steps of its sums side by side.

    before: ``stage[.., n] = sum over k of data[.., k] * weight``
    after:  the stages of :class:`FoldedStages`; the constant ``weight`` is laid out at compile
            time as ``[k // parts, n * parts + k % parts]``; its axis ``columns`` is ``n``. ``parts`` divides the extent of ``k``.
    """

    name: ClassVar[str] = "fold"

    parts: int
    columns: int

    def replaced(self, state: ScheduleState, stage: KernelStage, weight: Tensor) -> ScheduleState:
        product = product_by(stage, weight, self.columns)
        if product is None or self.parts < 2 or product.depth % self.parts:
            raise misfit(f"{stage.name} is not a product by {self.weight} of {self.parts} steps at a time")
        made = folded_stages(product, self.parts)
        done = replaced_by(state, stage, (made.folded, made.output))
        return replace(done, transformed={**state.transformed, weight: made.weight})

    def transform(self, weight: Tensor) -> Laid:
        return Laid(self.parts, self.columns)
