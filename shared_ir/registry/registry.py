"""The models of a store for who may also take them away."""

from __future__ import annotations

from shared_ir.artifact.repository import ArtifactRepository
from shared_ir.registry.deletion import delete_model, delete_version


class ArtifactRegistry(ArtifactRepository):
    """A repository with deletions among its methods, so that who cannot sign them has them done by somebody who can."""

    def delete_version(self, name: str, number: int, by: str = "") -> None:
        """As :func:`shared_ir.registry.deletion.delete_version`."""
        delete_version(self, name, number, by)

    def delete_model(self, name: str, by: str = "", force: bool = False) -> int:
        """As :func:`shared_ir.registry.deletion.delete_model`."""
        return delete_model(self, name, by, force)
