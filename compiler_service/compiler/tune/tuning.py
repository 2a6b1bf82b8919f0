"""Tuning a model: measure schedules of its heavy kernels on this machine, and use the records in the next compilation."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from compiler_service.compiler.backends.table import backend_of
from compiler_service.compiler.codegen.emit.kernel import scratch_size
from compiler_service.compiler.codegen.toolchain.host import host_target, machine_name
from compiler_service.compiler.codegen.toolchain.measure import Trial, measure_kernel
from compiler_service.compiler.loop_ir.ir import Function
from compiler_service.compiler.program.kernels import Kernel, ScheduleSource
from compiler_service.compiler.progress import Progress
from compiler_service.compiler.schedule.default import candidate_schedules
from compiler_service.compiler.schedule.language.schedule import Schedule
from compiler_service.compiler.tensor_expr.kernel.group import KernelDefinition
from compiler_service.compiler.tune.measuring.trial import OutcomeKind
from compiler_service.compiler.tune.records.book import RecordBook, schedule_of
from compiler_service.compiler.tune.records.journal import Journal
from compiler_service.compiler.tune.records.record import TrialRecord, Workload, kernel_digest
from compiler_service.compiler.version import compiler_version
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.expr.dim import evaluate, evaluate_alike, product
from shared_ir.machine.target import Target

_MEASURED_BATCH = 1
"""Elements along a symbolic first axis of an input, while a kernel is measured."""
_MEASURED_EXTENT = 64
"""Elements along any other symbolic axis, while a kernel is measured."""
_MOST_FLOPS = 2**63 - 1
"""What too many to count are taken for."""
_FEWEST_FLOPS = 2e6
"""Lighter kernels are not worth a measurement."""
_RULE = "candidates"
"""What the schedules of :func:`candidate_schedules` are recorded as."""
_OUTCOMES = {ErrorCode.DEADLINE_EXCEEDED: OutcomeKind.LATE, ErrorCode.COMPILER_FAULT: OutcomeKind.CRASHED}

Keep = Callable[[TrialRecord], None]


def tuned_schedules(book: RecordBook) -> ScheduleSource:
    """What a compilation takes from records: the fastest that was confirmed for the very kernel."""
    return lambda kernel, methods: schedule_of(book.best(kernel_digest(kernel.key), methods))


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
            remedy="Tune on a machine of the target's kind, or compile without tuning.",
        )


def tune_kernels(
    kernels: Sequence[Kernel],
    launches: Sequence[KernelDefinition],
    book: RecordBook,
    target: Target,
    seconds: float,
    progress: Progress,
    methods: Collection[str],
    journal: Path | None,
) -> tuple[TrialRecord, ...]:
    """Measure schedules of the heavy kernels that ``book`` does not know, heaviest first; each has an equal part of the time that is left.

    Args:
        launches: every launch of the model, to tell which kernels are heavy.
        methods: those that round more than plain sums and that may be used.
        journal: file that each trial is added to as it ends; None for none.
    """
    heavy, began = _by_weight(kernels, launches), time.monotonic()
    kept, found = None if journal is None else Journal(journal), list[TrialRecord]()

    def keep(record: TrialRecord) -> None:
        found.append(record)
        if kept is not None:
            kept.append([record])

    for number, kernel in enumerate(heavy):
        left = began + seconds - time.monotonic()
        until = time.monotonic() + left / (len(heavy) - number)
        if left <= 0:
            break
        task = _KernelTask(kernel, target, tuple(sorted(methods)), keep)
        for trials, best in task.run(book, until):
            spent = min(int(time.monotonic() - began), int(seconds))
            name = f"{kernel.definition.label} ({number + 1} of {len(heavy)})"
            progress("tune", spent, int(seconds), f"{name}: {trials} trials, best {best * 1e6:.1f} us")
    progress("tune", int(seconds), int(seconds), "")
    return tuple(found)


def _by_weight(kernels: Sequence[Kernel], launches: Sequence[KernelDefinition]) -> list[Kernel]:
    weight: dict[str, float] = {}
    for launch in launches:
        weight[launch.text] = weight.get(launch.text, 0.0) + _flops(launch)
    heavy = [k for k in kernels if weight.get(k.definition.text, 0.0) >= _FEWEST_FLOPS]
    return sorted(heavy, key=lambda k: -weight[k.definition.text])


def _flops(definition: KernelDefinition) -> int:
    found = evaluate_alike(definition.flops, _MEASURED_EXTENT)
    return _MOST_FLOPS if found is None else found


@dataclass(frozen=True)
class _KernelTask:
    kernel: Kernel
    target: Target
    methods: tuple[str, ...]
    keep: Keep

    def run(self, book: RecordBook, until: float) -> Iterator[tuple[int, float]]:
        """Measures; how many trials there were so far, and the seconds of the best."""
        candidates = candidate_schedules(
            self.kernel.definition.output, self.kernel.constants, self.target, self.methods
        )
        tried = book.tried(kernel_digest(self.kernel.key))
        left = [s for s in candidates[1:] if replace(self._record, schedules=(s,)).candidate not in tried]
        default = self._trial(candidates[0]) if left else None
        if default is None or default.outcome is not OutcomeKind.MEASURED:
            return
        best = default
        for number, schedule in enumerate(left, start=1):
            if time.monotonic() > until:
                break
            found = replace(self._trial(schedule), default_seconds=default.seconds, default_spread=default.spread)
            self.keep(found)
            best = found if found.outcome is OutcomeKind.MEASURED and found.seconds < best.seconds else best
            yield number, best.seconds
        if best is not default and _is_faster(best):
            baseline, again = self._trial(candidates[0]), self._trial(best.schedules[0])
            again = replace(again, default_seconds=baseline.seconds, default_spread=baseline.spread)
            self.keep(replace(again, confirmed=_is_faster(again)))

    @property
    def _record(self) -> TrialRecord:
        about = Workload.of(self.kernel.key, self.kernel.definition.label)
        return TrialRecord(
            workload=about.digest,
            family=about.family,
            sizes=about.sizes,
            label=about.label,
            target=str(self.target),
            machine=machine_name(),
            compiler=compiler_version(),
            methods=self.methods,
            rule=_RULE,
            values={},
            schedules=(),
            outcome=OutcomeKind.REFUSED,
            time=time.time(),
        )

    def _trial(self, schedule: Schedule) -> TrialRecord:
        record = replace(self._record, schedules=(schedule,))
        try:
            seconds, spread = _measure(self.kernel, schedule, self.target)
        except IngotError as error:
            return replace(record, outcome=_OUTCOMES.get(error.code, OutcomeKind.REFUSED))
        return replace(record, outcome=OutcomeKind.MEASURED, seconds=seconds, spread=spread)


def _is_faster(record: TrialRecord) -> bool:
    """By more than both spreads."""
    return record.share < 1 and record.seconds + record.spread < record.default_seconds - record.default_spread


def _measure(kernel: Kernel, schedule: Schedule, target: Target) -> tuple[float, float]:
    backend = backend_of(target)
    function = backend.loop_pipeline.run(kernel.lower(schedule, target), verifies=True)
    with backend.objects(target, workers=0) as compiler:
        data = compiler.submit(kernel.name, backend.kernel(function, target, kernel.name)).result()
    sizes = _sizes(kernel.definition, function)
    return measure_kernel(
        Trial(
            symbol=kernel.name,
            data=data,
            sizes=[evaluate(product(b.shape), sizes) * b.dtype.itemsize for b in function.buffers],
            symbols=[sizes[s.name] for s in function.symbols],
            tasks=evaluate(function.tasks, sizes),
            scratch=scratch_size(function),
        )
    )


def _sizes(definition: KernelDefinition, function: Function) -> Mapping[str, int]:
    """Values for the parameters: one row of the batch, and a guess for everything else that is not known."""
    first = {str(a.shape[0]) for a in definition.arguments if a.rank > 1}
    return {s.name: _MEASURED_BATCH if s.name in first else _MEASURED_EXTENT for s in function.symbols}
