"""The tuner: gives time to the task where the model gains most, and keeps what holds when it is measured again.

Which task is next follows Ansor's scheduler (Zheng et al., OSDI 2020, section 6): the one whose time, times what its last batches
gained, is the largest.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
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
from shared_ir.errors import IngotError

_BATCH = 8
"""Points that a search is asked for at a time."""
_SECONDS_OF_DEFAULT, _SECONDS_TO_CONFIRM = 0.06, 0.08
"""Largest time for the rounds of one schedule, in seconds; each has at least three."""
_WORTH_CONFIRMING, _WORTH_KEEPING = 0.04, 0.012
"""Gain beyond the one confirmed last from which on a candidate is measured again, as a part of the time: at once, and when
its task is left."""
_PART_TO_LEARN = 0.05
"""Largest part of the time that the cost model learns."""
_PART_TO_SEARCH = 0.92
"""Part of the time until what was found is measured once more."""
_LEAST_SHARE = 0.001
"""Tasks that take a smaller part of the model's time are left as they are."""


class TrialLog(Protocol):
    """Where trials are written down as they end, and which tuners at work on the same tasks share."""

    def claim(self, workload: str, target: str, candidates: Sequence[str]) -> Sequence[str]:
        """Those of ``candidates``, digests, that nobody else has measured or measures."""

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
        self.log.append(self.remembering.settled(t) for t in begun if t.seconds < _LEAST_SHARE * total)
        begun = sorted((t for t in begun if t.seconds >= _LEAST_SHARE * total), key=lambda t: -t.seconds)
        while not self._is_over() and (task := max(begun, key=lambda t: t.worth, default=None)) and task.worth > 0:
            self._batch(task)
            self._say(begun, task, total)
        for task in begun:
            self._confirm(task, _WORTH_KEEPING)
            self.log.append([self.remembering.settled(task)])
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
            yield task
        if fault is not None and not begun:  # something is wrong here with more than one of them
            raise fault

    def _in_time(self, tasks: Sequence[TuningTask]) -> Iterator[SchedulingProblem]:
        yield from (task.problem for task in tasks if not self._is_over())

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
        for record in self.book.of(task.workload.digest):
            if record.compiler != self.remembering.compiler or record.methods != self.remembering.methods:
                continue
            point = Point.of(record.values)
            try:
                candidate = task.of_point(point)
            except Exception:  # it was refused then too
                task.learn(point, None, None)
                continue
            if candidate.digest != record.candidate:  # it is of a template that was changed since, or of somebody else
                continue
            share = record.share if record.outcome is OutcomeKind.MEASURED else None
            task.learn(point, candidate, share)
            task.trials += 1
            if share is not None and share < task.best_share:
                task.best = self.remembering.recalled(point, candidate, record)
            if record.confirmed and record.share < task.confirmed:
                task.confirmed, task.winner = record.share, record

    def _batch(self, task: TuningTask) -> None:
        assert task.default is not None
        before = task.best_share
        wanted = self._wanted(task)
        if not wanted:
            task.is_done = True
            return
        for tried in self.trials.tried(task.problem, task.default, wanted, before):
            task.keep(tried)
            task.learn(tried.point, tried.candidate, tried.share)
            self.log.append([self.remembering.record(task, tried)])
            if self._is_over():
                break
        task.gained(before)
        self._confirm(task, _WORTH_CONFIRMING)

    def _wanted(self, task: TuningTask) -> list[tuple[Point, Candidate]]:
        """The next points whose schedules nobody has measured or measures."""
        for _ in range(_BATCH):
            made: dict[str, tuple[Point, Candidate]] = {}
            proposed = task.propose(_BATCH)
            for point in proposed:
                try:
                    candidate = task.of_point(point)
                except Exception as error:  # whatever a rule met
                    task.learn(point, None, None)
                    self.log.append([self.remembering.record(task, Tried(point, None, refused(error)))])
                    continue
                if task.known(candidate):
                    task.learn(point, candidate, None)
                else:
                    made.setdefault(candidate.digest, (point, candidate))
            free = set(self.log.claim(task.workload.digest, self.remembering.target, list(made)))
            for digest, (point, candidate) in made.items():
                if digest not in free:
                    task.learn(point, candidate, None)
            if free or not proposed:
                return [pair for digest, pair in made.items() if digest in free]
        return []

    def _confirm(self, task: TuningTask, worth: float) -> None:
        """Measure the best candidate again beside the default, where it gained more than ``worth`` since that was done last."""
        default, best = task.default, task.best
        if default is None or best is None or best.candidate is None:
            return
        if best.candidate == default.candidate or task.best_share >= task.confirmed * (1 - worth):
            return
        holds, own, other = self.trials.confirmed(task.problem, default, best.candidate, _SECONDS_TO_CONFIRM)
        share = own.seconds / other.seconds
        if holds and share < task.confirmed:
            task.confirmed, task.winner = share, self.remembering.confirmed(task, best, own, other)
            self.log.append([task.winner])

    # -- all of them

    def _say(self, tasks: Sequence[TuningTask], task: TuningTask, total: float) -> None:
        line = task.progress(tasks.index(task) + 1, len(tasks), total)
        elapsed = min(self.effort.seconds, time.monotonic() - self._began)
        self.progress("tune", int(elapsed), int(self.effort.seconds), str(line))

    def _is_over(self) -> bool:
        return time.monotonic() - self._began > self.effort.seconds * _PART_TO_SEARCH


def _makes(task: TuningTask, record: TrialRecord) -> bool:
    try:
        return task.of_point(Point.of(record.values)).digest == record.candidate
    except Exception:  # whatever a rule or a template met
        return False
