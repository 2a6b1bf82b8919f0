"""Compile a model on this machine, and keep what comes out."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from ingot.frontends import exported, is_torch_module, refuse_others
from ingot.home import home_directory
from ingot.pass_context import PassContext
from ingot.sources import compiler as compiler
from ingot.sources import model_source as model_source
from ingot.target import chosen_target as chosen_target
from shared_ir.artifact.value import CompiledArtifact
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.machine.target import Target
from shared_ir.storage.faults import told

if TYPE_CHECKING:
    from ingot.ir.sequence import Sequential

Shapes = Mapping[str, Sequence[int | str | None]]
"""Input name -> shape: a number pins a dim, a name makes it that symbol, ``None`` leaves what the model says."""
Progress = Callable[[str, int, int, str], None]
"""Called with (stage, done, total, message)."""


@dataclass(frozen=True)
class Artifact(CompiledArtifact):
    """A compiled model: ``manifest``, ``plan``, ``library``, ``weights``, ``report``, ``attachments``."""

    @classmethod
    def of(cls, artifact: CompiledArtifact) -> Self:
        return cls(**{own.name: getattr(artifact, own.name) for own in fields(CompiledArtifact)})

    def save(self, directory: str | Path, tag: str = "latest", home: str | Path | None = None) -> str:
        """Write this artifact as version ``tag`` into the OCI image layout at ``directory``, which need not exist.

        It is signed with the key of the installation at ``home`` (by default ``INGOT_HOME`` or ``~/.ingot``), made at
        first use. Returns the digest of the version's image index.
        """
        return save_artifacts([self], directory, tag, home)


def save_artifacts(
    artifacts: Sequence[CompiledArtifact], directory: str | Path, tag: str = "latest", home: str | Path | None = None
) -> str:
    """As :meth:`Artifact.save`, one artifact per target."""
    # NOTE: imported here because signatures need `cryptography`, which `import ingot` should not wait for.
    from shared_ir.artifact.layout import save_version
    from shared_ir.artifact.signature import local_keys

    with told("the compiled model cannot be written", Path(directory)):
        signer, _ = local_keys(home_directory(home))
        return save_version(Path(directory), tag, artifacts, signer)


def compile(
    model: Any,
    target: str | Target = "host",
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
        records: tuning records, or the file that holds them; with ``tune=N`` what is measured is added to that file.
        progress: told of every step.
        workers: processes that LLVM runs in, by default one per core; 0 has it in the process that compiles.
        in_process: read files and bytes in this process too: for models of one's own.
        pipeline: the graph passes, in place of those of ``opt_level``: :func:`ingot.ir.default_pipeline` with passes of one's own. They
            run in this process, as the instruments of an :class:`ingot.ir.PassContext` do.
        example_inputs: what the torch module is called with, a tensor or a tuple: it is exported by ``torch.onnx.export``. It may also
            stand in the place of ``target``.
        options: the other fields of :class:`compiler_service.compiler.options.CompileOptions`.

    Raises:
        IngotError: whatever keeps the model from being compiled; INVALID_MODEL with the lines that export it for what is no ONNX
            model; UNAVAILABLE when the compiler is not installed.
    """
    if is_torch_module(model) and not isinstance(target, str | Target):
        target, example_inputs = "host", target
    if example_inputs is not None:
        order = {"pipeline": pipeline, "records": records, "progress": progress, "workers": workers, **options}
        return _compile_exported(model, example_inputs, target, opt_level, shapes, **order)
    refuse_others(model)
    is_foreign = has_children() and not in_process and not hasattr(model, "SerializeToString")
    is_foreign = is_foreign and not hasattr(model, "compiler_source")
    with compiler():
        if is_foreign:
            from compiler_service.stages.kept import warm_up

            warm_up()
        from compiler_service.compiler.options import CompileOptions
        from compiler_service.compiler.progress import silent

    context = PassContext.current()
    given = {
        "opt_level": context.opt_level if opt_level is None else opt_level,
        "shapes": {} if shapes is None else shapes,
    }
    if context.disabled:
        given["disabled_passes"] = context.disabled
    chosen, compile_options = chosen_target(target), CompileOptions.from_dict(given | options)
    _require_no_verification(compile_options.verification)
    passes = _own_passes(pipeline, chosen, compile_options, is_foreign=is_foreign)
    source, report = model_source(model, external_data), progress or silent
    known = records if isinstance(records, bytes) else _read_records(records)
    if is_foreign:
        artifact, measured = _compile_in_child(source, chosen, compile_options, known, report, workers)
    else:
        artifact, measured = _compile_in_process(source, chosen, compile_options, known, report, workers, passes)
    if isinstance(records, Path) and measured != known:
        from shared_ir.storage.files import write_atomically

        with told("the tuning records cannot be written", records):
            write_atomically(records, measured)
    return Artifact.of(artifact)


def _compile_exported(
    module: Any, example_inputs: Any, target: str | Target, opt_level: int | None, shapes: Shapes | None, **order: Any
) -> Artifact:
    """The user's own module, so that what torch writes of it is read in his process."""
    if not is_torch_module(module):
        raise IngotError(
            ErrorCode.INVALID_ARGUMENT,
            "examples are what a torch module is called with, and the model is none",
            field="example_inputs",
            received=type(module).__qualname__,
            remedy="Leave example_inputs out.",
        )
    with exported(module, example_inputs) as path:
        return compile(path, target, opt_level, shapes, in_process=True, **order)


def _own_passes(pipeline: Sequential | None, target: Target, options: Any, *, is_foreign: bool) -> Any:
    """What takes the place of the passes of the level; None where it is these, and nobody watches."""
    context = PassContext.current()
    if pipeline is None and not context.instruments:
        return None
    if is_foreign:
        raise IngotError(
            ErrorCode.INVALID_ARGUMENT,
            "passes and instruments of one's own run in this process, and files and bytes of models are read in another",
            field="model" if pipeline is None else "pipeline",
            remedy="Read a model of your own here, with in_process=True or ingot.ir.from_onnx.",
        )
    with compiler():
        from ingot.ir.sequence import default_pipeline, in_compiler

    sequence = pipeline
    if sequence is None:
        sequence = default_pipeline(target, options.opt_level, winograd=options.allows("winograd"))
    return in_compiler(sequence, context.instruments)


def _require_no_verification(asked: str) -> None:
    if asked != "available":
        raise IngotError(
            ErrorCode.INVALID_ARGUMENT,
            "nothing is compared with other implementations where a model is compiled without a service",
            field="verification",
            received=asked,
            remedy="Leave it out here, or submit a job to a compiler service (ingot.Client).",
        )


def _compile_in_child(*order: Any) -> tuple[CompiledArtifact, bytes]:
    with compiler():
        from compiler_service.stages.local import compile_in_child

    return compile_in_child(*order)


def _compile_in_process(
    source: Any, target: Target, options: Any, known: bytes, report: Progress, workers: int | None, passes: Any
) -> tuple[CompiledArtifact, bytes]:
    with compiler():
        from compiler_service.compiler import pipeline

    measured = pipeline.tune_model(source, target, options, report, known, passes)
    artifact = pipeline.compile_model(source, target, options, report, measured, workers, passes=passes)
    return artifact, measured


def has_children() -> bool:
    """Whether this system can keep a process inside of a boundary at all."""
    return sys.platform == "linux"


def _read_records(path: Path) -> bytes:
    with told("the tuning records cannot be read", path):
        return path.read_bytes() if path.exists() else b""
