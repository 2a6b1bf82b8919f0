"""Tuning a model: measure schedules of its heavy kernels on this machine, and use the records in the next compilation."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from compiler_service.compiler.backends.table import backend_of
from compiler_service.compiler.codegen.emit.kernel import scratch_size
from compiler_service.compiler.codegen.toolchain.measure import Trial, measure_kernel
from compiler_service.compiler.loop_ir.ir import Function
from compiler_service.compiler.program.kernels import Kernel
from compiler_service.compiler.progress import Progress
from compiler_service.compiler.schedule.default import candidate_schedules, methods_of
from compiler_service.compiler.schedule.language.schedule import Schedule
from compiler_service.compiler.tensor_expr.kernel.group import KernelDefinition
from compiler_service.compiler.tune.records import Record, kernel_digest
from compiler_service.compiler.version import compiler_version
from shared_ir.errors import IngotError
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


@dataclass(frozen=True)
class CandidateTiming:
    """Median seconds of one run, and the spread of the rounds."""

    seconds: float
    spread: float


Measure = Callable[[Schedule], CandidateTiming]
"""Builds the kernel with a schedule and times it in a process of its own; IngotError when that fails."""


@dataclass(frozen=True)
class Best:
    schedule: Schedule
    timing: CandidateTiming
    default: CandidateTiming
    candidates: int


_MOST_PART_OF_DEFAULT_TIME = 0.98
"""A schedule must beat the default by two percent, measured twice: noise does not replace the model's choice."""


def _search(candidates: Sequence[Schedule], measure: Measure) -> Best | None:
    """The fastest of ``candidates``, whose first is the default; None when the default cannot be measured."""
    try:
        default = measure(candidates[0])
    except IngotError:
        return None
    best, timing, tried = candidates[0], default, 1
    for schedule in candidates[1:]:
        try:
            found = measure(schedule)
        except IngotError:
            continue  # a schedule that does not build or crashes is no candidate
        tried += 1
        if found.seconds < timing.seconds:
            best, timing = schedule, found
    if best is not candidates[0]:
        again, baseline = measure(best), measure(candidates[0])
        default = min(default, baseline, key=lambda t: t.seconds)
        timing = max(timing, again, key=lambda t: t.seconds)
        if timing.seconds > default.seconds * _MOST_PART_OF_DEFAULT_TIME:
            best, timing = candidates[0], default
    return Best(best, timing, default, tried)


class TuningRecords:
    """Tuned schedules by kernel, for one target."""

    def __init__(self, records: Sequence[Record], target: Target) -> None:
        self._records: dict[str, list[Record]] = {}
        for record in sorted((r for r in records if r.target == str(target)), key=lambda r: r.seconds):
            self._records.setdefault(record.kernel, []).append(record)

    def __call__(self, kernel: Kernel, methods: Collection[str]) -> Schedule | None:
        """The fastest schedule that takes none but these ``methods``."""
        found = (r.schedule for r in self._records.get(kernel_digest(kernel.key), ()))
        return next((schedule for schedule in found if methods_of(schedule) <= set(methods)), None)


def tune_kernels(
    kernels: Sequence[Kernel],
    launches: Sequence[KernelDefinition],
    known: TuningRecords,
    target: Target,
    trials: int,
    progress: Progress,
    methods: Collection[str] = (),
) -> tuple[Record, ...]:
    """Records of the heavy kernels that ``known`` has none for that may be used, heaviest first.

    Args:
        launches: every launch of the model, to tell which kernels are heavy.
        trials: schedules to measure per kernel, the default included.
        methods: those that round more than plain sums and that may be used.
    """
    heavy = [k for k in _by_weight(kernels, launches) if known(k, methods) is None]
    found: list[Record] = []
    for number, kernel in enumerate(heavy):
        progress("tune", number, len(heavy), kernel.definition.label)
        record = _tune(kernel, target, trials, methods)
        if record is not None:
            found.append(record)
    progress("tune", len(heavy), len(heavy), "")
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


def _tune(kernel: Kernel, target: Target, trials: int, methods: Collection[str]) -> Record | None:
    found = candidate_schedules(kernel.definition.output, kernel.constants, target, methods)
    candidates = found[:trials]
    if len(candidates) < 2:
        return None
    best = _search(candidates, lambda schedule: _measure(kernel, schedule, target))
    if best is None:
        return None
    return Record(
        kernel=kernel_digest(kernel.key),
        target=str(target),
        schedule=best.schedule,
        seconds=best.timing.seconds,
        default_seconds=best.default.seconds,
        spread=best.timing.spread,
        candidates=best.candidates,
        compiler_version=compiler_version(),
    )


def _measure(kernel: Kernel, schedule: Schedule, target: Target) -> CandidateTiming:
    backend = backend_of(target)
    function = backend.loop_pipeline.run(kernel.lower(schedule, target), verifies=True)
    with backend.objects(target, workers=0) as compiler:
        data = compiler.submit(kernel.name, backend.kernel(function, target, kernel.name)).result()
    sizes = _sizes(kernel.definition, function)
    seconds, spread = measure_kernel(
        Trial(
            symbol=kernel.name,
            data=data,
            sizes=[evaluate(product(b.shape), sizes) * b.dtype.itemsize for b in function.buffers],
            symbols=[sizes[s.name] for s in function.symbols],
            tasks=evaluate(function.tasks, sizes),
            scratch=scratch_size(function),
        )
    )
    return CandidateTiming(seconds, spread)


def _sizes(definition: KernelDefinition, function: Function) -> Mapping[str, int]:
    """Values for the parameters: one row of the batch, and a guess for everything else that is not known."""
    first = {str(a.shape[0]) for a in definition.arguments if a.rank > 1}
    return {s.name: _MEASURED_BATCH if s.name in first else _MEASURED_EXTENT for s in function.symbols}
