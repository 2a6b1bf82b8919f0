"""Find faster schedules for a model on the machine at hand, and keep what was found."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ingot.arguments import require_kind
from ingot.compiling import Progress, Shapes, has_children
from ingot.compiling import compile as compile_here
from ingot.home import RECORDS_FILE, home_directory
from ingot.pairs import Comparison, compare_artifacts
from ingot.record_files import records_file, require_records
from ingot.sources import compiler, model_source
from ingot.target import chosen_target
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.machine.target import Target
from shared_ir.storage.faults import told

if TYPE_CHECKING:
    from compiler_service.compiler.options import CompileOptions
    from compiler_service.compiler.tune.measuring.trial import Measurer
    from compiler_service.compiler.tune.records.book import RecordBook
    from compiler_service.compiler.tune.records.record import TrialRecord

EFFORTS: Mapping[str, float] = {"quick": 60.0, "normal": 300.0, "thorough": 1800.0}
"""Seconds that a tuner may take."""
MOST_SECONDS = 86400.0
"""Of one run."""
_SMALL_GAIN = 0.03
"""Gains of a task that are dropped first where the model as a whole has become slower, as a part of the task's time."""


@dataclass(frozen=True)
class TunedTask:
    """One scheduling problem of a model.

    Attributes:
        label: its operators.
        default_seconds, seconds: of one run with the default schedule, and with the one that is taken.
        rule: that gave the one that is taken.
        values: what of it differs from the model of the target, by the names of the knobs.
    """

    label: str
    default_seconds: float
    seconds: float
    rule: str
    values: Mapping[str, Any]


@dataclass(frozen=True)
class TuningResult:
    """What tuning a model has come to.

    Attributes:
        tasks: those that were measured, the one that takes longest first.
        model: None where it cannot be run here.
        dropped: gains of single tasks that were not kept, since the model as a whole was no faster with them.
        left: tasks that nothing was tried for: the time was over, or they cannot be measured here. The next run begins with them.
        workloads: digests of all that the model computes and that schedules could be tried for.
        methods: which rounding more than plain sums might be used. With others the same workload is another task.
        settled: tasks that were left for good meanwhile; no earlier run has tuned them.
    """

    tasks: tuple[TunedTask, ...]
    trials: int
    seconds: float
    records: Path
    model: Comparison | None = None
    dropped: int = 0
    left: int = 0
    workloads: tuple[str, ...] = ()
    methods: tuple[str, ...] = ()
    settled: int = 0


def tune(
    model: Any,
    target: str | Target = "host",
    *,
    seconds: float | str = "normal",
    records: str | Path | None = None,
    again: bool = False,
    shapes: Shapes | None = None,
    progress: Progress | None = None,
    in_process: bool = False,
    measurer: Measurer | None = None,
    **options: Any,
) -> TuningResult:
    """Measure schedules of a model's kernels, and write down which are faster than the default ones. :func:`ingot.compile` takes them
    from the same file (``records=``). A model is never made slower: each gain is measured in turns with the default schedule, twice, and
    so is the model as a whole in the end.

    Args:
        model: as :func:`ingot.compile` takes it, but for torch modules.
        target: this machine; another one with ``measurer``.
        seconds: for measuring, or ``quick`` (60), ``normal`` (300), ``thorough`` (1800); reading the model before, and compiling and
            running it with what was found after, come on top.
        records: the file that is read and added to, by default ``records.jsonl`` in the home of the installation. A run that was killed
            goes on where it was; several runs share one file.
        again: also take up tasks that an earlier run has settled.
        shapes: dims of inputs to pin or to name. Extents that stay open are measured at 64, the first one of an input at 1.
        progress: told of every step, as :func:`ingot.compile` tells it.
        in_process: read files and bytes in this process too: for models of one's own. Always so with ``measurer``.
        measurer: runs trials on another machine.
        options: the other fields of :class:`compiler_service.compiler.options.CompileOptions`.

    Raises:
        IngotError: whatever keeps the model from being compiled; INVALID_ARGUMENT, the target is not this machine, or the effort is none;
            DEVICE_TIMEOUT, the other machine is lost: what was learned is in the file.
    """
    require_kind(records, (str, Path, type(None)), "records", "the path of a file")
    path = records_file(Path(records) if records is not None else home_directory() / RECORDS_FILE)
    run = _Run(model, chosen_target(target), _seconds(seconds), path, again, progress or _silent, in_process, measurer)
    return run.tune({"shapes": {} if shapes is None else shapes, **options})


