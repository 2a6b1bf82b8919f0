"""What a cost model is told of a point of a space without making loops of it: the sizes of the workload, and what each knob was answered.

That costs nothing beside the point itself, and needs no kernel: records of other models say it as well.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from compiler_service.compiler.schedule.language.knobs import Knob, Value

MOST_SIZES = 48
"""Sizes of a workload that are told."""


@dataclass(frozen=True)
class KnobSample:
    """A point as the template that made it asked for it.

    Attributes:
        sizes: of the workload (:attr:`compiler_service.compiler.tune.records.record.Workload.sizes`).
    """

    sizes: tuple[int, ...]
    knobs: Mapping[str, Knob]


@dataclass(frozen=True)
class KnobEncoding:
    """Numbers for samples: a column for each size, and two for each knob: what was answered, and how far that is from what the model of
    the target would take. A knob that was not asked for is no number (NaN).

    Attributes:
        sizes: columns of sizes.
        knobs: names, in the order of their columns, and for answers that are words or tuples the order of these.
    """

    sizes: int
    knobs: Mapping[str, Mapping[Value, int]]

    @classmethod
    def of(cls, samples: Iterable[KnobSample]) -> KnobEncoding:
        """The encoding of all sizes and knobs of ``samples``; others are not told."""
        found, sizes = dict[str, dict[Value, int]](), 0
        for sample in samples:
            sizes = max(sizes, min(MOST_SIZES, len(sample.sizes)))
            for name, knob in sample.knobs.items():
                words = found.setdefault(name, {})
                for option in knob.options:
                    if isinstance(option, str | tuple):
                        words.setdefault(option, len(words))
        return cls(sizes, found)

    def matrix(self, samples: Sequence[KnobSample]) -> np.ndarray:
        """float32[len(samples), sizes + 2 * len(knobs)]."""
        found = np.full((len(samples), self.sizes + 2 * len(self.knobs)), np.nan, np.float32)
        for row, sample in zip(found, samples, strict=True):
            told = sample.sizes[: self.sizes]
            row[: len(told)] = [math.log2(1 + abs(size)) for size in told]
            for column, (name, words) in enumerate(self.knobs.items()):
                knob = sample.knobs.get(name)
                if knob is not None:
                    at = self.sizes + 2 * column
                    row[at], row[at + 1] = (
                        _told(knob.value, words),
                        _told(knob.value, words) - _told(knob.default, words),
                    )
        return found


def _told(value: Value, words: Mapping[Value, int]) -> float:
    if isinstance(value, bool):
        return float(value)
    if isinstance(value, int):
        return math.copysign(math.log2(1 + abs(value)), value)
    return float(words.get(value, -1))
