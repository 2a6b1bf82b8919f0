"""Compile a model on this machine."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ingot.artifact import Artifact
from ingot.frontends import exported, is_torch_module, refuse_others
from ingot.pass_context import PassContext
from ingot.record_files import records_file
from ingot.sources import compiler, model_source
from ingot.target import chosen_target
from shared_ir.artifact.value import CompiledArtifact
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.machine.target import Target
from shared_ir.storage.faults import told

if TYPE_CHECKING:
    from ingot.ir.sequence import Sequential

Shapes = Mapping[str, Sequence[int | str | None]]
"""Input name -> shape: a number pins a dim, a name makes it that symbol, ``None`` leaves what the model says."""
_EVERYWHERE = "llvm"
"""The code generator that other processes have too; another one is of the process that registered it."""
Progress = Callable[[str, int, int, str], None]
"""Called with (stage, done, total, message)."""


def compile(
    model: Any,
    target: str | Target | tuple[Any, ...] = "host",
    opt_level: int | None = None,
    shapes: Shapes | None = None,
    *,
    external_data: Mapping[str, bytes | Path] | None = None,
    records: bytes | Path = b"",
    progress: Progress | None = None,
    workers: int | None = None,
    in_process: bool = False,
    pipeline: Sequential | None = None,
    example_inputs: Any = None,
    **options: Any,
) -> Artifact:
    """Compile a model to native code, on this machine.

    Files and bytes come from elsewhere, and what reads them may have faults: they are read in a child that can neither
    write nor send anything (docs/design/boundary.md), on Linux. What the caller built himself stays in his process.

    Args:
        model: a path, the bytes of a model, anything with ``SerializeToString`` (``onnx.ModelProto``), an :class:`ingot.ir.Module`, or,
            with ``example_inputs``, a torch module.
        target: ``host``, a preset such as ``aws/graviton3``, ``llvm -mcpu=...``, or an :class:`ingot.Target`.
        opt_level: 0 to 3; by default that of the :class:`ingot.ir.PassContext` around, outside of all 3.
        shapes: dims of inputs to pin or to name.
        external_data: content of external tensor data by the location that the model names; beside a path, files in the
            model's own folder are found without this.
        records: tuning records, or the file that holds them; with ``tune=SECONDS`` what is measured is added to that file as it is
            measured, also when the compilation then fails.
        progress: told of every step.
        workers: processes that LLVM runs in, by default one per core; 0 has it in the process that compiles.
        in_process: read files and bytes in this process too: for models of one's own.
        pipeline: the graph passes, in place of those of ``opt_level``: :func:`ingot.ir.default_pipeline` with passes of one's own. They
            run in this process, as the instruments of an :class:`ingot.ir.PassContext` do.
        example_inputs: what the torch module is called with, a tensor or a tuple: it is exported by ``torch.onnx.export``. It may also
            stand in the place of ``target``, as a tuple.
        options: the other fields of :class:`compiler_service.compiler.options.CompileOptions`.

    Raises:
        IngotError: whatever keeps the model from being compiled; INVALID_MODEL with the lines that export it for what is no ONNX
            model; UNAVAILABLE when the compiler is not installed.
    """
    if is_torch_module(model) and not isinstance(target, str | Target):
        target, example_inputs = "host", target
    context = PassContext.current()
    given = {
        "opt_level": context.opt_level if opt_level is None else opt_level,
        "shapes": {} if shapes is None else shapes,
        "disabled_passes": context.disabled,
        **options,
    }
    local = _Local(external_data, records, progress, workers, in_process, pipeline)
    if example_inputs is None:
        refuse_others(model)
        return local.compile(model, target, given)
    with exported(model, example_inputs) as path:
        return replace(local, in_process=True).compile(path, target, given)


@dataclass(frozen=True)
class _Local:
    """How a model is compiled here: the arguments of :func:`compile` of these names."""

    external_data: Mapping[str, bytes | Path] | None
    records: bytes | Path
    progress: Progress | None
    workers: int | None
    in_process: bool
    pipeline: Sequential | None

    def compile(self, model: Any, target: Any, options: Mapping[str, Any]) -> Artifact:
        is_module = hasattr(model, "_compiler_source")
        if is_module:
            _require_as_it_is(external_data=self.external_data, **options)
        own = hasattr(model, "SerializeToString") or is_module
        is_foreign = has_children() and not self.in_process and not own
        with compiler():
            if is_foreign:
                from compiler_service.stages.kept import warm_up

                warm_up()
            from compiler_service.compiler.options import CompileOptions
            from compiler_service.compiler.progress import silent

        chosen, compile_options = chosen_target(target), CompileOptions.from_dict(options)
        is_foreign = is_foreign and chosen.kind == _EVERYWHERE
        _require_no_verification(compile_options.verification)
        passes = self.passes(chosen, compile_options, is_foreign=is_foreign)
        records = self.records if isinstance(self.records, bytes) else records_file(self.records)
        source, report = model_source(model, self.external_data), self.progress or silent
        known, journal = (records, None) if isinstance(records, bytes) else (_read_records(records), records)
        if is_foreign:
            artifact = _compile_in_child(source, chosen, compile_options, known, report, self.workers, journal)
        else:
            artifact = _compile_in_process(
                source, chosen, compile_options, known, report, self.workers, journal, passes
            )
        return Artifact.of(artifact)

    def passes(self, target: Target, options: Any, *, is_foreign: bool) -> Any:
        """What takes the place of the passes of the level; None where it is these, and nobody watches."""
        context, sequence = PassContext.current(), self.pipeline
        if sequence is None and not context.instruments:
            return None
        if is_foreign:
            raise IngotError(
                ErrorCode.INVALID_ARGUMENT,
                "passes and instruments of one's own run in this process, and files and bytes of models are read in another",
                field="model" if sequence is None else "pipeline",
                remedy="Read a model of your own here, with in_process=True or ingot.ir.from_onnx.",
            )
        with compiler():
            from ingot.ir.sequence import default_pipeline, in_compiler

        if sequence is None:
            sequence = default_pipeline(target, options.opt_level, winograd=options.allows("winograd"))
        return in_compiler(sequence, context.instruments, is_own=self.pipeline is not None)


def _require_as_it_is(**options: Any) -> None:
    for name in ("shapes", "overridable", "external_data"):
        if options.get(name):
            raise IngotError(
                ErrorCode.INVALID_ARGUMENT,
                f"{name} says how a model is read, and a module has been read",
                field=name,
                remedy="Give it to ingot.ir.from_onnx." if name != "overridable" else "Leave it out.",
            )


def _require_no_verification(asked: str) -> None:
    if asked != "available":
        raise IngotError(
            ErrorCode.INVALID_ARGUMENT,
            "nothing is compared with other implementations where a model is compiled without a service",
            field="verification",
            received=asked,
            remedy="Leave it out here, or submit a job to a compiler service (ingot.Client).",
        )


def _compile_in_child(*order: Any) -> CompiledArtifact:
    with compiler():
        from compiler_service.stages.local import compile_in_child

    return compile_in_child(*order)


def _compile_in_process(
    source: Any,
    target: Target,
    options: Any,
    known: bytes,
    report: Progress,
    workers: int | None,
    journal: Path | None,
    passes: Any,
) -> CompiledArtifact:
    with compiler():
        from compiler_service.compiler import pipeline

    measured = pipeline.tune_model(source, target, options, report, known, journal, passes)
    return pipeline.compile_model(source, target, options, report, measured, workers, passes=passes)


def has_children() -> bool:
    """Whether this system can keep a process inside of a boundary at all."""
    return sys.platform == "linux"


def _read_records(path: Path) -> bytes:
    with told("the tuning records cannot be read", path):
        return path.read_bytes() if path.exists() else b""
