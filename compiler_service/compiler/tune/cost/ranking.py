"""Ranks the points of a task before they are measured, by what was measured of it and of others.

Ranking by answers to knobs costs microseconds a point; loops would have to be made first, which costs a fifth of a trial
(``docs/design/tuning.md``). A model is learned again when there are half as many samples more, and as long as that takes but a small part
of the time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from compiler_service.compiler.tune.cost.model import CostModel, missing
from compiler_service.compiler.tune.cost.values import ValueEncoding, ValueSample
from compiler_service.compiler.tune.records.record import TrialRecord, Workload
from compiler_service.compiler.tune.search.point import Point

_FEWEST_OWN = 16
"""Samples of a task from which on it has a model of its own."""
_FEWEST_OF_OTHERS = 64
"""Samples of other tasks from which on they say something of one that has fewer of its own."""
_MOST_OF_OTHERS = 4096
"""Samples of other tasks that are learned from, the last ones: a second of learning."""
_GROWTH = 1.5
"""How many times as many samples there must be for a model to be learned again."""


@dataclass(frozen=True)
class _Sample:
    group: str
    about: ValueSample
    share: float


@dataclass(frozen=True)
class _Learned:
    encoding: ValueEncoding
    model: CostModel

    @classmethod
    def of(cls, samples: Sequence[_Sample]) -> _Learned:
        encoding = ValueEncoding.of(s.about for s in samples)
        shares = np.array([s.share for s in samples])
        return cls(
            encoding, CostModel.fit(encoding.matrix([s.about for s in samples]), shares, [s.group for s in samples])
        )

    def predict(self, samples: Sequence[ValueSample]) -> np.ndarray:
        return self.model.predict(self.encoding.matrix(samples))


@dataclass
class Ranking:
    """What a tuner has learned of all its tasks.

    Attributes:
        seconds: that learning may take in all.
        why_not: a sentence where nothing is ranked, since LightGBM is not installed; else empty.
        spent: seconds that learning took.
    """

    seconds: float
    why_not: str = field(default_factory=missing)
    spent: float = 0.0
    _samples: list[_Sample] = field(default_factory=list)
    _learned: _Learned | None = None

    def add(self, records: Iterable[TrialRecord]) -> None:
        """Learn from trials of other tasks, those of other models included; ``Ranking.of`` recalls those of a task itself."""
        for record in records:
            if 0 < record.share < np.inf:
                self.keep(record.workload, ValueSample(record.sizes, record.values), record.share)

    def keep(self, workload: str, about: ValueSample, share: float) -> None:
        """One more sample: it took ``share``, above 0, of the time of the default schedule of its workload, a digest."""
        self._samples.append(_Sample(workload, about, share))

    def of(self, workload: Workload) -> TaskRanking:
        """The ranking of one task."""
        return TaskRanking(self, workload)

    def learn(self, samples: Sequence[_Sample], before: _Learned | None, fewest: int) -> _Learned | None:
        """A model of ``samples``; ``before``, which may be none, where they are too few, or not many more, or the time is spent."""
        enough = max(fewest, 0 if before is None else _GROWTH * before.model.samples)
        if self.why_not or len(samples) < enough or self.spent >= self.seconds:
            return before
        learned = _Learned.of(samples)
        self.spent += learned.model.seconds
        return learned

    def general(self) -> _Learned | None:
        """The model of all tasks together."""
        self._learned = self.learn(self._samples[-_MOST_OF_OTHERS:], self._learned, _FEWEST_OF_OTHERS)
        return self._learned


class TaskRanking:
    """A :data:`~compiler_service.compiler.tune.search.face.Rank` of the points of one task."""

    def __init__(self, ranking: Ranking, workload: Workload) -> None:
        self._ranking, self._workload = ranking, workload
        self._samples: list[_Sample] = []
        self._learned: _Learned | None = None

    def learn(self, point: Point, share: float) -> None:
        """That ``point`` took ``share``, above 0, of the default's time."""
        about = ValueSample(self._workload.sizes, point.values)
        self._samples.append(_Sample(self._workload.digest, about, share))
        self._ranking.keep(self._workload.digest, about, share)

    @property
    def is_ready(self) -> bool:
        """Whether there is a model: without one all points are alike."""
        return self._model() is not None

    def __call__(self, points: Sequence[Point]) -> Sequence[float]:
        """What each of ``points`` is taken to cost, as a multiple of the best of the task; the same for all where there is no model."""
        model = self._model()
        if model is None:
            return [1.0] * len(points)
        speeds = model.predict([ValueSample(self._workload.sizes, point.values) for point in points])
        return [float(1 / speed) for speed in speeds]

    def _model(self) -> _Learned | None:
        self._learned = self._ranking.learn(self._samples, self._learned, _FEWEST_OWN)
        return self._learned or self._ranking.general()
