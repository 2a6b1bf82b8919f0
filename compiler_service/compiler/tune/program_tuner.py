"""Tuning of one staged program: points are made and compiled here while a measurer runs those before them; the best is confirmed."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field

import numpy as np

from compiler_service.compiler.schedule.language.knobs import Knobs
from compiler_service.compiler.schedule.staging.program import StagedProgram
from compiler_service.compiler.tune.measuring.trial import Measurer, Outcome, OutcomeKind, Timing, Trial
from compiler_service.compiler.tune.programs import ProgramTrials, differs
from compiler_service.compiler.tune.search.descent import Descent
from compiler_service.compiler.tune.search.evolution import Evolution
from compiler_service.compiler.tune.search.face import Search
from compiler_service.compiler.tune.search.point import DEFAULT, Point
from shared_ir.errors import ErrorCode, IngotError

Told = Callable[[int, float], None]
"""Hears of each trial: how many there were, and the least seconds so far."""
MakeProgram = Callable[[Knobs], StagedProgram]

_TRIAL_SECONDS = 0.03
"""Seconds of rounds of a candidate: the confirmation takes longer."""
_CONFIRMING_SECONDS = 0.4
"""Seconds of rounds of each that is confirmed."""
_FINALISTS = 3
"""Candidates that are confirmed."""
_AHEAD = 3
"""Candidates that are compiled while one is measured."""
_SHARE_OF_EVOLUTION = 0.6
"""Part of the time until the descent from the best begins."""


@dataclass(frozen=True)
class TunedProgram:
    """What came of tuning.

    Attributes:
        point: of the schedule to take: the default unless another one was faster, beyond the spread of both, in two runs side by side.
        timing, default: of the last run side by side.
        trials: points that were measured, the default included; ``failed`` points that were no candidates, with the reason of each kind.
        history: seconds since the start, and of the best so far, whenever that changed.
    """

    point: Point
    timing: Timing
    default: Timing
    trials: int
    failed: int
    history: tuple[tuple[float, float], ...]


@dataclass
class ProgramTuner:
    """Tunes one program.

    Args:
        make: the template, or the generator.
        trials: makes trials of what ``make`` makes.
        seed: of the search.
    """

    make: MakeProgram
    trials: ProgramTrials
    measurer: Measurer
    seed: int = 0
    reasons: list[str] = field(default_factory=list)
    _scores: list[tuple[float, Point]] = field(default_factory=list)
    _history: list[tuple[float, float]] = field(default_factory=list)

    def run(self, seconds: float, told: Told = lambda trials, best: None) -> TunedProgram:
        """
        Args:
            seconds: that it may take, the confirmation of the best included.
            told: is called after each trial with their number and the least seconds so far.

        Raises:
            IngotError: the default schedule cannot be compiled or run.
        """
        began = time.monotonic()
        default_trial = self.trials.of(self.make(Knobs()))
        first = self._first(default_trial)
        wanted = self._results(DEFAULT, first)
        assert first.timing is not None
        self._score(DEFAULT, first.timing.seconds, 0.0)
        told(1, first.timing.seconds)
        self._search(began, began + seconds - _reserve(seconds), wanted, told)
        return self._confirmed(default_trial, first.timing)

    # -- the search

    def _search(self, began: float, end: float, wanted: Sequence[np.ndarray], told: Told) -> None:
        evolution, descent = Evolution(self.make, self.seed), Descent(self.make)
        for search in (evolution, descent):
            search.tell(*self._told(DEFAULT))
        turn = began + (end - began) * _SHARE_OF_EVOLUTION
        running: dict[Future[Outcome], Point] = {}
        with ThreadPoolExecutor(1) as measuring:
            while time.monotonic() < end:
                descends = time.monotonic() >= turn
                points = list(self._next(descent if descends else evolution, evolution, running))
                for point in points:
                    trial = self._trial(point, (evolution, descent))
                    if trial is not None:
                        running[measuring.submit(self._measured, trial)] = point
                if not running and not points:
                    break
                self._take(running, (evolution, descent), wanted, began, told, all_of=not points)
            measuring.shutdown(cancel_futures=True)
        for future, point in running.items():
            if not future.cancelled():
                self._hear(point, future.result(), (evolution, descent), wanted, began, told)

    def _next(self, search: Search, other: Search, running: dict[Future[Outcome], Point]) -> Sequence[Point]:
        room = _AHEAD - len(running)
        if room <= 0:
            return ()
        return search.propose(1) or (other.propose(1) if search is not other and not running else ())

    def _trial(self, point: Point, searches: Sequence[Search]) -> Trial | None:
        try:
            return self.trials.of(self.make(Knobs(point.values)))
        except IngotError as error:
            self._fail(point, str(error), searches)
            return None

    def _measured(self, trial: Trial) -> Outcome:
        return self.measurer.run((trial,), _TRIAL_SECONDS)[0]

    def _take(
        self,
        running: dict[Future[Outcome], Point],
        searches: Sequence[Search],
        wanted: Sequence[np.ndarray],
        began: float,
        told: Told,
        *,
        all_of: bool,
    ) -> None:
        """Tells the searches what is done; waits for something where nothing more was to be begun."""
        blocks = all_of or len(running) >= _AHEAD
        done, _ = wait(running, timeout=None if blocks and running else 0.0, return_when=FIRST_COMPLETED)
        for future in done:
            self._hear(running.pop(future), future.result(), searches, wanted, began, told)

    def _hear(
        self,
        point: Point,
        outcome: Outcome,
        searches: Sequence[Search],
        wanted: Sequence[np.ndarray],
        began: float,
        told: Told,
    ) -> None:
        reason = outcome.reason or outcome.kind
        if outcome.timing is not None:
            reason = self._difference(point, outcome, wanted)
        if outcome.timing is None or reason:
            self._fail(point, reason, searches)
            return
        self._score(point, outcome.timing.seconds, time.monotonic() - began)
        for search in searches:
            search.tell(point, outcome.timing.seconds)
        told(len(self._scores), self._scores[0][0])

    def _fail(self, point: Point, reason: str, searches: Sequence[Search]) -> None:
        self.reasons.append(f"{point}: {reason}")
        for search in searches:
            search.tell(point, None)

    def _score(self, point: Point, seconds: float, at: float) -> None:
        if not self._scores or seconds < self._scores[0][0]:
            self._history.append((at, seconds))
        self._scores.append((seconds, point))
        self._scores.sort(key=lambda scored: scored[0])

    def _told(self, point: Point) -> tuple[Point, float]:
        return point, next(seconds for seconds, own in self._scores if own == point)

    # -- what is compared

    def _first(self, trial: Trial) -> Outcome:
        outcome = self.measurer.run((trial,), _TRIAL_SECONDS)[0]
        if outcome.kind is not OutcomeKind.MEASURED:
            raise IngotError(
                ErrorCode.COMPILER_FAULT,
                f"the default schedule cannot be measured: {outcome.reason}",
                expected="a schedule that runs on this machine",
                received=outcome.kind,
                remedy="Tune for the machine that measures; give smaller sizes where it ran too long.",
            )
        return outcome

    def _results(self, point: Point, outcome: Outcome) -> list[np.ndarray]:
        program = self.make(Knobs(point.values))
        found = self.trials.results(program, outcome.results)
        return [found[name] for name in program.outputs]

    def _difference(self, point: Point, outcome: Outcome, wanted: Sequence[np.ndarray]) -> str:
        pairs = zip(self._results(point, outcome), wanted, strict=True)
        return next(filter(None, (differs(found, own) for found, own in pairs)), "")

    def _confirmed(self, default_trial: Trial, default: Timing) -> TunedProgram:
        """The best of the fastest few, timed in turns with the default, twice."""
        best, timing = DEFAULT, default
        finalists = [p for _, p in self._scores[: _FINALISTS + 1] if p != DEFAULT][:_FINALISTS]
        runs = [default_trial, *(self.trials.of(self.make(Knobs(p.values))) for p in finalists)]
        outcomes = self.measurer.run(runs, _CONFIRMING_SECONDS)
        timings = {p: o.timing for p, o in zip((DEFAULT, *finalists), outcomes, strict=True) if o.timing is not None}
        found = min(timings, key=lambda p: timings[p].seconds, default=DEFAULT)
        default = timings.get(DEFAULT, default)
        if found != DEFAULT and _is_faster(timings[found], default):
            pair = self.measurer.run((default_trial, runs[1 + finalists.index(found)]), _CONFIRMING_SECONDS)
            again, other = (o.timing for o in pair)
            if again is not None and other is not None and _is_faster(other, again):
                best, timing, default = found, other, again
        if best == DEFAULT:
            timing = default
        return TunedProgram(best, timing, default, len(self._scores), len(self.reasons), tuple(self._history))


def _is_faster(timing: Timing, default: Timing) -> bool:
    return timing.seconds + timing.spread < default.seconds - default.spread


def _reserve(seconds: float) -> float:
    """Seconds that the confirmation takes."""
    return min(seconds / 4, (_FINALISTS + 3) * _CONFIRMING_SECONDS * 1.5)
