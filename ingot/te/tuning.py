"""Schedules that tune themselves: by a template of yours, which says what is open, or by the generator, which needs none.

::

    @te.template
    def product(cfg, A, B):
        C = te.sum((m, n), k, lambda i, j, q: A[i, q] * B[q, j], name="C")
        s = te.schedule(C)
        rows, _ = s[C].split("i", cfg.split("rows", m, default=8))
        ...
        return s

    tuned = te.tune(product, [A, B], seconds=60)     # or te.tune(C, [A, B]): the generator
    print(tuned)
    f = tuned.build()
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np

from compiler_service.compiler.schedule.language.knobs import Values
from compiler_service.compiler.tune.bounded import BoundedTemplate
from compiler_service.compiler.tune.measuring.local import LocalMeasurer
from compiler_service.compiler.tune.measuring.trial import Measurer, Outcome, OutcomeKind
from compiler_service.compiler.tune.records.book import RecordBook
from compiler_service.compiler.tune.records.journal import Journal
from compiler_service.compiler.tune.records.record import TrialRecord
from compiler_service.compiler.tune.remembering import Remembering
from compiler_service.compiler.tune.search.point import Point
from compiler_service.compiler.tune.tasks import TuningTask
from compiler_service.compiler.tune.trying import Trials, Tried
from compiler_service.compiler.tune.tuner import Tuner, TuningEffort
from compiler_service.compiler.tune.tuning import require_measurable
from compiler_service.compiler.tune.watching import TaskProgress
from compiler_service.compiler.version import compiler_version
from ingot.arguments import require_kind
from ingot.artifact import chosen_target
from ingot.functions import CompiledFunction
from ingot.record_files import records_file
from ingot.te.building import build
from ingot.te.problems import TunedSpace
from ingot.te.scheduling import Schedule
from ingot.te.templates import Template
from ingot.te.tensors import Tensor
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.machine.target import Target


@dataclass(frozen=True)
class Tuned:
    """The result of :func:`tune`.

    Attributes:
        schedule: the best one; the default where nothing was faster, beyond the spread of both, in two runs side by side.
        values: its answers that are not the default, by the names of the knobs.
        seconds, spread: of a call on one thread, median and half the distance between the quartiles.
        default_seconds, default_spread: of the default schedule, measured side by side with it.
        trials: candidates that were tried in this run; ``failed`` of them were none: refused, wrong, crashed or late.
        history: seconds since the start, and of the best so far, each time that there was a better one.
    """

    schedule: Schedule
    values: Values
    seconds: float
    spread: float
    default_seconds: float
    default_spread: float
    trials: int
    failed: int
    history: tuple[tuple[float, float], ...]
    args: tuple[Tensor, ...]
    target: Target

    def build(self, name: str = "main", threads: int = 1) -> CompiledFunction:
        """The best schedule, compiled as by :func:`te.build`."""
        return build(self.schedule, self.args, self.target, name, threads)

    def __str__(self) -> str:
        gain = self.default_seconds / self.seconds
        return (
            f"{self.seconds * 1e6:.1f} us +- {self.spread * 1e6:.1f}, default {self.default_seconds * 1e6:.1f} us "
            f"+- {self.default_spread * 1e6:.1f}: {gain:.2f}x after {self.trials} trials ({self.failed} failed)"
        )


def tune(
    what: Template | Tensor | Sequence[Tensor],
    args: Sequence[Any],
    target: str | Target = "host",
    seconds: float = 60.0,
    *,
    records: str | Path | None = None,
    again: bool = False,
    symbols: Mapping[str, int] | None = None,
    arrays: Sequence[np.ndarray] | None = None,
    measurer: Measurer | None = None,
    seed: int = 0,
    progress: Callable[[int, float], None] = lambda trials, best: None,
) -> Tuned:
    """Search the schedules of a template, or of the generator, for the fastest one on this machine.

    Candidates run in a process of their own on another core, and compute the same as the default or are no candidates. A call with
    one thread is measured, with its data where the last call left it in the caches.

    Args:
        what: a template; or the tensors to compute, for the generator, which uses none of the compiler's rules.
        args: what the template is called with; the placeholders among them are the arguments of the function.
        target: as :func:`te.build` takes it; the measurer must be able to run it.
        seconds: that it may take; it is over before that where every candidate was tried.
        records: a file of trials, JSON lines (docs/tuning.md): what is in it is not measured again, and each trial is added as it ends.
            What a run has tuned, the next one takes from there without a trial.
        again: go on with what ``records`` have tuned already, and measure what was not tried.
        symbols: values of the symbols of extents to measure with, at least 1; 64 for others. What ``records`` have of other values is
            where the search begins.
        arrays: numbers to measure with, one array for each placeholder of ``args``; by default floats between -1 and 1, bytes of any
            value, small whole numbers for wider integers, and 0 for those that say where something is read.
        measurer: what runs candidates; this machine by default.
        seed: of what is drawn in the search.
        progress: is called now and then, with the number of trials and the least seconds so far.

    Raises:
        IngotError: INVALID_ARGUMENT, ``what`` is neither, ``seconds`` are no time, ``args`` lack a placeholder that is read, ``arrays``
            or ``symbols`` do not fit, the default schedule does not, its results have no finite number, or this machine cannot run the
            target; DEADLINE_EXCEEDED, the template takes longer than 10 s for its default; COMPILER_FAULT, the default schedule cannot be
            run; INVALID_TARGET; DEVICE_TIMEOUT, the measurer is lost.
    """
    machine = chosen_target(target)
    _require_meant(what, seconds, args, symbols, seed)
    runs = measurer or _this_machine(machine)
    space = TunedSpace.of(what, args, machine, symbols or {}, arrays)
    task = TuningTask(space.problem, seed=seed, is_alone=True)
    log = _Log(None if records is None else Journal(records_file(Path(records))), time.monotonic(), progress)
    book = RecordBook(log.known(), machine)
    remembering = Remembering(str(machine), runs.machine, compiler_version())
    _listen(space, task, book, log, remembering, seconds)
    try:
        with Trials([space.problem], machine, runs) as trials:
            tuner = Tuner(trials, book, log, remembering, TuningEffort(seconds, again), log.hear)
            tuner.run([task])
            if task.default is None and (again or not tuner.is_settled(task)):  # no time, or it could not be run
                task.begin(trials.default(space.problem, seconds), ())
    finally:
        if measurer is None:
            runs.close()
    return _tuned(_end(task, book, log, remembering), log, space, machine)


def _this_machine(target: Target) -> LocalMeasurer:
    require_measurable(target)
    return LocalMeasurer()


def _require_meant(
    what: object, seconds: object, args: object, symbols: Mapping[str, int] | None, seed: object
) -> None:
    require_kind(args, (list, tuple), "args", "a list of what is read")
    require_kind(seed, int, "seed", "a whole number")
    _require_sizes(symbols)
    parts = [what] if isinstance(what, Tensor | Template) else what
    if not isinstance(what, Template) and not (
        isinstance(parts, list | tuple) and all(isinstance(p, Tensor) for p in parts)
    ):
        raise IngotError(
            ErrorCode.INVALID_ARGUMENT,
            "that is nothing to tune",
            field="what",
            expected="a template (@te.template), or the tensors to compute",
            received=repr(what)[:80],
        )
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if not is_number or not 0 <= cast(float, seconds) < math.inf:
        raise IngotError(
            ErrorCode.INVALID_ARGUMENT,
            "that is no time to tune for",
            field="seconds",
            expected="a number of seconds",
            received=repr(seconds)[:80],
        )


def _require_sizes(symbols: Mapping[str, int] | None) -> None:
    require_kind({} if symbols is None else symbols, Mapping, "symbols", "{'n': 128}")
    for name, value in (symbols or {}).items():
        require_kind(value, int, f"symbols[{name!r}]", "a whole number")
        if value < 1:
            raise IngotError(
                ErrorCode.INVALID_ARGUMENT,
                "nothing can be measured with that size",
                field=f"symbols[{name!r}]",
                expected="at least 1",
                received=str(value)[:80],
            )


@dataclass
class _Log:
    """Keeps count of trials, and keeps them in a file where there is one."""

    journal: Journal | None
    began: float
    progress: Callable[[int, float], None]
    made: list[TrialRecord] = field(default_factory=list)
    history: list[tuple[float, float]] = field(default_factory=list)

    def known(self) -> Sequence[TrialRecord]:
        return () if self.journal is None else self.journal.read_new()

    def claim(
        self, workload: str, target: str, candidates: Sequence[str], methods: Sequence[str] = ()
    ) -> Sequence[str]:
        return candidates if self.journal is None else self.journal.claim(workload, target, candidates, methods)

    def give_back(self, workload: str, target: str, candidates: Sequence[str], methods: Sequence[str] = ()) -> None:
        if self.journal is not None:
            self.journal.give_back(workload, target, candidates, methods)

    def append(self, records: Iterable[TrialRecord]) -> None:
        new = list(records)
        self.made += new
        if self.journal is not None:
            self.journal.append(new)

    def hear(self, stage: str, done: int, total: int, line: str) -> None:
        found = TaskProgress.parse(line)
        if found is None:
            return
        if not self.history or found.best < self.history[-1][1]:
            self.history.append((time.monotonic() - self.began, found.best))
        self.progress(found.trials, found.best)

    @property
    def tried(self) -> Sequence[TrialRecord]:
        """Trials of this run, without those that only confirm one or end the task."""
        return [r for r in self.made if not r.confirmed and not r.settled]


def _listen(
    space: TunedSpace, task: TuningTask, book: RecordBook, log: _Log, remembering: Remembering, seconds: float
) -> None:
    """Answers with which a template takes too long are on record, and it is not asked with those that are."""
    make = space.make
    if not isinstance(make, BoundedTemplate):
        return

    def hear(values: Values, error: IngotError) -> None:
        tried = Tried(Point.of(values), None, Outcome(OutcomeKind.LATE, reason=str(error)))
        log.append([remembering.record(task, tried)])

    for record in book.of(task.workload.digest):
        if record.outcome is OutcomeKind.LATE and not record.schedules and record.compiler == remembering.compiler:
            make.know(record.values)
    make.hear, make.until = hear, log.began + seconds


def _end(task: TuningTask, book: RecordBook, log: _Log, remembering: Remembering) -> TrialRecord:
    """What tuning ended with, in this run or in the one before."""
    settled = [r for r in log.made if r.settled]
    if settled:
        return settled[-1]
    known = _answer(task, book)
    return remembering.settled(task) if task.default is not None or known is None else known


def _answer(task: TuningTask, book: RecordBook) -> TrialRecord | None:
    """What the task was left with; None where it was not."""
    own = (r for r in book.settled() if r.workload == task.workload.digest and not r.methods)
    return book.best(task.workload.digest, ()) or next(own, None)


def _tuned(
    record: TrialRecord,
    log: _Log,
    space: TunedSpace,
    target: Target,
) -> Tuned:
    return Tuned(
        space.schedule(record.values),
        record.values,
        record.seconds,
        record.spread,
        record.default_seconds,
        record.default_spread,
        len(log.tried),
        sum(r.outcome is not OutcomeKind.MEASURED for r in log.tried),
        tuple(log.history),
        space.given,
        target,
    )
