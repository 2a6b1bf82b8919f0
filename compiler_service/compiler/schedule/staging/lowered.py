"""Kernels of a program as loops: what is computed inside of a nest is kept on the stack where it is little, and may become
registers, else in scratch memory."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from compiler_service.compiler.loop_ir.ir import Allocate, Function, walk_statements
from compiler_service.compiler.schedule.language.apply import apply_schedule
from compiler_service.compiler.schedule.language.schedule import Schedule
from compiler_service.compiler.schedule.language.steps import ComputeAt
from compiler_service.compiler.schedule.lower import lower
from compiler_service.compiler.schedule.staging.checking import check_loops, check_prefetches
from compiler_service.compiler.schedule.staging.program import Nest, ProgramKernel, StagedProgram
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.expr.dim import static
from shared_ir.machine.target import Target

_MOST_STACK_BYTES = 16 * 1024
"""Of one stage: the registers of a machine are at most 2 KiB, and stacks of threads begin at 64 KiB."""


@dataclass(frozen=True)
class LoweredKernel:
    """A kernel, its schedule with a memory for each of its stages, and its loop program: arguments first, then the result."""

    kernel: ProgramKernel
    schedule: Schedule
    function: Function

    @classmethod
    def of(cls, kernel: ProgramKernel, target: Target) -> LoweredKernel:
        """
        Raises:
            IngotError: INVALID_ARGUMENT, the schedule does not fit, or what is kept inside of a nest has no constant size.
        """
        state = apply_schedule(kernel.output, kernel.schedule)
        for stage in state.stages.values():
            check_loops(stage)
        check_prefetches(state)
        function = _function(kernel, kernel.schedule, target)
        sizes = {
            s.buffer.name: math.prod(map(static, s.buffer.shape)) * s.buffer.dtype.itemsize
            for s in walk_statements(function.body)
            if isinstance(s, Allocate)
        }
        large = {name for name in kernel.movable if sizes.get(name, 0) > _MOST_STACK_BYTES}
        if not large:
            return cls(kernel, kernel.schedule, function)
        schedule = tuple(
            replace(step, scope="scratch") if isinstance(step, ComputeAt) and step.stage in large else step
            for step in kernel.schedule
        )
        return cls(kernel, schedule, _function(kernel, schedule, target))


@dataclass
class Lowerings:
    """What the nests of a program were lowered to, kept for as long as their stages stay as they are."""

    _known: dict[tuple[Nest, Target], LoweredKernel] = field(default_factory=dict)

    def of(self, program: StagedProgram, target: Target) -> tuple[LoweredKernel, ...]:
        """The kernels of ``program`` in the order in which they run. Raises as :meth:`LoweredKernel.of`."""
        found: dict[tuple[Nest, Target], LoweredKernel] = {}
        for nest in program.nests():
            place = nest, target
            found[place] = self._known.get(place) or LoweredKernel.of(ProgramKernel.of(nest), target)
        others = {place: kernel for place, kernel in self._known.items() if place[1] != target}
        self._known = {**others, **found}
        return tuple(found.values())


def _function(kernel: ProgramKernel, schedule: Schedule, target: Target) -> Function:
    try:
        return lower(kernel.stage.name, kernel.output, kernel.arguments, kernel.symbols, schedule, target)
    except IngotError as error:  # of a schedule that somebody wrote: theirs to change
        raise replace(error, code=ErrorCode.INVALID_ARGUMENT) from error
