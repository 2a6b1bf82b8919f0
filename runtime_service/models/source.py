"""Where versions of models come from, as the follower sees it."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from runtime_service.executors.resources import Resources
from runtime_service.models.served import LoadedModel
from runtime_service.policies import PolicyCatalogue


class VersionSource(Protocol):
    """A store of compiled models. All methods raise IngotError."""

    def changes(self, names: Collection[str] | None) -> frozenset[str]:
        """Models whose versions or labels may be others than when this was asked last; at first all that are there.

        Args:
            names: the models that are of interest; None: every one of the store.
        """
        ...

    def catalogue(self, name: str) -> PolicyCatalogue:
        """Versions and labels of a model; NOT_FOUND when the store has no such model."""
        ...

    def load(self, name: str, version: int, instances: int, resources: Resources) -> tuple[LoadedModel, ...]:
        """Fetch a version, verify who signed it and what it is, then load it ``instances`` times.

        Nothing of it is mapped or run before it was verified.
        """
        ...

    def trusted(self) -> frozenset[str]:
        """Ids of the keys that are trusted now: as long as they are the same, so is what :meth:`revoked` says."""
        ...

    def revoked(self, name: str, version: int) -> bool:
        """Whether a version that was loaded is signed by a key that is no longer trusted."""
        ...
