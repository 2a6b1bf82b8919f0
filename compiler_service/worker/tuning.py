"""The stage that measures: its time, what it has learned, and whom it gives way to."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from compiler_service.jobs.persistence.store import JobStore
from compiler_service.jobs.records import JobRecord, JobStage
from compiler_service.jobs.waiting.dispatch import Dispatch
from compiler_service.jobs.waiting.line import LINES
from compiler_service.stages.keeping import keeping
from compiler_service.stages.process import JOURNAL, RECORDS
from compiler_service.store.tuning_store import TuningStore
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.machine.machine import Machine
from shared_ir.machine.target import target_from_dict

_MOST_PART = 0.9
"""Of the time that a stage may take; the rest is for importing the model, and for the trial under way."""
_KEEP_SECONDS = 10.0
"""Between two times that what a stage has measured is put into the store: a worker that dies takes no more along. Merging one of
500 trials takes 0.1 s of a core."""
_LOOK_SECONDS = 0.5
"""Between two looks at the lines. What stands in one at two looks is not being taken by a worker that had room."""


@dataclass
class GivingWay:
    """Tells a tuning stage to end, and to go on later, when other stages wait that its worker would do: what it has learned is kept, so
    that a quick compilation need not wait for half an hour of measuring.

    Attributes:
        lines: what the worker takes beside ``tune``; one that takes nothing else gives way to nobody.
    """

    dispatch: Dispatch
    lines: Collection[str]
    machine: Machine | None
    _looked: float = field(default=0.0, init=False)
    _stood: bool = field(default=False, init=False)

    @classmethod
    def of_worker(cls, dispatch: Dispatch, lines: Collection[str], machine: Machine | None) -> GivingWay:
        return cls(dispatch, frozenset(lines) - {LINES[JobStage.TUNE]}, machine)

    def __call__(self) -> bool:
        """Whether somebody waits. Raises RedisError."""
        now = time.monotonic()
        if not self.lines or now - self._looked < _LOOK_SECONDS:
            return False
        before, self._looked = self._stood, now
        self._stood = any(self.dispatch.stands(line, self.machine) for line in self.lines)
        return before and self._stood


def seconds_left(store: JobStore, record: JobRecord, number: int, most: float) -> int:
    """Seconds of tuning that target ``number`` of a job has left, of those that it asks for: it may have given way before.

    Args:
        most: that a stage may take.

    Raises:
        IngotError: RESOURCE_LIMIT, the job asks for more than a stage may take.
    """
    asked = int(record.options.get("tune") or 0)
    if asked > most * _MOST_PART:
        raise IngotError(
            ErrorCode.RESOURCE_LIMIT,
            "the job asks for more time for tuning than a stage may take",
            field="tune",
            expected=f"at most {int(most * _MOST_PART)} seconds",
            received=f"{asked} seconds",
            remedy="Tune for a shorter time, and again: each job begins where the last one ended.",
        )
    return max(0, asked - int(store.count_tuned(record.id, number, 0.0)))


@contextmanager
def learning(
    tuning: TuningStore, store: JobStore, record: JobRecord, number: int, work: Path
) -> Iterator[Callable[[], None]]:
    """Around the process that tunes a target in the folder ``work``: it has the records that there are, and what it adds to its journal is
    put into the store, however it ends, and while it works by the function that this yields. Its time is counted."""
    spec, began = target_from_dict(record.targets[number].spec), time.monotonic()
    (work / RECORDS).write_bytes(tuning.load(record.source, spec))
    try:
        with keeping(work / JOURNAL, partial(tuning.add, record.source, spec), _KEEP_SECONDS) as trials:
            yield trials.when_due
    finally:
        store.count_tuned(record.id, number, time.monotonic() - began)
