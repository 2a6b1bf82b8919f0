"""What is said of a tuner's work while it goes on: one line a step, which people read and which a display takes apart again."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self

_LINE = re.compile(
    r"\[(?P<number>\d+)/(?P<tasks>\d+)\] (?P<label>.*): (?P<share>[\d.]+) % of the time, (?P<trials>\d+) trials, "
    r"(?P<best>[\d.e+-]+) ms of (?P<default>[\d.e+-]+) ms"
)


@dataclass(frozen=True)
class TaskProgress:
    """How far one task is.

    Attributes:
        number: of the task, from 1, the one that takes the most time first; ``tasks`` there are.
        share: of the model's time that its default schedule takes, 0 to 1.
        trials: measured so far, those of records included.
        best, default: seconds of one run with the best schedule so far, and with the default one.
    """

    number: int
    tasks: int
    label: str
    share: float
    trials: int
    best: float
    default: float

    def __str__(self) -> str:
        return (
            f"[{self.number}/{self.tasks}] {self.label}: {self.share * 100:.1f} % of the time, {self.trials} trials, "
            f"{self.best * 1e3:.4g} ms of {self.default * 1e3:.4g} ms"
        )

    @classmethod
    def parse(cls, line: str) -> Self | None:
        """The inverse of ``str``, up to the digits that it shows; None for other lines."""
        found = _LINE.fullmatch(line)
        if found is None:
            return None
        return cls(
            number=int(found["number"]),
            tasks=int(found["tasks"]),
            label=found["label"],
            share=float(found["share"]) / 100,
            trials=int(found["trials"]),
            best=float(found["best"]) / 1e3,
            default=float(found["default"]) / 1e3,
        )
