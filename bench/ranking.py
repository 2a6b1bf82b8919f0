"""How well candidates are ranked before they are measured, and what that costs.

``python -m bench.ranking --records FILE --models FILES`` draws points of the spaces of the heaviest kernels of each model, measures them
beside the default schedules, keeps them as tuning records in ``FILE`` (which is read where it exists), and compares two kinds of features:
the answers to knobs, and those of the loops that come of them, which have to be made first. For each workload some of its candidates are
learned from, and of the others it is said how the ranking by the model agrees with that by the clock, and how many trials find the best.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from compiler_service.compiler.backends.table import backend_of
from compiler_service.compiler.codegen.toolchain.host import host_target, machine_name
from compiler_service.compiler.frontend.reading.source import ModelSource
from compiler_service.compiler.options import CompileOptions
from compiler_service.compiler.pipeline import allowed_methods, inference, optimize
from compiler_service.compiler.program.definitions import define_kernels
from compiler_service.compiler.program.kernels import Kernel, distinct_kernels
from compiler_service.compiler.program.variants import import_variants
from compiler_service.compiler.progress import Log, silent
from compiler_service.compiler.schedule.language.knobs import Answer
from compiler_service.compiler.tune.cost.features import loop_features
from compiler_service.compiler.tune.cost.model import CostModel
from compiler_service.compiler.tune.cost.values import ValueEncoding, ValueSample
from compiler_service.compiler.tune.kernels import KernelProblem
from compiler_service.compiler.tune.measuring.local import LocalMeasurer
from compiler_service.compiler.tune.problem import Candidate
from compiler_service.compiler.tune.records.lines import read_lines, write_line
from compiler_service.compiler.tune.records.record import TrialRecord
from compiler_service.compiler.tune.remembering import Remembering
from compiler_service.compiler.tune.search.point import Point, asked_at
from compiler_service.compiler.tune.tasks import TuningTask, tasks_of
from compiler_service.compiler.tune.trying import Trials
from compiler_service.compiler.version import compiler_version
from shared_ir.machine.target import Target

_BATCH, _FIRST, _GROWTH = 8, 16, 1.5
"""Trials between two rankings, trials before the first, and growth of the samples from one model to the next."""
_NEAR = 1.02
"""Within this of the best there is, a candidate counts as found."""
_DEFAULT_SECONDS = 0.06
_DRAWS = 6
"""Draws for each point that is wanted: several may come to one schedule."""


@dataclass(frozen=True)
class ModelKernels:
    """The scheduling tasks of a model, the heaviest first, and its kernels by their keys."""

    tasks: tuple[TuningTask, ...]
    kernels: Mapping[str, Kernel]
    methods: tuple[str, ...]


def model_kernels(path: Path, target: Target) -> ModelKernels:
    """Imports a model and schedules nothing."""
    options, log = CompileOptions(), Log.from_environment(silent)
    variants = import_variants(ModelSource.of(path), options.import_options, inference(), fast=options.fast_ways)
    variants = tuple(define_kernels(optimize(v, target, options, log)) for v in variants)
    kernels, _ = distinct_kernels((v.definitions, v.constants) for v in variants)
    methods = tuple(sorted(allowed_methods(options, backend_of(target))))
    tasks = tasks_of(kernels, [d for v in variants for d in v.definitions], target, methods)
    return ModelKernels(tasks, {kernel.key: kernel for kernel in kernels}, methods)


def draw(task: TuningTask, count: int, chance: random.Random) -> list[tuple[Point, Candidate]]:
    """Points with distinct schedules, some near the default and some far from it."""
    found: dict[str, tuple[Point, Candidate]] = {}
    for _ in range(count * _DRAWS):
        asked = asked_at(task.candidate, {}, _strayed(chance, chance.random()))
        if asked is not None and len(found) < count:
            candidate = task.of_point(asked.point)
            found.setdefault(candidate.digest, (asked.point, candidate))
    return list(found.values())


def _strayed(chance: random.Random, often: float) -> Answer:
    return lambda knob: chance.choice(knob.options) if chance.random() < often else knob.default


def measured(found: ModelKernels, target: Target, kernels: int, points: int, seed: int) -> Iterator[TrialRecord]:
    """Records of drawn points of the ``kernels`` heaviest tasks."""
    writer = Remembering(str(target), machine_name(), compiler_version(), found.methods)
    with Trials([task.problem for task in found.tasks[:kernels]], target, LocalMeasurer()) as trials:
        for number, task in enumerate(found.tasks[:kernels]):
            default = trials.default(task.problem, _DEFAULT_SECONDS)
            drawn = draw(task, points, random.Random(seed + number))
            yield from (writer.record(task, tried) for tried in trials.tried(task.problem, default, drawn, 1.0))


# -- features


@dataclass(frozen=True)
class FeatureSet:
    """Features of records.

    Attributes:
        seconds: of the processor that those of one record took.
    """

    name: str
    matrix: np.ndarray
    seconds: float


def by_values(records: Sequence[TrialRecord]) -> FeatureSet:
    """What knobs were answered."""
    start = time.process_time()
    samples = [ValueSample(r.sizes, r.values) for r in records]
    matrix = ValueEncoding.of(samples).matrix(samples)
    return FeatureSet("answers", matrix, (time.process_time() - start) / len(records))


def by_loops(records: Sequence[TrialRecord], models: Sequence[ModelKernels], target: Target) -> FeatureSet:
    """What the loops do."""
    known = {
        task.workload.digest: (task.problem, model.kernels[task.problem.text])
        for model in models
        for task in model.tasks
    }
    start, rows = time.process_time(), []
    for record in records:
        problem, kernel = known[record.workload]
        assert isinstance(problem, KernelProblem)
        rows.append(loop_features(kernel.lower(record.schedules[0], target), problem.extents))
    return FeatureSet("loops", np.array(rows), (time.process_time() - start) / len(records))


# -- agreement


def correlation(one: np.ndarray, other: np.ndarray) -> float:
    """Of the ranks of two rows of numbers (Spearman's); equal numbers have the mean of their ranks."""
    return float(np.corrcoef(_ranks(one), _ranks(other))[0, 1])


def _ranks(values: np.ndarray) -> np.ndarray:
    below = (values[:, None] > values[None, :]).sum(1)
    return np.asarray(below + ((values[:, None] == values[None, :]).sum(1) - 1) / 2)


def recall(predicted: np.ndarray, shares: np.ndarray, part: float = 0.1) -> float:
    """Of the fastest ``part`` of candidates, how many are in that part by the model."""
    count = max(1, round(part * len(shares)))
    return len({*np.argsort(shares)[:count]} & {*np.argsort(-predicted)[:count]}) / count


Order = Callable[[Sequence[int], Sequence[int]], Sequence[int]]
"""Candidates that are left, the most promising first, given those that were tried and those that are left."""


def trials_to_best(shares: np.ndarray, start: Sequence[int], order: Order) -> int:
    """Trials until a candidate is within 2 % of the best of all, when they go in batches by ``order`` after those of ``start``."""
    tried, left = list(start), [i for i in range(len(shares)) if i not in set(start)]
    while left:
        batch = list(order(tried, left))[:_BATCH]
        tried += batch
        left = [i for i in left if i not in set(batch)]
    found = np.flatnonzero(shares[tried] <= shares.min() * _NEAR)
    return int(found[0]) + 1


class _Learning:
    """The order of a model of the trials so far, which is learned again when there are half as many more."""

    def __init__(self, features: np.ndarray, shares: np.ndarray) -> None:
        self._features, self._shares = features, shares
        self._model: CostModel | None = None
        self.fits: list[float] = []

    def __call__(self, tried: Sequence[int], left: Sequence[int]) -> Sequence[int]:
        if self._model is None or len(tried) >= _GROWTH * self._model.samples:
            self._model = CostModel.fit(self._features[tried], self._shares[tried], ["one"] * len(tried))
            self.fits.append(self._model.seconds)
        return [left[i] for i in np.argsort(-self._model.predict(self._features[left]))]


def report(features: FeatureSet, shares: np.ndarray, groups: Sequence[str], repeats: int) -> str:
    """One line for a kind of features."""
    numbers: dict[str, list[float]] = {"own": [], "others": [], "recall": [], "trials": [], "fits": [], "seconds": []}
    workloads, own = list(dict.fromkeys(groups)), np.array(groups)
    for group in workloads:
        places, others = np.flatnonzero(own == group), np.flatnonzero(own != group)
        if len(workloads) > 1:
            general = CostModel.fit(features.matrix[others], shares[others], own[others].tolist())
            numbers["others"].append(correlation(general.predict(features.matrix[places]), -shares[places]))
        for repeat in range(repeats):
            shuffled = np.random.default_rng(repeat).permutation(places)
            learned, held = shuffled[: len(places) // 2], shuffled[len(places) // 2 :]
            predicted = CostModel.fit(features.matrix[learned], shares[learned], ["one"] * len(learned)).predict(
                features.matrix[held]
            )
            numbers["own"].append(correlation(predicted, -shares[held]))
            numbers["recall"].append(recall(predicted, shares[held]))
            learning = _Learning(features.matrix[shuffled], shares[shuffled])
            numbers["trials"].append(trials_to_best(shares[shuffled], range(_FIRST), learning))
            numbers["fits"].append(len(learning.fits))
            numbers["seconds"] += learning.fits
    mean = {name: float(np.nanmean(found)) if found else float("nan") for name, found in numbers.items()}
    return (
        f"{features.name}: {features.seconds * 1e3:.2f} ms a candidate; rank correlation {mean['own']:.2f} from half of the workload, "
        f"{mean['others']:.2f} from other workloads; {mean['recall']:.0%} of the best tenth; {mean['trials']:.0f} trials to within 2 % of "
        f"the best with {mean['fits']:.1f} fits of {mean['seconds'] * 1e3:.0f} ms"
    )


def by_chance(shares: np.ndarray, groups: Sequence[str], repeats: int) -> str:
    """The same trials in any order."""
    own, found = np.array(groups), []
    for group in dict.fromkeys(groups):
        for repeat in range(repeats):
            mixed = shares[np.random.default_rng(repeat).permutation(np.flatnonzero(own == group))]
            found.append(trials_to_best(mixed, range(_FIRST), lambda _, left: left))
    return f"by chance: {np.mean(found):.0f} trials to within 2 % of the best"


def main(arguments: Sequence[str] | None = None) -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=Path, nargs="+", required=True)
    parser.add_argument("--records", type=Path, required=True, help="where the trials are kept")
    parser.add_argument("--kernels", type=int, default=3, help="kernels of each model")
    parser.add_argument("--points", type=int, default=100, help="points of each kernel")
    parser.add_argument("--repeats", type=int, default=4, help="random divisions of each workload")
    options = parser.parse_args(arguments)
    target = host_target()
    models = [model_kernels(path, target) for path in options.models]
    if not options.records.exists():
        with options.records.open("wb") as file:
            for number, model in enumerate(models):
                for record in measured(model, target, options.kernels, options.points, seed=100 * number):
                    file.write(write_line(record))
    known = {task.workload.digest for model in models for task in model.tasks}
    read, _ = read_lines(options.records.read_bytes())
    records = [r for r in read if 0 < r.share < np.inf and r.workload in known]
    shares, groups = np.array([r.share for r in records]), [r.workload for r in records]
    best = [min(s for s, g in zip(shares, groups, strict=True) if g == group) for group in dict.fromkeys(groups)]
    print(
        f"{machine_name()}: {len(records)} candidates of {len(best)} workloads, the best at {np.mean(best):.3f} of the default's time"
    )
    print(by_chance(shares, groups, options.repeats))
    for features in (by_values(records), by_loops(records, models, target)):
        print(report(features, shares, groups, options.repeats))


if __name__ == "__main__":
    main()
