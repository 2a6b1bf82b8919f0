"""The whole compiler, top to bottom: an ONNX model in, an artifact out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from compiler_service.compiler.backends.face import Backend
from compiler_service.compiler.backends.table import backend_of
from compiler_service.compiler.codegen.emit.kernel import scratch_size
from compiler_service.compiler.describing import describe, describe_code, digest_of
from compiler_service.compiler.fallback import at_a_level_that_works, typed_faults
from compiler_service.compiler.frontend.importing.inference import Inference
from compiler_service.compiler.frontend.load import import_model
from compiler_service.compiler.frontend.reading.source import ModelSource
from compiler_service.compiler.frontend.report import ObstacleReport
from compiler_service.compiler.frontend.report import check_model as report_model
from compiler_service.compiler.graph_passes.memory.plan_memory import plan_memory
from compiler_service.compiler.graph_passes.pipelines import default_pipeline
from compiler_service.compiler.graph_passes.rewriting.instruments import Dump, Time, Verify
from compiler_service.compiler.graph_passes.rewriting.pass_manager import Instrument, ModulePasses, PassContext
from compiler_service.compiler.loop_ir.pipeline import LoopPipeline
from compiler_service.compiler.objects import emit_object
from compiler_service.compiler.options import CompileOptions
from compiler_service.compiler.program.definitions import define_kernels
from compiler_service.compiler.program.kernels import (
    TUNED,
    BuiltKernel,
    Kernel,
    distinct_kernels,
    schedules_for,
    warn_of_record,
    warn_of_schedule,
)
from compiler_service.compiler.program.module_source import ModuleSource
from compiler_service.compiler.program.plan import build_program
from compiler_service.compiler.program.rows import prove_rows
from compiler_service.compiler.program.variants import Variant, import_variants, side_by_side
from compiler_service.compiler.progress import Log, Progress, silent
from compiler_service.compiler.reference.interpret import run_graph
from compiler_service.compiler.reference.verification import (
    PATIENCE_SECONDS,
    Means,
    Oracle,
    require_verified,
    verify,
)
from compiler_service.compiler.schedule.default import METHODS, RULES, ChosenSchedule, RuleRow
from compiler_service.compiler.tensor_expr.registry import OPERATORS, infer_in_model
from compiler_service.compiler.tune.measuring.trial import Measurer
from compiler_service.compiler.tune.records.book import RecordBook, answers
from compiler_service.compiler.tune.records.journal import Journal
from compiler_service.compiler.tune.records.lines import read_lines, write_lines
from compiler_service.compiler.tune.tuner import TuningEffort
from compiler_service.compiler.tune.tuning import TuningRun, describe_tuned, require_measurable, tuned_schedules
from compiler_service.compiler.version import compiler_version
from shared_ir.artifact.value import CompiledArtifact
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.machine.cores import usable_cores
from shared_ir.machine.target import Target
from shared_ir.plan.program import Call, Plan, walk_steps


def compile_model(
    source: ModelSource | ModuleSource,
    target: Target,
    options: CompileOptions | None = None,
    progress: Progress = silent,
    records: bytes = b"",
    workers: int | None = None,
    weights_path: Path | None = None,
    passes: ModulePasses | None = None,
) -> CompiledArtifact:
    """Compile ``source`` for ``target``; at a lower level than asked for where an optimisation is at fault.

    Args:
        records: tuning records (:mod:`compiler_service.compiler.tune.records.lines`); kernels without one take the default schedule.
        workers: child processes that LLVM runs in, by default one per core; 0 runs it in this process.
        weights_path: file to write the weights to, which the artifact then refers to; else a temporary one without a name.
        passes: what graphs go through in place of the pipeline of the level; no other level is tried then.

    Raises:
        IngotError: of the model (blame user) or COMPILER_FAULT.

    Warns:
        OptimisationFaultWarning: an optimisation is at fault; the report says why under ``fallback``.
    """
    asked = options or CompileOptions()
    if passes is not None:
        with typed_faults():
            return compile_as_asked(source, target, asked, progress, records, workers, weights_path, passes)

    def attempt(level: int) -> CompiledArtifact:
        own = asked if level == asked.opt_level else lowered(asked, level, target)
        return compile_as_asked(source, target, own, progress, records, workers, weights_path)

    artifact, (level, fault) = at_a_level_that_works(attempt, asked.opt_level)
    if not fault:
        return artifact
    manifest = describe(artifact.manifest.name, source, target, asked, records)
    return replace(
        artifact, manifest=manifest, report={**artifact.report, "fallback": {"level": level, "fault": fault}}
    )


def lowered(options: CompileOptions, level: int, target: Target) -> CompileOptions:
    """``options`` at a lower level, which has fewer passes to disable."""
    left = {p.name for p in default_pipeline(level, target).passes}
    return replace(options, opt_level=level, disabled_passes=tuple(n for n in options.disabled_passes if n in left))


def compile_as_asked(
    source: ModelSource | ModuleSource,
    target: Target,
    options: CompileOptions,
    progress: Progress,
    records: bytes,
    workers: int | None,
    weights_path: Path | None,
    passes: ModulePasses | None = None,
) -> CompiledArtifact:
    """The whole compiler at the level of ``options``; see :func:`compile_model`."""
    workers = usable_cores() if workers is None else workers
    log, backend = Log.from_environment(progress), backend_of(target)
    backend.require(target)

    with log.stage("import"):
        variants = import_variants(source, options.import_options, inference(), fast=options.fast_ways)
        name = options.name or variants[-1].module.metadata.get("graph") or "model"
        rows = prove_rows(variants)

    with log.stage("passes"):
        variants = side_by_side([optimize(v, target, options, log, passes) for v in variants])
    made = digest_of(variants) if passes is not None and passes.is_own else ""

    with log.stage("kernels"):
        variants = tuple(define_kernels(v) for v in variants)
        kernels, numbers = distinct_kernels((v.definitions, v.constants) for v in variants)
        book = RecordBook(read_lines(answers(records, target))[0], target)

    rules, methods = rules_of(backend), allowed_methods(options, backend)
    ways = [(k, schedules_for(k, target, tuned_schedules(book), methods, rules)) for k in kernels]
    code = generate(
        variants, numbers, ways, CodeSettings(name, target, options, workers, rows.symbol, weights_path), log
    )

    with log.stage("link"):
        library = backend.link(code.objects, target)
        attachments = link_attachments(code.objects, code.plan, code.weights, target, options)

    manifest = describe(name, source, target, options, records, made)
    sizes = {"launches": len(numbers), "library_bytes": len(library), "weights_bytes": code.plan.weights_size}
    facts = {"stages": dict(log.seconds), "codegen": dict(log.parts), **sizes, **describe_code(variants, code.built)}
    facts |= {"batch": asdict(rows), "tuned": describe_tuned(code.built, book, methods)}
    return CompiledArtifact(manifest, code.plan, library, code.weights, facts, attachments)


@dataclass(frozen=True)
class CodeSettings:
    """What code is generated for, and how.

    Attributes:
        workers: child processes that LLVM runs in; 0 runs it in this process.
        batch: see :class:`Plan`.
        weights_path: see :func:`compile_model`.
    """

    name: str
    target: Target
    options: CompileOptions
    workers: int
    batch: str = ""
    weights_path: Path | None = None


@dataclass(frozen=True)
class GeneratedCode:
    """Kernels and entry as objects by name, and what they run on."""

    built: Sequence[BuiltKernel]
    plan: Plan
    weights: memoryview | Path
    objects: Mapping[str, bytes]


def generate(
    variants: Sequence[Variant],
    numbers: Sequence[int],
    kernels: Sequence[tuple[Kernel, Iterable[Callable[[], ChosenSchedule | None]]]],
    settings: CodeSettings,
    log: Log,
) -> GeneratedCode:
    """Schedule, lower and emit ``kernels``, each with ways to come by its schedule, and the plan that launches them."""
    target, denormals = settings.target, settings.options.denormals
    backend = backend_of(target)
    loop_passes = backend.loop_pipeline
    built, pending = list[BuiltKernel](), dict[str, Future[bytes]]()
    with log.stage("codegen", len(kernels)) as report, backend.objects(target, settings.workers) as compiler:
        for kernel, schedules in kernels:
            item = build_kernel(kernel, target, schedules, loop_passes, log)
            pending[kernel.name] = emit_object(item, target, backend, compiler, log)
            built.append(item)
            report(len(built), kernel.definition.label)
        scratch = [scratch_size(b.function) for b in built]
        program = build_program(variants, numbers, built, scratch, settings.name, settings.batch, proves=log.verifies)
        names = [b.kernel.name for b in built]
        entry = backend.entry(program.plan, target, names, compiler_version(), denormals=denormals)
        pending["entry"] = compiler.submit("entry", entry)
        weights = program.weights.write(settings.weights_path, denormals=denormals)
        objects = {name: future.result() for name, future in pending.items()}
    return GeneratedCode(built, program.plan, weights, objects)


def rules_of(backend: Backend) -> tuple[RuleRow, ...]:
    """The rules whose schedules ``backend`` takes."""
    return tuple(row for row in RULES if backend.takes_rule(row.name))


def allowed_methods(options: CompileOptions, backend: Backend) -> frozenset[str]:
    """Names of the rows of ``METHODS`` that may be used."""
    return frozenset(row.name for row in METHODS if options.allows(row.name) and backend.takes_rule(row.name))


def build_kernel(
    kernel: Kernel,
    target: Target,
    schedules: Iterable[Callable[[], ChosenSchedule | None]],
    loop_passes: LoopPipeline,
    log: Log,
) -> BuiltKernel:
    """``kernel`` by the first of ``schedules`` that fits: scheduled, lowered, and through the passes of loop IR.

    Raises:
        IngotError: COMPILER_FAULT, none fits.

    Warns:
        ScheduleFaultWarning: the first one does not. TuningRecordWarning: one of a record does not.
    """
    fault: Exception | None = None
    for choose in schedules:
        chosen = None
        try:
            with log.part("schedule"):
                chosen = choose()
            if chosen is None:
                continue
            with log.part("lower"):
                nest = kernel.lower(chosen.schedule, target)
            with log.part("prove"):
                required = kernel.required_extents(nest)
            with log.part("loop passes"):
                function = loop_passes.run(nest, verifies=log.verifies)
        except Exception as error:  # whatever a rule or a step met
            if chosen is not None and chosen.rule == TUNED:
                warn_of_record(kernel, error)
            else:
                fault = fault or error
            continue
        if fault is not None:
            warn_of_schedule(kernel, fault)
        reason = "" if fault is None else f"{type(fault).__name__}: {fault}"
        return BuiltKernel(kernel, chosen.rule, chosen.schedule, function, reason, required)
    assert fault is not None
    raise fault


def tune_model(
    source: ModelSource | ModuleSource,
    target: Target,
    options: CompileOptions,
    progress: Progress = silent,
    records: bytes = b"",
    journal: Path | None = None,
    passes: ModulePasses | None = None,
    *,
    again: bool = False,
    measurer: Measurer | None = None,
    workloads: list[str] | None = None,
) -> bytes:
    """Measure schedules of a model's kernels, for as long as ``options`` say; the records, those in ``records`` included.

    Args:
        journal: file that each trial is added to as it ends (:mod:`compiler_service.compiler.tune.records.journal`); what it holds is
            known too.
        passes: what graphs go through in place of the pipeline of the level.
        again: also take up tasks that an earlier run has settled.
        measurer: the machine that trials run on; None: this one.
        workloads: gets the digests of what the model computes (:class:`~compiler_service.compiler.tune.records.record.Workload`).

    Raises:
        IngotError: INVALID_ARGUMENT, ``target`` is not this machine; of the model; of the journal; DEVICE_TIMEOUT, ``measurer`` is lost.
    """
    if not options.tune:
        return records
    if measurer is None:
        require_measurable(target)
    with typed_faults(), ExitStack() as open_files:
        if journal is None:
            journal = Path(open_files.enter_context(TemporaryDirectory(prefix="ingot-tune-"))) / "records.jsonl"
        log = Log.from_environment(progress)
        with log.stage("import"):
            variants = import_variants(source, options.import_options, inference(), fast=options.fast_ways)
        with log.stage("passes"):
            variants = tuple(define_kernels(optimize(v, target, options, log, passes)) for v in variants)
        kernels, _ = distinct_kernels((v.definitions, v.constants) for v in variants)
        trials = Journal(journal)
        book = RecordBook(known := (*read_lines(records)[0], *trials.read_new()), target)
        run = TuningRun(target, TuningEffort(options.tune, again), trials, progress, measurer)
        methods, launches = allowed_methods(options, backend_of(target)), [d for v in variants for d in v.definitions]
        (workloads if workloads is not None else []).extend(run.tune(kernels, launches, book, methods))
        return write_lines((*known, *trials.read_new()))


def verify_artifact(
    artifact: CompiledArtifact,
    source: ModelSource,
    options: CompileOptions,
    runner: Sequence[str],
    written: Path | None = None,
) -> dict[str, Any]:
    """Compare the artifact's answers with an independent oracle's; a report, see :mod:`compiler_service.compiler.reference.verification`.

    Raises:
        IngotError: NUMERIC_MISMATCH; NOT_VERIFIED where ``options`` require what cannot be had.
    """
    if options.verification == "off":
        return {"state": "not run", "reason": "the job asked for none"}
    required = options.verification == "required"

    def interpreter() -> Oracle:
        module = import_model(source, options.import_options, inference())
        inputs = list(zip(module.input_names, module.graph.inputs, strict=True))
        names = [v.name for n, v in inputs if n not in module.defaults]
        defaults = {v.name: module.defaults[n] for n, v in inputs if n in module.defaults}
        return lambda arrays: run_graph(module.graph, defaults | dict(zip(names, arrays, strict=True)))

    with typed_faults():
        report = verify(artifact, source, interpreter, Means(runner, None if required else PATIENCE_SECONDS), written)
        return require_verified(report) if required else report


def check_model(source: ModelSource, options: CompileOptions | None = None) -> ObstacleReport:
    """Everything that keeps ``source`` from being compiled, without compiling it."""
    with typed_faults():
        return report_model(source, (options or CompileOptions()).import_options, inference())


def inference() -> Inference:
    """How the frontend types operators: by running their definitions."""
    return Inference(infer_in_model, OPERATORS)


def optimize(
    variant: Variant, target: Target, options: CompileOptions, log: Log, passes: ModulePasses | None = None
) -> Variant:
    """The graph passes of the optimisation level for ``target``, or ``passes``, verified after each, and where the values left live."""
    timing = Time()
    instruments: list[Instrument] = [Verify(), timing]
    if log.dump is not None:
        instruments.append(Dump(log.dump))
    context = PassContext(options.opt_level, frozenset(options.disabled_passes), tuple(instruments))
    pipeline = passes or default_pipeline(options.opt_level, target, filters=options.allows("winograd"))
    with variant.within():
        module = pipeline.run(variant.module, context)
        memory = plan_memory(module.graph)
    for name, seconds in timing.seconds:
        log.show(2, f"pass_{name}", f"  {name}: {seconds * 1e3:.1f} ms")
    return replace(variant, module=module, memory=memory)


def link_attachments(
    objects: Mapping[str, bytes], plan: Plan, weights: memoryview | Path, target: Target, options: CompileOptions
) -> dict[str, bytes]:
    """The bundle that was asked for, by its file name in the artifact.

    Raises:
        IngotError: UNSUPPORTED_OPERATOR, the model has steps that are no native code.
    """
    if not options.bundle:
        return {}
    call = next((step for step in walk_steps(plan.steps) if isinstance(step, Call)), None)
    if call is not None:
        raise IngotError(
            ErrorCode.UNSUPPORTED_OPERATOR,
            "a bundle is native code alone, and the model looks into strings, sequences or optionals",
            node=", ".join(call.nodes),
            expected="operators on numbers, or that move and compare strings",
            received=call.function,
            remedy="Compile without a bundle and load the artifact with the runtime.",
        )
    name = "program" if options.bundle == "executable" else "bundle.so"
    return {name: backend_of(target).bundle(objects, weights, target, options.bundle)}


__all__ = ["CompileOptions", "ModelSource", "check_model", "compile_model", "tune_model", "verify_artifact"]