@dataclass(frozen=True)
class _Run:
    model: Any
    target: Target
    seconds: float
    records: Path
    again: bool
    progress: Progress
    in_process: bool
    measurer: Measurer | None

    def tune(self, options: dict[str, Any]) -> TuningResult:
        began = time.monotonic()
        with compiler():
            from compiler_service.compiler.backends.table import backend_of
            from compiler_service.compiler.options import CompileOptions
            from compiler_service.compiler.pipeline import allowed_methods
        with told("the tuning records cannot be written", self.records):
            self.records.parent.mkdir(parents=True, exist_ok=True)
            self.records.touch()
        require_records(self.records)
        known = frozenset(self._lines().split(b"\n"))
        chosen = CompileOptions.from_dict({**options, "tune": max(1, round(self.seconds))})
        workloads, methods = self._measure(chosen), allowed_methods(chosen, backend_of(self.target))
        found = TuningResult(
            (), 0, 0.0, self.records, workloads=tuple(sorted(workloads)), methods=tuple(sorted(methods))
        )
        result = self._counted(found, known)
        if self.measurer is None and result.tasks:
            result = self._compared(result, options)
        return replace(result, seconds=time.monotonic() - began)

    def _counted(self, found: TuningResult, known: Collection[bytes]) -> TuningResult:
        """With its tasks, and with what was added to the ``known`` lines of the file meanwhile, by whoever shares it."""
        lines = set(self._lines().split(b"\n")) - set(known)
        added = [r for r in self._book(b"\n".join(lines)).records() if is_about(r, found)]
        trials = sum(not r.confirmed and not r.settled for r in added)
        settled = len({r.workload for r in added if r.settled})
        tasks = _tasks(self._read(found))
        return replace(found, tasks=tasks, trials=trials, settled=settled, left=len(found.workloads) - len(tasks))

    def _measure(self, options: CompileOptions) -> Collection[str]:
        """The digests of the workloads of the model."""
        source = model_source(self.model, None)
        own = hasattr(self.model, "SerializeToString") or hasattr(self.model, "_compiler_source")
        if has_children() and not self.in_process and not own and self.measurer is None:
            with compiler():
                from compiler_service.stages.local import tune_in_child

            return tune_in_child(source, self.target, options, self.records, self.progress, again=self.again)
        with compiler():
            from compiler_service.compiler.pipeline import tune_model

        workloads = list[str]()
        tune_model(
            source,
            self.target,
            options,
            self.progress,
            journal=self.records,  # what it holds is known too
            again=self.again,
            measurer=self.measurer,
            workloads=workloads,
        )
        return frozenset(workloads)

    def _compared(self, result: TuningResult, options: dict[str, Any]) -> TuningResult:
        """The model as a whole, and without the gains that it has none of.

        Gains that were measured kernel by kernel may be lost where kernels share caches: smaller ones first are given up.
        """
        gained = [t for t in result.tasks if t.seconds < t.default_seconds]
        if not gained:
            return result
        plain = self._compiled(b"", options)
        dropped = 0
        for least in (0.0, _SMALL_GAIN, 1.0):
            dropped += self._drop(least, result)
            tuned = self._compiled(self._lines(), options)
            comparison = compare_artifacts(plain, tuned)
            if comparison is None or comparison.tuned <= comparison.default:
                return replace(result, model=comparison, dropped=dropped, tasks=_tasks(self._read(result)))
        return replace(result, dropped=dropped, tasks=_tasks(self._read(result)))

    def _compiled(self, records: bytes, options: dict[str, Any]) -> Any:
        return compile_here(self.model, self.target, records=records, in_process=self.in_process, **options)

    def _drop(self, least: float, result: TuningResult) -> int:
        """Give up the gains of tasks of the model that are smaller than ``least``; how many there were."""
        with compiler():
            from compiler_service.compiler.tune.records.journal import Journal
            from compiler_service.compiler.tune.records.record import time_after

        book = self._book(self._lines())
        found = [r for r in self._read(result) if r.confirmed and 1 - r.share < least]
        Journal(self.records).append(
            [replace(r, confirmed=False, settled=True, time=time_after(book.latest(r.workload))) for r in found]
        )
        return len(found)

    def _read(self, result: TuningResult) -> Sequence[TrialRecord]:
        """What a compilation takes of each task of the model that was settled, or what it was settled with where that is the default
        schedule: for the target, as this version of the compiler makes it."""
        book = self._book(self._lines())
        settled = {record.workload: record for record in book.settled() if is_about(record, result)}
        return [book.best(workload, result.methods) or record for workload, record in settled.items()]

    def _lines(self) -> bytes:
        """None where somebody has removed the file meanwhile."""
        with told("the tuning records cannot be read", self.records):
            return self.records.read_bytes() if self.records.exists() else b""

    def _book(self, lines: bytes) -> RecordBook:
        with compiler():
            from compiler_service.compiler.tune.records.book import RecordBook
            from compiler_service.compiler.tune.records.lines import read_lines

        return RecordBook(read_lines(lines)[0], self.target)


def is_about(record: TrialRecord, result: TuningResult) -> bool:
    """Whether a record is about a task of the model: a file has those of others too, and of the same model with other methods."""
    return record.workload in result.workloads and frozenset(record.methods) == frozenset(result.methods)


def _seconds(asked: float | str) -> float:
    seconds = EFFORTS.get(asked) if isinstance(asked, str) else asked
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if seconds is None or not is_number or not 0 < seconds <= MOST_SECONDS:
        raise IngotError(
            ErrorCode.INVALID_ARGUMENT,
            "no such effort",
            field="seconds",
            expected=f"{', '.join(EFFORTS)}, or seconds up to {MOST_SECONDS:g}",
            received=repr(asked)[:80],
        )
    return float(seconds)


def _silent(stage: str, done: int, total: int, message: str) -> None:
    """Reports nothing."""


def _tasks(records: Sequence[TrialRecord]) -> tuple[TunedTask, ...]:
    return tuple(
        TunedTask(r.label, r.default_seconds, r.seconds if r.confirmed else r.default_seconds, r.rule, dict(r.values))
        for r in sorted(records, key=lambda r: -r.default_seconds)
    )
