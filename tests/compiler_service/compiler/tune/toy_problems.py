"""Scheduling problems that cost nothing: a law says how long a point takes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from compiler_service.compiler.schedule.language.knobs import Knobs, Values
from compiler_service.compiler.tune.measuring.trial import Outcome, OutcomeKind, Trial, TrialTiming
from compiler_service.compiler.tune.problem import BuiltCandidate, Candidate, LoweredCandidate, SchedulingProblem
from compiler_service.compiler.tune.search.point import Point
from compiler_service.compiler.tune.trying import Default, Trials, Tried
from shared_ir.errors import ErrorCode, IngotError

Law = Callable[[Values], float]


def bowl(values: Values) -> float:
    """Least at rows 8, columns 2, where it is a quarter of the default's."""
    rows, columns = int(cast(int, values.get("rows", 2))), int(cast(int, values.get("columns", 4)))
    return 1e-3 * (0.25 + 0.1 * abs(rows - 8) + 0.075 * abs(columns - 2)) / 1.0


@dataclass
class ToyProblem:
    """Two knobs, and a law."""

    label: str = "toy"
    law: Law = bowl
    extents: Mapping[str, int] = field(default_factory=dict)

    @property
    def text(self) -> str:
        return f"a toy called {self.label}"

    @property
    def standing(self) -> str:
        return ""

    def candidate(self, knobs: Knobs) -> Candidate:
        rows = knobs.choice("rows", (1, 2, 4, 6, 8, 12), default=2)
        columns = knobs.choice("columns", (1, 2, 3, 4), default=4)
        if (rows, columns) == (12, 4):
            raise IngotError(ErrorCode.INVALID_ARGUMENT, "it does not fit")
        return Candidate("toy", knobs.values, ())

    def lowered(self, candidate: Candidate) -> LoweredCandidate:
        raise NotImplementedError

    def trial(self, built: BuiltCandidate, most_copied: int) -> Trial:
        raise NotImplementedError

    def disagreement(self, expected: Sequence[bytes], found: Sequence[bytes], candidate: Candidate) -> str:
        return ""

    def fault(self, results: Sequence[bytes]) -> str:
        return ""


@dataclass
class ToyTrials:
    """Stands in for :class:`Trials`: asks the law.

    Attributes:
        tried_points: what was measured, in order.
        seeming: the law that is asked while candidates are tried, where it is not that of the problem.
        holds: whether what seems faster is so when it is measured again.
        crashes: values at which a candidate crashes.
        before: called before each trial.
        faults: what keeps the default schedule from being measured, by labels.
    """

    seeming: Law | None = None
    holds: bool = True
    crashes: Sequence[Mapping[str, Any]] = ()
    before: Callable[[], None] = lambda: None
    tried_points: list[tuple[str, Values]] = field(default_factory=list)
    defaults_measured: int = 0
    faults: Mapping[str, IngotError] = field(default_factory=dict)

    def as_trials(self) -> Trials:
        return cast(Trials, self)

    def defaults(
        self, problems: Iterable[SchedulingProblem], seconds: float
    ) -> Iterator[tuple[SchedulingProblem, Default | IngotError]]:
        for problem in problems:
            self.defaults_measured += 1
            if problem.label in self.faults:
                yield problem, self.faults[problem.label]
                continue
            candidate = problem.candidate(Knobs())
            timing = TrialTiming((cast(ToyProblem, problem).law({}),))
            yield problem, Default(candidate, cast(Trial, None), cast(Trial, None), (b"same",), timing)

    def tried(
        self,
        problem: SchedulingProblem,
        default: Default,
        points: Iterable[tuple[Point, Candidate]],
        bound: float,
    ) -> Iterator[Tried]:
        for point, candidate in points:
            self.before()
            self.tried_points.append((problem.label, dict(point.values)))
            if dict(point.values) in [dict(values) for values in self.crashes]:
                yield Tried(point, candidate, Outcome(OutcomeKind.CRASHED, reason="signal 11"))
                continue
            timing = TrialTiming(((self.seeming or cast(ToyProblem, problem).law)(point.values),))
            yield Tried(point, candidate, Outcome(OutcomeKind.MEASURED, timing, (b"same",)), default.timing)

    def confirmed(
        self, problem: SchedulingProblem, default: Default, candidate: Candidate, seconds: float
    ) -> tuple[bool, TrialTiming, TrialTiming]:
        own = TrialTiming((cast(ToyProblem, problem).law(candidate.values),))
        return self.holds and own.seconds < default.timing.seconds, own, default.timing
