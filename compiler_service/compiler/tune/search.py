"""The search: measure a handful of schedules, keep the faster. Building and measuring are passed in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from compiler_service.compiler.schedule.language.schedule import Schedule
from shared_ir.errors import IngotError


@dataclass(frozen=True)
class CandidateTiming:
    """Median seconds of one run, and the spread of the rounds."""

    seconds: float
    spread: float


Measure = Callable[[Schedule], CandidateTiming]
"""Builds the kernel with a schedule and times it in a process of its own; IngotError when that fails."""


@dataclass(frozen=True)
class Best:
    schedule: Schedule
    timing: CandidateTiming
    default: CandidateTiming
    candidates: int


_MOST_PART_OF_DEFAULT_TIME = 0.98
"""A schedule must beat the default by two percent, measured twice: noise does not replace the model's choice."""


def search(candidates: Sequence[Schedule], measure: Measure) -> Best | None:
    """The fastest of ``candidates``, whose first is the default; None when the default cannot be measured."""
    try:
        default = measure(candidates[0])
    except IngotError:
        return None
    best, timing, tried = candidates[0], default, 1
    for schedule in candidates[1:]:
        try:
            found = measure(schedule)
        except IngotError:
            continue  # a schedule that does not build or crashes is no candidate
        tried += 1
        if found.seconds < timing.seconds:
            best, timing = schedule, found
    if best is not candidates[0]:
        again, baseline = measure(best), measure(candidates[0])
        default = min(default, baseline, key=lambda t: t.seconds)
        timing = max(timing, again, key=lambda t: t.seconds)
        if timing.seconds > default.seconds * _MOST_PART_OF_DEFAULT_TIME:
            best, timing = candidates[0], default
    return Best(best, timing, default, tried)
