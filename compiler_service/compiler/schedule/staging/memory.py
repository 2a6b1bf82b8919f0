"""Where what is computed inside of a nest is kept: little of it on the stack, where it may become registers, more in scratch memory."""

from __future__ import annotations

import math
from dataclasses import replace

from compiler_service.compiler.loop_ir.ir import Allocate, walk_statements
from compiler_service.compiler.schedule.language.schedule import Schedule
from compiler_service.compiler.schedule.language.steps import ComputeAt
from compiler_service.compiler.schedule.lower import lower
from compiler_service.compiler.schedule.staging.program import ProgramKernel
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.expr.dim import dim_symbols, static
from shared_ir.machine.target import Target

_MOST_STACK_BYTES = 16 * 1024
"""Of one stage: the registers of a machine are at most 2 KiB, and stacks of threads begin at 64 KiB."""


def placed_in_memory(kernel: ProgramKernel, target: Target) -> Schedule:
    """The schedule of ``kernel``, with those of its stages in scratch memory that are too large for the stack.

    Raises:
        IngotError: INVALID_ARGUMENT, the schedule does not fit, or what is kept inside of a nest has no constant size.
    """
    symbols = sorted(dim_symbols(d for t in (*kernel.arguments, kernel.output) for d in t.shape))
    try:
        function = lower(kernel.stage.name, kernel.output, kernel.arguments, symbols, kernel.schedule, target)
    except IngotError as error:  # of a schedule that somebody wrote: theirs to change
        raise replace(error, code=ErrorCode.INVALID_ARGUMENT) from error
    sizes = {
        s.buffer.name: math.prod(map(static, s.buffer.shape)) * s.buffer.dtype.itemsize
        for s in walk_statements(function.body)
        if isinstance(s, Allocate)
    }
    large = {name for name in kernel.movable if sizes.get(name, 0) > _MOST_STACK_BYTES}
    return tuple(
        replace(step, scope="scratch") if isinstance(step, ComputeAt) and step.stage in large else step
        for step in kernel.schedule
    )
