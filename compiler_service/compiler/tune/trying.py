"""Candidates made and measured: while one is measured on its core, the next are scheduled and compiled."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from typing import Self

from compiler_service.compiler.schedule.language.knobs import Knobs
from compiler_service.compiler.tune.building import Builders
from compiler_service.compiler.tune.measuring.local import beside, measuring_core
from compiler_service.compiler.tune.measuring.trial import Measurer, Outcome, OutcomeKind, Trial, TrialTiming
from compiler_service.compiler.tune.problem import BuiltCandidate, Candidate, SchedulingProblem
from compiler_service.compiler.tune.search.point import Point
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.machine.target import Target

MOST_COPIED, MOST_COPIED_TO_CONFIRM = 8 << 20, 40 << 20
"""Bytes of copies of weights that a trial goes through: more than the second cache level has, and, where a gain is confirmed, more than the
third gives to one core."""
_SECONDS_OF_TRIAL = 0.015
"""Largest time for the rounds of one candidate, in seconds; it has at least three."""
_WORTH_A_SECOND_LOOK = 0.005
"""Gain, as a part of the time, that is less than what one measurement is off by."""
_AHEAD = 3
"""Candidates that are compiled or wait while one is measured."""


@dataclass(frozen=True)
class Default:
    """The default schedule of a problem, which every candidate is measured beside.

    Attributes:
        trial: with few copies; ``cold`` with many.
        results: what it computes.
        timing: alone.
    """

    candidate: Candidate
    trial: Trial
    cold: Trial
    results: tuple[bytes, ...]
    timing: TrialTiming


@dataclass(frozen=True)
class Tried:
    """What came of a point.

    Attributes:
        candidate: None where no schedule came of its answers.
        outcome: of the candidate; ``beside`` of the default schedule in the same rounds.
    """

    point: Point
    candidate: Candidate | None
    outcome: Outcome
    beside: TrialTiming | None = None

    @property
    def share(self) -> float | None:
        """Its time as a part of the default's in the same rounds; None where it is no candidate, or no clock could tell one from 0."""
        own, other = self.outcome.timing, self.beside
        if self.outcome.kind is not OutcomeKind.MEASURED or own is None or other is None or not other.least:
            return None
        share = own.least / other.least
        return share if 0 < share < math.inf else None


