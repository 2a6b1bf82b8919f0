"""Tuning a model: its tasks, a tuner for them, and what a compilation takes from the records."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from compiler_service.compiler.codegen.toolchain.host import host_target
from compiler_service.compiler.program.kernels import TUNED, BuiltKernel, Kernel, ScheduleSource
from compiler_service.compiler.progress import Progress
from compiler_service.compiler.tensor_expr.kernel.group import KernelDefinition
from compiler_service.compiler.tune.measuring.local import LocalMeasurer
from compiler_service.compiler.tune.measuring.trial import Measurer
from compiler_service.compiler.tune.records.book import RecordBook, schedule_of
from compiler_service.compiler.tune.records.record import kernel_digest
from compiler_service.compiler.tune.remembering import Remembering
from compiler_service.compiler.tune.tasks import tasks_of
from compiler_service.compiler.tune.trying import Trials
from compiler_service.compiler.tune.tuner import TrialLog, Tuner, TuningEffort
from compiler_service.compiler.version import compiler_version
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.machine.target import Target


def tuned_schedules(book: RecordBook) -> ScheduleSource:
    """What a compilation takes from records: the fastest that was confirmed for the very kernel."""
    return lambda kernel, methods: schedule_of(book.best(kernel_digest(kernel.key), methods))


def describe_tuned(built: Sequence[BuiltKernel], book: RecordBook, methods: Collection[str]) -> list[dict[str, Any]]:
    """What the report says of kernels that were built with the schedule of a record: how long it and the default one took, in seconds,
    measured in turns, each with half the distance between the quartiles."""
    taken = ((b, book.best(kernel_digest(b.kernel.key), methods)) for b in built if b.rule == TUNED)
    return [
        {
            "kernel": b.kernel.name,
            "rule": record.rule,
            "values": dict(record.values),
            "seconds": record.seconds,
            "spread": record.spread,
            "default_seconds": record.default_seconds,
            "default_spread": record.default_spread,
        }
        for b, record in taken
        if record is not None
    ]


def require_measurable(target: Target) -> None:
    """Raises IngotError INVALID_ARGUMENT when ``target`` is not this machine."""
    host = host_target()
    if target.triple != host.triple or not target.required_features <= host.required_features:
        raise IngotError(
            ErrorCode.INVALID_ARGUMENT,
            "tuning measures on the machine that compiles, which cannot run code for the target",
            field="tune",
            expected=f"a target that {host.cpu} can run",
            received=str(target),
            remedy="Tune on a machine of the target's kind, with --device, or compile without tuning.",
        )


@dataclass(frozen=True)
class TuningRun:
    """How a model is tuned.

    Attributes:
        log: where trials are written down.
        measurer: the machine of the target; None: this one.
    """

    target: Target
    effort: TuningEffort
    log: TrialLog
    progress: Progress
    measurer: Measurer | None = None

    def tune(
        self,
        kernels: Sequence[Kernel],
        launches: Sequence[KernelDefinition],
        book: RecordBook,
        methods: Collection[str],
    ) -> tuple[str, ...]:
        """Measure schedules of ``kernels``, which ``launches`` run; the digests of their workloads.

        Args:
            book: what is known already.
            methods: those that round more than plain sums and that may be used.

        Raises:
            IngotError: DEVICE_TIMEOUT, the machine that measures is lost.
        """
        tasks = tasks_of(kernels, launches, self.target, methods)
        measurer = self.measurer or LocalMeasurer()
        remembering = Remembering(str(self.target), measurer.machine, compiler_version(), tuple(sorted(methods)))
        try:
            with Trials([task.problem for task in tasks], self.target, measurer) as trials:
                Tuner(trials, book, self.log, remembering, self.effort, self.progress).run(tasks)
        finally:
            if self.measurer is None:
                measurer.close()
        return tuple(task.workload.digest for task in tasks)
