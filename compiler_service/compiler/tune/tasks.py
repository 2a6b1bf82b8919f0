"""Tasks: the distinct scheduling problems of a model, each with its part of the time that a run takes."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from compiler_service.compiler.program.kernels import Kernel, ScheduledKernel
from compiler_service.compiler.schedule.language.knobs import Knobs
from compiler_service.compiler.tensor_expr.kernel.group import KernelDefinition
from compiler_service.compiler.tune.cost.ranking import TaskRanking
from compiler_service.compiler.tune.kernels import KernelProblem
from compiler_service.compiler.tune.problem import Candidate, SchedulingProblem
from compiler_service.compiler.tune.records.record import TrialRecord, Workload
from compiler_service.compiler.tune.search.phases import Phases
from compiler_service.compiler.tune.search.point import DEFAULT, Point
from compiler_service.compiler.tune.trying import Default, Tried
from compiler_service.compiler.tune.watching import TaskProgress
from shared_ir.expr.dim import evaluate_alike
from shared_ir.machine.target import Target

_HOPE = 0.1
"""What a task is taken to gain before anything was tried, as a part of its time."""
_FADES = 0.6
"""What is left of that with each batch that gains nothing."""
_LEAST_HOPE = 0.002
"""Below this a task is left: ten batches without a gain."""
_REMEMBERED = 256
"""Candidates that are kept between being drawn and being chosen."""
_MOST_LEADERS = 4
"""Candidates, the fastest ones, of which the next best is taken where one does not hold; each has its results."""
_ORDERING_EXTENT = 64
"""What symbols are taken for where tasks are put in their first order."""


class TuningTask:
    """One problem, what is known of it, and the search for more.

    Attributes:
        launches: how often a run of the model computes it.
        default: the default schedule, once it was measured.
        latest: when the last record of it that is known was written.
        trials: how many candidates were tried, those of records included.
        confirmed: the best share of the default's time that held when it was measured again, and the record of it, ``winner``.
        refuted: a record of an earlier run that was the answer, and does not hold, or not with the time that it says.
        is_alone: it is tuned for as long as there is time, since nothing else would gain by it: evolution finds its way after many
            trials without a gain.
    """

    def __init__(self, problem: SchedulingProblem, launches: int = 1, seed: int = 0, is_alone: bool = False) -> None:
        self.problem, self.launches = problem, launches
        extents = tuple(problem.extents.values())
        self.workload = Workload.of(problem.text, problem.label, extents, problem.standing)
        self.default: Default | None = None
        self.latest = 0.0
        self._leaders: list[Tried] = []
        self.trials = 0
        self.confirmed = 1.0
        self.winner: TrialRecord | None = None
        self.refuted: TrialRecord | None = None
        self.is_done = False
        self.is_alone = is_alone
        self._hope = _HOPE
        self._made: dict[str, Candidate] = {}
        self._measured: dict[str, float | None] = {}
        self._seed = seed
        self._ranking: TaskRanking | None = None
        self.search = Phases(self.candidate, seed=seed)

    def begin(self, default: Default, seeds: Sequence[Point], ranking: TaskRanking | None = None) -> None:
        """Search from here: the default schedule is measured. ``ranking`` learns of each trial, and ranks points once it can."""
        self.default, self._ranking = default, ranking
        self.search = Phases(self.candidate, seeds, self._seed)
        self.search.tell(DEFAULT, default.timing.seconds)
        if ranking is not None:
            ranking.learn(DEFAULT, 1.0)
        self._measured[default.candidate.digest] = 1.0

    def candidate(self, knobs: Knobs) -> Candidate:
        """The candidate that ``knobs`` answer. Raises IngotError."""
        found = self.problem.candidate(knobs)
        self._made[Point.of(knobs.values).digest] = found
        while len(self._made) > _REMEMBERED:
            del self._made[next(iter(self._made))]
        return found

    def of_point(self, point: Point) -> Candidate:
        """The candidate of a point. Raises whatever a rule met."""
        known = self._made.pop(point.digest, None)
        return self.candidate(Knobs(point.values)) if known is None else known

    def known(self, candidate: Candidate) -> bool:
        """Whether its share is known already, since other answers have led to the same schedule."""
        return candidate.digest in self._measured

    def learn(self, point: Point, candidate: Candidate | None, share: float | None) -> None:
        """That ``candidate`` takes ``share`` of the default's time; None: it is no candidate."""
        if candidate is not None:
            share = self._measured.setdefault(candidate.digest, share)
        if share is not None and self._ranking is not None:
            self._ranking.learn(point, share)
        self.search.tell(point, None if share is None or self.default is None else share * self.default.timing.seconds)

    def pass_over(self, point: Point) -> None:
        """That nothing is known of ``point``, and nothing will be here."""
        self.search.tell(point, None)

    def propose(self, count: int) -> Sequence[Point]:
        """Up to ``count`` points to try next; none where the search has come to its end."""
        self.search.rank = self._ranking if self._ranking is not None and self._ranking.is_ready else None
        return self.search.propose(count)

    def keep(self, tried: Tried) -> None:
        """One more trial."""
        self.trials += 1
        self._lead(tried)

    def correct(self, tried: Tried, again: Tried) -> None:
        """That ``tried``, measured again with more care, is ``again``: of many times the least is the luckiest, or a record was wrong. What
        is not faster than the default schedule leads no more, and the next best does."""
        self._leaders = [leader for leader in self._leaders if leader is not tried]
        self._lead(again)

    def _lead(self, tried: Tried) -> None:
        if tried.share is not None and tried.share < 1:
            self._leaders = sorted([*self._leaders, tried], key=_share)[:_MOST_LEADERS]

    @property
    def best(self) -> Tried | None:
        """The fastest candidate; None where none is faster than the default schedule."""
        return self._leaders[0] if self._leaders else None

    def gained(self, share_before: float) -> None:
        """The end of a batch, at whose beginning the best share was this."""
        gain = (share_before - self.best_share) / share_before
        hope = max(gain, self._hope * _FADES)
        self.is_done = self.is_done or (hope < _LEAST_HOPE and not self.is_alone)
        self._hope = max(hope, _LEAST_HOPE)

    @property
    def best_share(self) -> float:
        """The part of the default's time that the best candidate takes; 1 where none is better."""
        return 1.0 if self.best is None else _share(self.best)

    @property
    def seconds(self) -> float:
        """Of all its launches, as the default schedule computes them."""
        return 0.0 if self.default is None else self.default.timing.seconds * self.launches

    @property
    def worth(self) -> float:
        """Seconds of a run that the next batch is taken to gain."""
        return 0.0 if self.is_done else self.seconds * self.best_share * self._hope

    def progress(self, number: int, tasks: int, total: float) -> TaskProgress:
        """``total``: seconds of all tasks."""
        own = 0.0 if self.default is None else self.default.timing.seconds
        share = self.seconds / total if total else 0.0
        return TaskProgress(number, tasks, self.problem.label, share, self.trials, own * self.best_share, own)


def tasks_of(
    kernels: Sequence[Kernel],
    launches: Sequence[KernelDefinition],
    target: Target,
    methods: Collection[str] = (),
) -> tuple[TuningTask, ...]:
    """The tasks of a model, those with the most arithmetic first.

    Args:
        launches: every launch of the model.
        methods: those that round more than plain sums and that may be used.
    """
    counts: dict[str, int] = {}
    for launch in launches:
        counts[launch.text] = counts.get(launch.text, 0) + 1
    weights = sum(array.nbytes for kernel in kernels for arrays in kernel.elements for array in arrays)
    scheduled = [k for k in kernels if isinstance(k, ScheduledKernel)]
    ordered = sorted(scheduled, key=lambda k: -_operations(k.definition) * counts.get(k.definition.text, 1))
    return tuple(
        TuningTask(KernelProblem(kernel, target, methods, weights), counts.get(kernel.definition.text, 1), number)
        for number, kernel in enumerate(ordered)
    )


def _share(tried: Tried) -> float:
    return math.inf if tried.share is None else tried.share


def _operations(definition: KernelDefinition) -> int:
    found = evaluate_alike(definition.flops, _ORDERING_EXTENT)
    return 1 << 62 if found is None else found
