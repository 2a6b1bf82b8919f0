"""What a cost model is told of a point of a space without making loops of it: the sizes of the workload, and what each knob was answered.

That costs nothing beside the point itself and needs no kernel, so that records say it as well, those of other models included.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Self

import numpy as np

from compiler_service.compiler.schedule.language.knobs import Value, Values

MOST_SIZES = 48
"""Sizes of a workload that are told."""


@dataclass(frozen=True)
class ValueSample:
    """A point.

    Attributes:
        sizes: of its workload (:attr:`compiler_service.compiler.tune.records.record.Workload.sizes`).
        values: the answers that are not those of the model of the target.
    """

    sizes: tuple[int, ...]
    values: Values


@dataclass(frozen=True)
class ValueEncoding:
    """Numbers for samples: a column for each size and one for each knob. What the model of the target answered is no number (NaN), as it
    is not said what that was; trees take that for an answer of its own.

    Attributes:
        sizes: columns of sizes.
        knobs: the columns of knobs by their names, each with the numbers of the words and tuples that it was answered.
    """

    sizes: int
    knobs: Mapping[str, Mapping[Value, int]]

    @classmethod
    def of(cls, samples: Iterable[ValueSample]) -> Self:
        """The encoding of all sizes and knobs of ``samples``; others are not told."""
        sizes, answers = 0, dict[str, set[Value]]()
        for sample in samples:
            sizes = max(sizes, min(MOST_SIZES, len(sample.sizes)))
            for name, value in sample.values.items():
                answers.setdefault(name, set()).add(value)
        return cls(sizes, MappingProxyType({name: _numbered(answers[name]) for name in sorted(answers)}))

    def matrix(self, samples: Sequence[ValueSample]) -> np.ndarray:
        """float32[len(samples), sizes + len(knobs)]."""
        found = np.full((len(samples), self.sizes + len(self.knobs)), np.nan, np.float32)
        for row, sample in zip(found, samples, strict=True):
            told = sample.sizes[: self.sizes]
            row[: len(told)] = [_magnitude(size) for size in told]
            for column, (name, words) in enumerate(self.knobs.items(), start=self.sizes):
                if name in sample.values:
                    row[column] = _told(sample.values[name], words)
        return found


def _numbered(answers: Iterable[Value]) -> Mapping[Value, int]:
    words = sorted((answer for answer in answers if isinstance(answer, str | tuple)), key=repr)
    return {word: number for number, word in enumerate(words)}


def _told(value: Value, words: Mapping[Value, int]) -> float:
    return float(words.get(value, -1)) if isinstance(value, str | tuple) else _magnitude(value)


def _magnitude(number: int) -> float:
    return math.copysign(math.log2(1 + abs(number)), number)