class Trials(AbstractContextManager["Trials"]):
    """Makes and measures candidates of ``problems``."""

    def __init__(self, problems: Sequence[SchedulingProblem], target: Target, measurer: Measurer) -> None:
        self._measurer, self._ahead = measurer, _AHEAD * measurer.size
        self._open = ExitStack()
        self._builders = Builders(problems, target)
        self._measuring = ThreadPoolExecutor(measurer.size, thread_name_prefix="measuring")

    def __enter__(self) -> Self:
        self._open.callback(self._measuring.shutdown, wait=True, cancel_futures=True)
        self._open.enter_context(self._builders)  # ends first: what measures may wait for what it makes
        self._open.enter_context(beside(measuring_core()))
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def defaults(
        self, problems: Iterable[SchedulingProblem], seconds: float
    ) -> Iterator[tuple[SchedulingProblem, Default | IngotError]]:
        """The default schedule of each of ``problems``, measured; or why it cannot be, such as that it gives other results each time."""
        running: deque[tuple[SchedulingProblem, Future[Default]]] = deque()
        for problem in problems:
            try:
                building = self._builders.submit(problem, problem.candidate(Knobs()))
            except IngotError as error:
                yield problem, error
                continue
            running.append((problem, self._measuring.submit(self._default, problem, building, seconds)))
            while len(running) > self._ahead:
                yield _ended(*running.popleft())
        while running:
            yield _ended(*running.popleft())

    def default(self, problem: SchedulingProblem, seconds: float) -> Default:
        """The default schedule of one problem, measured.

        Raises:
            IngotError: it cannot be made or run.
        """
        ((_, found),) = self.defaults([problem], seconds)
        if isinstance(found, IngotError):
            raise found
        return found

    def tried(
        self, problem: SchedulingProblem, default: Default, points: Iterable[tuple[Point, Candidate]], bound: float
    ) -> Iterator[Tried]:
        """What comes of ``points``, about in their order. What seems to be faster than ``bound``, a part of the default's time, is measured
        again at once, and the slower time counts: of many the luckiest would seem the best.

        Raises:
            IngotError: DEVICE_TIMEOUT, the machine that measures is lost.
        """
        building: deque[tuple[Point, Candidate, Future[BuiltCandidate]]] = deque()
        running: deque[Future[Tried]] = deque()

        def advance(most: int) -> Iterator[Tried]:
            """Until at most so many are on their way."""
            while building and (len(building) + len(running) > most or building[0][2].done()):
                running.append(self._measuring.submit(self._measured, problem, default, *building.popleft(), bound))
                while len(running) > most:
                    yield running.popleft().result()

        for point, candidate in points:
            building.append((point, candidate, self._builders.submit(problem, candidate)))
            yield from advance(self._ahead)
        yield from advance(0)
        yield from (future.result() for future in running)

    def confirmed(
        self, problem: SchedulingProblem, default: Default, candidate: Candidate, seconds: float
    ) -> tuple[bool, TrialTiming, TrialTiming]:
        """Whether ``candidate`` computes the same as the default schedule and is faster by more than the spread of both, measured in turns
        with it, twice, with weights that come from far; and the timings, its own first, of the time that it gained less. Those of the
        default schedule alone where it is no candidate: a record that says otherwise is of somebody else."""
        try:
            built = self._builders.submit(problem, candidate).result()
        except Exception:  # whatever a step or LLVM met
            return False, default.timing, default.timing
        cold = problem.trial(built, MOST_COPIED_TO_CONFIRM)
        found: list[tuple[TrialTiming, TrialTiming]] = []
        for _ in range(2):
            standing, own = self._run([default.cold, cold], seconds)
            is_run = own.timing is not None and standing.timing is not None and standing.timing.seconds > 0
            if not is_run or problem.disagreement(default.results, own.results, candidate):
                return False, default.timing, default.timing
            assert own.timing is not None
            assert standing.timing is not None
            found.append((own.timing, standing.timing))
        faster = all(own.seconds + own.spread < other.seconds - other.spread for own, other in found)
        least = max(found, key=lambda pair: pair[0].seconds / pair[1].seconds)
        return faster, *least

    def _default(self, problem: SchedulingProblem, building: Future[BuiltCandidate], seconds: float) -> Default:
        built = building.result()
        trial = problem.trial(built, MOST_COPIED)
        outcome = self._measurer.run([trial], seconds)[0]
        said = f"the default schedule of {problem.label} cannot be measured"
        if outcome.timing is None:
            raise IngotError(ErrorCode.COMPILER_FAULT, f"{said}: {outcome.reason}", node=problem.label)
        fault = problem.fault(outcome.results)
        if fault:
            raise IngotError(
                ErrorCode.INVALID_ARGUMENT,
                f"{said}: {fault}",
                node=problem.label,
                expected="some finite numbers among the results",
                received="infinities, or what is no number",
                remedy="Measure with numbers of which it makes some, or leave it as it is.",
            )
        cold = problem.trial(built, MOST_COPIED_TO_CONFIRM)
        return Default(built.candidate, trial, cold, outcome.results, outcome.timing)

    def _run(self, trials: Sequence[Trial], seconds: float) -> tuple[Outcome, ...]:
        return self._measuring.submit(self._measurer.run, trials, seconds).result()

    def _measured(
        self,
        problem: SchedulingProblem,
        default: Default,
        point: Point,
        candidate: Candidate,
        building: Future[BuiltCandidate],
        bound: float,
    ) -> Tried:
        try:
            trial = problem.trial(building.result(), MOST_COPIED)
        except Exception as error:  # whatever a step or LLVM met: the candidate is none
            return Tried(point, candidate, refused(error))
        first = self._beside(problem, default, point, candidate, trial)
        if first.share is None or first.share > bound * (1 - _WORTH_A_SECOND_LOOK):
            return first
        again = self._beside(problem, default, point, candidate, trial)
        return again if again.share is None or again.share > first.share else first

    def _beside(
        self, problem: SchedulingProblem, default: Default, point: Point, candidate: Candidate, trial: Trial
    ) -> Tried:
        standing, own = self._measurer.run([default.trial, trial], _SECONDS_OF_TRIAL)
        if own.timing is None or standing.timing is None:
            return Tried(point, candidate, own)
        differs = problem.disagreement(default.results, own.results, candidate)
        if differs:
            return Tried(point, candidate, Outcome(OutcomeKind.WRONG, reason=differs))
        return Tried(point, candidate, own, standing.timing)


def _ended(problem: SchedulingProblem, future: Future[Default]) -> tuple[SchedulingProblem, Default | IngotError]:
    try:
        return problem, future.result()
    except IngotError as error:
        if error.code in (ErrorCode.DEVICE_TIMEOUT, ErrorCode.RESOURCE_EXHAUSTED):  # no matter of the problem
            raise
        return problem, error


def refused(error: Exception) -> Outcome:
    """The outcome of a candidate that is none."""
    return Outcome(OutcomeKind.REFUSED, reason=f"{type(error).__name__}: {error}"[:300])
