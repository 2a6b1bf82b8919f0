"""The step ``strassen``: what it matches, its stages, what it does to weights, and how it rounds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from compiler_service.compiler.schedule.algorithms.product import product_by
from compiler_service.compiler.schedule.algorithms.strassen.stages import (
    QuarterSums,
    error_bound,
    measured_error,
    strassen_stages,
)
from compiler_service.compiler.schedule.language.algorithm import AlgorithmStep, Rounding
from compiler_service.compiler.schedule.language.replacing import replaced_by
from compiler_service.compiler.schedule.language.state import KernelStage, ScheduleState, misfit
from compiler_service.compiler.tensor_expr.tensor import Tensor
from shared_ir.expr.dim import static


@dataclass(frozen=True, slots=True)
class Strassen(AlgorithmStep):
    """Compute the product ``stage`` by seven products of half as many rows, columns and steps.

    before: ``stage[.., m, n] = sum over k of data[.., m, k] * weight``
    after:  the stages of :class:`StrassenStages`; of the constant ``weight``, whose axis
            ``columns`` is ``n``, sums of quarters ``[p, n, k]`` are formed at compile time, which a later ``Pack`` of it lays out.
            Twice ``block`` divides the number of columns.
    """

    name: ClassVar[str] = "strassen"

    columns: int
    block: int

    def replaced(self, state: ScheduleState, stage: KernelStage, weight: Tensor) -> ScheduleState:
        product = product_by(stage, weight, self.columns)
        if product is None or product.tensor.rank < 2 or product.depth % 2 or product.columns % (2 * self.block):
            raise misfit(
                f"{stage.name} is not a product of rows by {self.weight}, of an even number of steps and of blocks of columns"
            )
        made = strassen_stages(product, self.block)
        stages = (made.sums, made.accumulated, made.product, made.output)
        return replace(replaced_by(state, stage, stages), transformed={**state.transformed, weight: made.weight})

    def transform(self, weight: Tensor) -> QuarterSums:
        return QuarterSums(self.columns, self.block)

    def rounding(self, weight: Tensor) -> Rounding:
        depth = static(weight.shape[1 - self.columns])
        return Rounding("strassen <2, 2, 2; 7>", error_bound(depth), measured_error(depth))
