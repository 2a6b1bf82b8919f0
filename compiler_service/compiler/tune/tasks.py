"""Tasks: the distinct scheduling problems of a model, each with its part of the time that a run takes."""

from __future__ import annotations

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
_ORDERING_EXTENT = 64
"""What symbols are taken for where tasks are put in their first order."""


class TuningTask:
    """One problem, what is known of it, and the search for more.

    Attributes:
        launches: how often a run of the model computes it.
        default, best: the default schedule and the fastest candidate, once they were measured.
        trials: how many candidates were tried, those of records included.
        confirmed: the best share of the default's time that held when it was measured again, and the record of it, ``winner``.
        is_alone: it is tuned for as long as there is time, since nothing else would gain by it: evolution finds its way after many
            trials without a gain.
    """

    def __init__(self, problem: SchedulingProblem, launches: int = 1, seed: int = 0, is_alone: bool = False) -> None:
        self.problem, self.launches = problem, launches
        self.workload = Workload.of(problem.text, problem.label, tuple(problem.extents.values()))
        self.default: Default | None = None
        self.best: Tried | None = None
        self.trials = 0
        self.confirmed = 1.0
        self.winner: TrialRecord | None = None
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
        share = tried.share
        if share is not None and share < self.best_share:
            self.best = tried

    def gained(self, share_before: float) -> None:
        """The end of a batch, at whose beginning the best share was this."""
        gain = (share_before - self.best_share) / share_before
        hope = max(gain, self._hope * _FADES)
        self.is_done = self.is_done or (hope < _LEAST_HOPE and not self.is_alone)
        self._hope = max(hope, _LEAST_HOPE)

    @property
    def best_share(self) -> float:
        """The part of the default's time that the best candidate takes; 1 where none is better."""
        found = None if self.best is None else self.best.share
        return 1.0 if found is None else found

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


def _operations(definition: KernelDefinition) -> int:
    found = evaluate_alike(definition.flops, _ORDERING_EXTENT)
    return 1 << 62 if found is None else found
