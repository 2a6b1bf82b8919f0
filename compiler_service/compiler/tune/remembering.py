"""Trials as records."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from compiler_service.compiler.tune.measuring.trial import Outcome, OutcomeKind, TrialTiming
from compiler_service.compiler.tune.problem import Candidate
from compiler_service.compiler.tune.records.record import TrialRecord, time_after
from compiler_service.compiler.tune.search.point import Point
from compiler_service.compiler.tune.tasks import TuningTask
from compiler_service.compiler.tune.trying import Tried
from shared_ir.digest import sha256_hex


@dataclass(frozen=True)
class Remembering:
    """Writes records of one tuner.

    Attributes:
        target, machine, compiler, methods: see :class:`TrialRecord`.
    """

    target: str
    machine: str
    compiler: str
    methods: tuple[str, ...] = ()

    def record(self, task: TuningTask, tried: Tried) -> TrialRecord:
        """What came of a point."""
        made, about, own, beside = tried.candidate, task.workload, tried.outcome.timing, tried.beside
        return TrialRecord(
            workload=about.digest,
            family=about.family,
            sizes=about.sizes,
            label=about.label,
            target=self.target,
            machine=self.machine,
            compiler=self.compiler,
            methods=self.methods,
            rule="" if made is None else made.rule,
            values=tried.point.values,
            schedules=() if made is None else made.schedules,
            outcome=tried.outcome.kind,
            seconds=0.0 if own is None else own.seconds,
            spread=0.0 if own is None else own.spread,
            default_seconds=0.0 if beside is None else beside.seconds,
            default_spread=0.0 if beside is None else beside.spread,
            output=sha256_hex(b"".join(tried.outcome.results)) if own is not None else "",
            time=time_after(task.latest),
        )

    def confirmed(self, task: TuningTask, tried: Tried, own: TrialTiming, other: TrialTiming) -> TrialRecord:
        """The best candidate, as it was measured in turns with the default schedule, twice."""
        again = replace(tried, outcome=replace(tried.outcome, timing=own), beside=other)
        return replace(self.record(task, again), confirmed=True)

    def settled(self, task: TuningTask) -> TrialRecord:
        """The end of a task."""
        if task.winner is not None:
            return replace(task.winner, settled=True, time=time_after(task.latest))
        assert task.default is not None, "the default schedule of a task that ends was measured"
        timing, candidate = task.default.timing, task.default.candidate
        outcome = Outcome(OutcomeKind.MEASURED, timing, task.default.results)
        return replace(self.record(task, Tried(Point.of(candidate.values), candidate, outcome, timing)), settled=True)

    def given_up(self, task: TuningTask, record: TrialRecord) -> TrialRecord:
        """That what ``record`` confirms is no answer any more."""
        return replace(record, confirmed=False, settled=True, time=time_after(task.latest))

    def recalled(self, point: Point, candidate: Candidate, record: TrialRecord) -> Tried:
        """What came of a trial of an earlier run; it has times where it was measured beside the default schedule."""
        if math.isinf(record.share):
            return Tried(point, candidate, Outcome(record.outcome))
        own, beside = TrialTiming((record.seconds,)), TrialTiming((record.default_seconds,))
        return Tried(point, candidate, Outcome(record.outcome, own), beside)
