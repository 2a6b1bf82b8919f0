"""Load a compiled model into this process."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ingot.arguments import require_kind, require_threads
from ingot.home import home_directory
from shared_ir.artifact.value import CompiledArtifact
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.storage.faults import told

if TYPE_CHECKING:
    from runtime_service.loading.model import Model

_EXECUTORS = ("aot", "graph")


def load(
    artifact: str | Path | CompiledArtifact,
    threads: int | None = None,
    executor: Literal["aot", "graph"] = "aot",
    *,
    tag: str | None = None,
    home: str | Path | None = None,
) -> Model:
    """A compiled model, ready to run.

    Args:
        artifact: what :func:`ingot.compile` returned, or the folder that it was saved in.
        threads: threads of one inference, by default as many as there are cores.
        executor: ``aot`` runs the model in one native call; ``graph`` kernel by kernel, for measuring.
        tag: version in the folder; not needed when it holds only one.
        home: installation whose ``trust/`` names the keys that may sign what is loaded from a folder.

    Raises:
        IngotError: INVALID_ARGUMENT, ``artifact``, ``threads`` or ``executor`` are none; NOT_FOUND, ARTIFACT_UNTRUSTED,
            ARTIFACT_INCOMPATIBLE, ARTIFACT_CORRUPT.
    """
    # NOTE: imported here so that `import ingot` loads neither the runtime nor `cryptography`.
    from runtime_service.loading.loader import load_model, load_version

    require_threads(threads)
    if executor not in _EXECUTORS:
        raise IngotError(
            ErrorCode.INVALID_ARGUMENT,
            "there is no such executor",
            field="executor",
            expected=" or ".join(_EXECUTORS),
            received=repr(executor)[:80],
        )
    if isinstance(artifact, CompiledArtifact):
        return load_model(artifact, threads, executor)
    require_kind(artifact, (str, Path), "artifact", "what ingot.compile gives, or the folder that it was saved in")
    from shared_ir.artifact.signature import TrustStore

    with told("the compiled model cannot be read", Path(artifact)):
        trust = TrustStore.load(home_directory(home) / "trust")
        return load_version(Path(artifact), tag, trust, threads, executor)
