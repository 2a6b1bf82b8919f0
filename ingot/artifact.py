"""Compile a model on this machine, and keep what comes out."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Self

from ingot.home import home_directory
from shared_ir.artifact.value import CompiledArtifact
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.extras import needing
from shared_ir.machine.target import Target, resolve_target
from shared_ir.storage.faults import told

Model = str | Path | bytes
"""A path, or the bytes of an ONNX model."""
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
    model: Model,
    target: str = "host",
    opt_level: int = 3,
    shapes: Shapes | None = None,
    *,
    external_data: Mapping[str, bytes | Path] | None = None,
    records: bytes | Path = b"",
    progress: Progress | None = None,
    workers: int | None = None,
    in_process: bool = False,
    **options: Any,
) -> Artifact:
    """Compile an ONNX model to native code, on this machine.

    Files and bytes come from elsewhere, and what reads them may have faults: they are read in a child that can neither
    write nor send anything (docs/design/boundary.md), on Linux. What the caller built himself stays in his process.

    Args:
        model: a path, the bytes of a model, or anything with ``SerializeToString`` (``onnx.ModelProto``).
        target: ``host``, a preset such as ``aws/graviton3``, or ``llvm -mtriple=... -mcpu=...``.
        opt_level: 0 to 3.
        shapes: dims of inputs to pin or to name.
        external_data: content of external tensor data by the location that the model names; beside a path, files in the
            model's own folder are found without this.
        records: tuning records, or the file that holds them; with ``tune=N`` what is measured is added to that file.
        progress: told of every step.
        workers: processes that LLVM runs in, by default one per core; 0 has it in the process that compiles.
        in_process: read files and bytes in this process too: for models of one's own.
        options: the other fields of :class:`compiler_service.compiler.options.CompileOptions`.

    Raises:
        IngotError: whatever keeps the model from being compiled; UNAVAILABLE when the compiler is not installed.
    """
    is_foreign = has_children() and not in_process and not hasattr(model, "SerializeToString")
    with compiler():
        if is_foreign:
            from compiler_service.stages.kept import warm_up

            warm_up()
        from compiler_service.compiler.options import CompileOptions
        from compiler_service.compiler.progress import silent

    given = {"opt_level": opt_level, "shapes": {} if shapes is None else shapes, **options}
    chosen, compile_options = chosen_target(target), CompileOptions.from_dict(given)
    _require_no_verification(compile_options.verification)
    source, report = model_source(model, external_data), progress or silent
    known = records if isinstance(records, bytes) else _read_records(records)
    way = _compile_in_child if is_foreign else _compile_in_process
    artifact, measured = way(source, chosen, compile_options, known, report, workers)
    if isinstance(records, Path) and measured != known:
        from shared_ir.storage.files import write_atomically

        with told("the tuning records cannot be written", records):
            write_atomically(records, measured)
    return Artifact.of(artifact)


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
    source: Any, target: Target, options: Any, known: bytes, report: Progress, workers: int | None
) -> tuple[CompiledArtifact, bytes]:
    with compiler():
        from compiler_service.compiler import pipeline

    measured = pipeline.tune_model(source, target, options, report, known)
    return pipeline.compile_model(source, target, options, report, measured, workers), measured


def has_children() -> bool:
    """Whether this system can keep a process inside of a boundary at all."""
    return sys.platform == "linux"


def chosen_target(text: str) -> Target:
    """The target that ``text`` names, as :func:`compile` takes it.

    Raises:
        IngotError: INVALID_TARGET; UNAVAILABLE when the compiler is not installed.
    """
    with compiler():
        from compiler_service.compiler.codegen.toolchain.host import host_target

    return resolve_target(text, host_target)


def model_source(model: Any, external_data: Mapping[str, bytes | Path] | None = None) -> Any:
    """The compiler's :class:`ModelSource` for what :func:`compile` accepts."""
    with compiler():
        from compiler_service.compiler.frontend.reading.source import ModelSource

    if hasattr(model, "SerializeToString"):
        model = model.SerializeToString()
    if not isinstance(model, str | Path | bytes | bytearray | memoryview):
        raise IngotError(
            ErrorCode.INVALID_ARGUMENT,
            "not a model",
            field="model",
            expected="a path, bytes, or an onnx.ModelProto",
            received=type(model).__name__,
        )
    return ModelSource(ModelSource.of(model).model, dict(external_data or {}))


def compiler() -> AbstractContextManager[None]:
    """Around imports of the compiler: without it, they raise IngotError UNAVAILABLE with the way to get it."""
    return needing("compiler", "the compiler", "or use that of a service (`ingot.Client`, or commands without --local)")


def _read_records(path: Path) -> bytes:
    with told("the tuning records cannot be read", path):
        return path.read_bytes() if path.exists() else b""
