"""The tuner: gives time to the task where the model gains most, and keeps what holds when it is measured again.

Which task is next follows Ansor's scheduler (Zheng et al., OSDI 2020, section 6): the one whose time, times what its last batches
gained, is the largest.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from compiler_service.compiler.progress import Progress
from compiler_service.compiler.schedule.language.knobs import Knobs
from compiler_service.compiler.tune.cost.ranking import Ranking
from compiler_service.compiler.tune.measuring.trial import OutcomeKind
from compiler_service.compiler.tune.problem import Candidate, SchedulingProblem
from compiler_service.compiler.tune.records.book import RecordBook
from compiler_service.compiler.tune.records.record import TrialRecord
from compiler_service.compiler.tune.remembering import Remembering
from compiler_service.compiler.tune.search.point import Point
from compiler_service.compiler.tune.tasks import TuningTask
from compiler_service.compiler.tune.trying import Trials, Tried, refused
from shared_ir.errors import ErrorCode, IngotError

_BATCH = 8
"""Points that a search is asked for at a time."""
_SECONDS_OF_DEFAULT, _SECONDS_TO_CONFIRM = 0.06, 0.08
"""Largest time for the rounds of one schedule, in seconds; each has at least three."""
_WORTH_CONFIRMING, _WORTH_KEEPING = 0.04, 0.012
"""Gain beyond the one confirmed last from which on a candidate is measured again, as a part of the time: at once, and when
its task is left."""
_PART_TO_LEARN = 0.05
"""Largest part of the time that the cost model learns."""
_PART_TO_BEGIN = 0.5
"""Part of the time until which default schedules are measured."""
_PART_TO_SEARCH = 0.92
"""Part of the time until what was found is measured once more."""
_WORTH_ANOTHER_RUN = 0.01
"""Part of the model's time from which on a task that there was no time for is the next run's to begin."""
_LEAST_SHARE = 0.001
"""Tasks that take a smaller part of the model's time are left as they are."""


class TrialLog(Protocol):
    """Where trials are written down as they end, and which tuners at work on the same tasks share."""

    def claim(
        self, workload: str, target: str, candidates: Sequence[str], methods: Sequence[str] = ()
    ) -> Sequence[str]:
        """Those of ``candidates``, digests, that nobody else has measured or measures where these ``methods`` may be used."""

    def give_back(self, workload: str, target: str, candidates: Sequence[str], methods: Sequence[str] = ()) -> None:
        """Candidates that were claimed and are not measured."""

    def append(self, records: Iterable[TrialRecord]) -> None:
        """Keep ``records``, whatever becomes of this process."""


@dataclass(frozen=True)
class TuningEffort:
    """How much a tuner may do.

    Attributes:
        seconds: in all, begun with the first measurement.
        again: whether tasks are taken up again that an earlier run has settled.
    """

    seconds: float
    again: bool = False


