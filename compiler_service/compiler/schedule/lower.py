"""Lowering: tensors and a schedule become a loop program."""

from __future__ import annotations

from collections.abc import Sequence

from compiler_service.compiler.loop_ir.ir import (
    Function,
)
from compiler_service.compiler.schedule.language.algorithm import NestStep
from compiler_service.compiler.schedule.language.apply import apply_schedule
from compiler_service.compiler.schedule.language.schedule import Schedule
from compiler_service.compiler.schedule.lowering.nest import Lowering
from compiler_service.compiler.tensor_expr.tensor import Tensor
from shared_ir.machine.target import Target


def lower(
    name: str,
    output: Tensor,
    arguments: Sequence[Tensor],
    symbols: Sequence[str],
    schedule: Schedule,
    target: Target,
) -> Function:
    """The loop program that computes ``output`` from ``arguments`` (in this order, then the output) and ``symbols``.

    Raises:
        IngotError: INVALID_ARGUMENT when the schedule does not fit, COMPILER_FAULT when a local buffer has no constant size.
    """
    state = apply_schedule(output, schedule)
    own = next((step for step in schedule if isinstance(step, NestStep)), None)
    if own is not None:
        return own.function(name, state, arguments, symbols, target)
    return Lowering(state, arguments, target).function(name, symbols)
