"""Sums of products of bytes by dot products of words; the words are then contracted as anything else is."""

from __future__ import annotations

from compiler_service.compiler.schedule.algorithms.byte_dots.step import DotBytes, dot_stages_of
from compiler_service.compiler.schedule.language.schedule import Schedule
from compiler_service.compiler.schedule.language.state import ScheduleState
from compiler_service.compiler.schedule.model.analysis import KernelView, accumulated, inlined, is_free, reductions
from compiler_service.compiler.schedule.rules.contraction.rule import contraction_schedule
from shared_ir.dtype import DType
from shared_ir.machine.target import Target


def byte_dot_schedule(kernel: KernelView, target: Target) -> Schedule | None:
    before = _in_words(kernel, target)
    return None if before is None else contraction_schedule(kernel, target, before)


def _in_words(kernel: KernelView, target: Target) -> Schedule | None:
    """The steps after which words are contracted; None where the kernel is no sum of products of bytes that the target takes."""
    if target.dot4 is None or len(reductions(kernel.state)) != 1:
        return None
    before: Schedule = accumulated(kernel)
    state = kernel.after(before)
    before = (*before, *inlined(state, _padded(state, target.dot4)))
    state = kernel.after(before)
    (reduction,) = reductions(state)
    found = dot_stages_of(state, reduction)
    if found is None or found[0].data.dtype is not target.dot4 or found[0].weight.tensor not in kernel.constants:
        return None
    product, _ = found
    return (*before, DotBytes(reduction.name, product.weight.tensor.name, product.position))


def _padded(state: ScheduleState, kind: DType) -> frozenset[str]:
    """Bytes of the type ``kind`` that are computed before the sum."""
    found = []
    for stage in state.stages.values():
        if stage.reduction is not None:
            break
        if stage.tensor.dtype is kind and not is_free(stage):
            found.append(stage.name)
    return frozenset(found)
