"""What stands around the body of a turn: what it asks memory for ahead, and whether it is left out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from compiler_service.compiler.loop_ir.ir import Let, Prefetch, Statement
from compiler_service.compiler.schedule.language.interior import padded_part
from compiler_service.compiler.schedule.language.state import Ahead, Further, KernelStage, ScheduleState, StageLoop
from compiler_service.compiler.schedule.lowering.ranges import Ranges, Regions
from compiler_service.compiler.schedule.lowering.statements import block, guard
from compiler_service.compiler.schedule.lowering.values import Values
from shared_ir.expr import Var, lift, logical_and
from shared_ir.expr.simplify import Interval, Simplifier


@dataclass(frozen=True)
class Around:
    """``named`` makes a new variable, called after an axis, that has values in an interval."""

    state: ScheduleState
    simplify: Simplifier
    regions: Regions
    values: Values
    named: Callable[[str, Interval], Var]

    def turn(self, stage: KernelStage, loop: StageLoop, ranges: Ranges, body: Statement) -> Statement:
        """``body`` of a turn of ``loop``, left out where it is all padding, after what it asks memory for."""
        for padded, axis in self.state.skips.get((stage.name, loop.name), ()):
            body = self._unless_padding(stage, self.state.stage(padded), axis, ranges, body)
        for ahead in self.state.prefetches.get((stage.name, loop.name), ()):
            body = block(*self._prefetches(stage, ahead, ranges), body)
        return body

    def _unless_padding(
        self, stage: KernelStage, padded: KernelStage, axis: str, ranges: Ranges, body: Statement
    ) -> Statement:
        """``body`` where what ``stage`` reads of ``padded`` is not all behind an end of its data along ``axis``."""
        data, read = padded_part(padded, axis, self.simplify), self.regions.needed(padded, stage, ranges)[axis]
        assert data is not None
        low, high = data
        first = self.named(axis, self.simplify.interval(read.base))  # no pass cuts the loop for its sake
        wanted = self.simplify(logical_and(first + lift(read.extent) > low, first < high))
        return Let(first, read.base, guard(wanted, body))

    def _prefetches(self, stage: KernelStage, ahead: Ahead | Further, ranges: Ranges) -> Iterator[Prefetch]:
        if isinstance(ahead, Ahead):
            return self.values.next_tile(stage, ahead, ranges)
        reader = self.state.stage(ahead.reader)
        there = ranges if reader is stage else self.regions.needed(reader, stage, ranges)
        return self.values.further(reader, ahead, there, ranges)