@dataclass
class Tuner:
    """Tunes tasks for one target.

    Attributes:
        book: what is known; records that this run makes are written to ``log``.
    """

    trials: Trials
    book: RecordBook
    log: TrialLog
    remembering: Remembering
    effort: TuningEffort
    progress: Progress
    _began: float = field(default_factory=time.monotonic)

    def run(self, tasks: Sequence[TuningTask]) -> None:
        """Tune ``tasks`` until the time is over or nothing is left to gain.

        Raises:
            IngotError: DEVICE_TIMEOUT, the machine that measures is lost; what was learned until then is in the log. Whatever keeps the
                default schedule of each task from being measured.
        """
        open_tasks = [t for t in tasks if self.effort.again or not self.is_settled(t)]
        begun = list(self._begin(open_tasks, self._ranking(tasks)))
        total = sum(task.seconds for task in begun)
        for small in (t for t in begun if t.seconds < _LEAST_SHARE * total):
            self._settle(small)
        begun = sorted((t for t in begun if t.seconds >= _LEAST_SHARE * total), key=lambda t: -t.seconds)
        while not self._is_over() and (task := max(begun, key=lambda t: t.worth, default=None)) and task.worth > 0:
            self._batch(task)
            self._say(begun, task, total)
        for task in begun:
            self._confirm(task, _WORTH_KEEPING)
            if task.trials or task.is_done or task.seconds < _WORTH_ANOTHER_RUN * total:
                self._settle(task)
        self.progress("tune", int(self.effort.seconds), int(self.effort.seconds), "")

    # -- one task

    def _ranking(self, tasks: Sequence[TuningTask]) -> Ranking:
        """What records of other tasks say; tasks recall their own."""
        ranking, own = Ranking(self.effort.seconds * _PART_TO_LEARN), {task.workload.digest for task in tasks}
        ranking.add(record for record in self.book.records() if record.workload not in own)
        if ranking.why_not:
            self.progress("tune", 0, int(self.effort.seconds), ranking.why_not)
        return ranking

    def _begin(self, tasks: Sequence[TuningTask], ranking: Ranking) -> Iterator[TuningTask]:
        """Those whose default schedule could be measured; others stay as they are.

        Raises:
            IngotError: none could.
        """
        by_problem = {id(task.problem): task for task in tasks}
        fault: IngotError | None = None
        begun = 0
        for number, (problem, default) in enumerate(self.trials.defaults(self._in_time(tasks), _SECONDS_OF_DEFAULT)):
            said = default.message if isinstance(default, IngotError) else f"measured {problem.label}"
            self.progress("tune", number, len(tasks), said)
            if isinstance(default, IngotError):
                fault = default
                continue
            begun += 1
            task = by_problem[id(problem)]
            task.begin(default, list(self._seeds(task)), ranking.of(task.workload))
            self._recall(task)
            self._check(task)
            yield task
        if fault is not None and not begun:  # something is wrong here with more than one of them
            raise fault

    def _in_time(self, tasks: Sequence[TuningTask]) -> Iterator[SchedulingProblem]:
        """Those that there is time to try something for; others are the next run's, which begins with them."""
        yield from (task.problem for task in tasks if not self._is_over(_PART_TO_BEGIN))

    def is_settled(self, task: TuningTask) -> bool:
        """Whether an earlier run has left the task, with what its answers still make: a template may have been changed since, and a record
        may be of somebody else."""
        about, methods = task.workload.digest, self.remembering.methods
        if not self.book.is_settled(about, methods):
            return False
        settled = [r for r in self.book.of(about) if r.settled and r.compiler == self.remembering.compiler]
        answers = (self.book.best(about, methods), max(settled, key=lambda r: r.time))
        return all(_makes(task, record) for record in answers if record is not None)

    def _seeds(self, task: TuningTask) -> Iterator[Point]:
        """Points to begin with: what is best for the nearest sizes, and what each other rule makes of the task."""
        near = self.book.nearest(task.workload)
        if near is not None:
            yield Point.of(near.values)
        knobs = Knobs()
        task.candidate(knobs)
        if "rule" in knobs.asked:
            yield from (Point.of({"rule": option}) for option in knobs.asked["rule"].options[1:])

    def _recall(self, task: TuningTask) -> None:
        """What an earlier run has measured is not measured again."""
        task.latest = self.book.latest(task.workload.digest)
        standing = self.book.best(task.workload.digest, self.remembering.methods)
        for record in self.book.of(task.workload.digest):
            if record.compiler != self.remembering.compiler or record.methods != self.remembering.methods:
                continue
            point = Point.of(record.values)
            if (
                record.outcome is OutcomeKind.LATE and not record.schedules
            ):  # its template took too long, and would again
                task.pass_over(point)
                continue
            try:
                candidate = task.of_point(point)
            except Exception:  # it was refused then too
                task.learn(point, None, None)
                continue
            if candidate.digest != record.candidate:  # it is of a template that was changed since, or of somebody else
                continue
            tried = self.remembering.recalled(point, candidate, record)
            task.learn(point, candidate, tried.share)
            task.keep(tried)
            if record is standing:
                task.confirmed, task.winner = record.share, record

    def _check(self, task: TuningTask) -> None:
        """What was confirmed before, perhaps elsewhere or by somebody who lies, wins with the time that it takes here, and no longer
        where it is not faster at all."""
        default, winner = task.default, task.winner
        if default is None or winner is None:
            return
        point = Point.of(winner.values)
        candidate = task.of_point(point)
        holds, own, other = self.trials.confirmed(task.problem, default, candidate, _SECONDS_TO_CONFIRM)
        if own.seconds >= other.seconds:
            task.confirmed, task.winner, task.refuted = 1.0, None, winner
        elif holds:
            now = self.remembering.confirmed(task, self.remembering.recalled(point, candidate, winner), own, other)
            task.confirmed, task.winner, task.refuted = now.share, replace(now, output=winner.output), winner

    def _settle(self, task: TuningTask) -> None:
        """The end of a task; by one write, since between the two lines the default schedule would be the answer for good."""
        given_up = [] if task.refuted is None else [self.remembering.given_up(task, task.refuted)]
        task.latest = max(task.latest, *(r.time for r in given_up), 0.0)
        self.log.append([*given_up, self.remembering.settled(task)])

    def _batch(self, task: TuningTask) -> None:
        assert task.default is not None
        before, claimed = task.best_share, set[str]()
        try:
            for tried in self.trials.tried(task.problem, task.default, self._wanted(task, claimed), before):
                task.keep(tried)
                task.learn(tried.point, tried.candidate, tried.share)
                self.log.append([self.remembering.record(task, tried)])
                claimed -= {tried.candidate.digest} if tried.candidate is not None else set()
        finally:  # what was not measured, somebody else may
            self.log.give_back(task.workload.digest, self.remembering.target, sorted(claimed), self.remembering.methods)
        task.gained(before)
        self._confirm(task, _WORTH_CONFIRMING)

    def _wanted(self, task: TuningTask, claimed: set[str]) -> Iterator[tuple[Point, Candidate]]:
        """The next points whose schedules nobody has measured or measures, one at a time: while the search looks for one, those before
        are made and measured. Adds their digests to ``claimed``."""
        given: set[str] = set()
        while len(given) < _BATCH and not self._is_over():
            proposed = task.propose(1)
            if not proposed:
                task.is_done = task.is_done or not given
                return
            (point,) = proposed
            candidate = self._candidate(task, point)
            if candidate is None:
                continue
            if task.known(candidate):
                task.learn(point, candidate, None)
            elif candidate.digest in given or not self._claimed(task, candidate):
                task.pass_over(point)
            else:
                given.add(candidate.digest)
                claimed.add(candidate.digest)
                yield point, candidate

    def _candidate(self, task: TuningTask, point: Point) -> Candidate | None:
        """None where no schedule comes of the answers, which is on record then, unless there was no time for it."""
        try:
            return task.of_point(point)
        except Exception as error:  # whatever a rule met
            task.pass_over(point)
            if not (isinstance(error, IngotError) and error.code is ErrorCode.DEADLINE_EXCEEDED):
                self.log.append([self.remembering.record(task, Tried(point, None, refused(error)))])
            return None

    def _claimed(self, task: TuningTask, candidate: Candidate) -> bool:
        """Whether it is this tuner's to measure."""
        about = self.remembering
        return bool(self.log.claim(task.workload.digest, about.target, [candidate.digest], about.methods))

    def _confirm(self, task: TuningTask, worth: float) -> None:
        """Measure the best candidate again beside the default, where it gained more than ``worth`` since that was done last."""
        default, best = task.default, task.best
        if default is None or best is None or best.candidate is None:
            return
        if best.candidate == default.candidate or task.best_share >= task.confirmed * (1 - worth):
            return
        holds, own, other = self.trials.confirmed(task.problem, default, best.candidate, _SECONDS_TO_CONFIRM)
        share = own.seconds / other.seconds if other.seconds else math.inf
        if holds and share < task.confirmed:
            task.confirmed, task.winner = share, self.remembering.confirmed(task, best, own, other)
            self.log.append([task.winner])
        else:
            task.correct(best, replace(best, outcome=replace(best.outcome, timing=own), beside=other))

    # -- all of them

    def _say(self, tasks: Sequence[TuningTask], task: TuningTask, total: float) -> None:
        line = task.progress(tasks.index(task) + 1, len(tasks), total)
        elapsed = min(self.effort.seconds, time.monotonic() - self._began)
        self.progress("tune", int(elapsed), int(self.effort.seconds), str(line))

    def _is_over(self, part: float = _PART_TO_SEARCH) -> bool:
        return time.monotonic() - self._began > self.effort.seconds * part


def _makes(task: TuningTask, record: TrialRecord) -> bool:
    try:
        return task.of_point(Point.of(record.values)).digest == record.candidate
    except Exception:  # whatever a rule or a template met
        return False
