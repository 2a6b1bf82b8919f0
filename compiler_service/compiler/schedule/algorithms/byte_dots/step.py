"""The step ``dot_bytes``: what it matches, its stages, and what it does to weights."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from compiler_service.compiler.schedule.algorithms.byte_dots.stages import DotStages, Words, dot_stages
from compiler_service.compiler.schedule.language.algorithm import AlgorithmStep
from compiler_service.compiler.schedule.language.replacing import replaced_by
from compiler_service.compiler.schedule.language.state import KernelStage, ScheduleState, misfit
from compiler_service.compiler.schedule.model.byte_products import ByteProduct, match_byte_product
from compiler_service.compiler.tensor_expr.tensor import Tensor, loads


@dataclass(frozen=True, slots=True)
class DotBytes(AlgorithmStep):
    """Compute ``stage``, a sum of products of bytes, by dot products of four bytes.

    before: ``stage[.., n] = sum over k of cast(data[.., k]) * cast(weight[.., k, n])``
    after:  ``stage[.., n] = sum over w of dot4(data.words[.., w], weight.words[.., w, n])``, see
            :mod:`stages`; data that is padded on the way is padded in words, and the constant
            ``weight``, whose index ``axis`` is k, is put together at compile time, for a later ``Pack`` to lay out.
    """

    name: ClassVar[str] = "dot_bytes"

    axis: int

    def replaced(self, state: ScheduleState, stage: KernelStage, weight: Tensor) -> ScheduleState:
        found = dot_stages_of(state, stage)
        if found is None or found[0].weight.tensor is not weight or found[0].position != self.axis:
            raise misfit(f"{stage.name} is not a sum of products of bytes by {weight.name}")
        product, made = found
        done = replaced_by(state, stage, (made.output,) if made.data is None else (made.data, made.output))
        stages = {n: s for n, s in done.stages.items() if made.data is None or s.tensor is not product.data.tensor}
        return replace(done, stages=stages, transformed={**state.transformed, **made.arguments})

    def transform(self, weight: Tensor) -> Words:
        return Words(self.axis)


def byte_product_of(stage: KernelStage) -> ByteProduct | None:
    """``stage`` as a sum of products of bytes, or None."""
    return match_byte_product(stage.tensor, stage.body)


def dot_stages_of(state: ScheduleState, stage: KernelStage) -> tuple[ByteProduct, DotStages] | None:
    """``stage`` as dot products of words; None where it is no sum of products of bytes, or others read these bytes."""
    product = byte_product_of(stage)
    if product is None:
        return None
    source = state.stage_of(product.data.tensor)
    made = dot_stages(product, None if source is None else source.body)
    if source is not None and source.reduction is not None:
        return None
    own = {stage.name} | ({source.name} if source is not None else set())
    others = [ld.tensor for s in state.stages.values() if s.name not in own for ld in loads(s.body)]
    if any(t in others for t in (product.data.tensor, *made.arguments)):
        return None
    return product, made
