"""Compiled models, and how they are kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Self

from ingot.arguments import require_kind
from ingot.home import home_directory
from ingot.sources import compiler as compiler
from ingot.sources import model_source as model_source
from ingot.target import chosen_target as chosen_target
from shared_ir.artifact.value import CompiledArtifact
from shared_ir.storage.faults import told


@dataclass(frozen=True)
class Artifact(CompiledArtifact):
    """A compiled model, which :func:`ingot.load` runs and :meth:`save` keeps."""

    @classmethod
    def of(cls, artifact: CompiledArtifact) -> Self:
        """The same artifact, as one that can be saved."""
        return cls(**{own.name: getattr(artifact, own.name) for own in fields(CompiledArtifact)})

    def save(self, directory: str | Path, tag: str = "latest", home: str | Path | None = None) -> str:
        """Write this artifact as version ``tag`` into the OCI image layout at ``directory``, which need not exist.

        It is signed with the key of the installation at ``home`` (by default ``INGOT_HOME`` or ``~/.ingot``), made at
        first use. Returns the digest of the version's image index.

        Raises:
            IngotError: INVALID_ARGUMENT, the tag is none, or the folder cannot be written; DISK_FULL.
        """
        return save_artifacts([self], directory, tag, home)


def save_artifacts(
    artifacts: Sequence[CompiledArtifact], directory: str | Path, tag: str = "latest", home: str | Path | None = None
) -> str:
    """Write ``artifacts``, those of one model for several targets, as one version: as :meth:`Artifact.save`, whose arguments these are.

    :func:`ingot.load` takes of it what was compiled for the machine that it runs on.

    Raises:
        IngotError: INVALID_ARGUMENT, there are no artifacts, the tag is none, or the folder cannot be written; DISK_FULL.
    """
    # NOTE: imported here because signatures need `cryptography`, which `import ingot` should not wait for.
    from shared_ir.artifact.layout import save_version
    from shared_ir.artifact.signature import local_keys

    require_kind(directory, (str, Path), "directory", "the path of a folder")
    with told("the compiled model cannot be written", Path(directory)):
        signer, _ = local_keys(home_directory(home))
        return save_version(Path(directory), tag, artifacts, signer)
