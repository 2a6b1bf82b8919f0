"""Where versions of models come from, as the follower sees it."""

from __future__ import annotations

from typing import Protocol

from runtime_service.executors.resources import Resources
from runtime_service.models.served import LoadedModel
from runtime_service.policies import PolicyCatalogue


class VersionSource(Protocol):
    """A store of compiled models. All methods raise IngotError."""

    def models(self) -> tuple[str, ...]:
        """Names of all models in the store."""
        ...

    def catalogue(self, name: str) -> PolicyCatalogue:
        """Versions and labels of a model; NOT_FOUND when the store has no such model."""
        ...

    def load(self, name: str, version: int, instances: int, resources: Resources) -> tuple[LoadedModel, ...]:
        """Fetch a version, verify who signed it and what it is, then load it ``instances`` times.

        Nothing of it is mapped or run before it was verified.
        """
        ...

    def revoked(self, name: str, version: int) -> bool:
        """Whether a version that was loaded is signed by a key that is no longer trusted."""
        ...
