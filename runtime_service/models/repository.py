"""The artifact store as a source of models."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import cached_property

from runtime_service.executors.resources import Resources
from runtime_service.models.changes import StoreChanges
from runtime_service.models.served import LoadedModel
from runtime_service.models.signers import Signers
from runtime_service.policies import PolicyCatalogue
from shared_ir.artifact.layout import OpenedArtifact
from shared_ir.artifact.repository import ArtifactRepository
from shared_ir.errors import ErrorCode, IngotError

LoadModels = Callable[[OpenedArtifact, int, Resources], tuple[LoadedModel, ...]]
"""From a verified artifact, a number of instances and what each may use to models that can run."""


@dataclass(frozen=True)
class StoreSource:
    """Implements :class:`runtime_service.models.source.VersionSource`.

    Blobs of remote stores are kept in the store's content-addressed cache; signatures and digests are checked by
    :meth:`ArtifactRepository.open_version` each time a version is opened, before anything is mapped.
    """

    repository: ArtifactRepository
    load_models: LoadModels
    _signers: Signers = field(default_factory=Signers)

    @cached_property
    def _changes(self) -> StoreChanges:
        return StoreChanges(self.repository.store, self.trusted)

    def changes(self, names: Collection[str] | None) -> frozenset[str]:
        return self._changes.since_last(names)

    def catalogue(self, name: str) -> PolicyCatalogue:
        versions = self.repository.version_numbers(name)
        if not versions:
            raise IngotError(
                ErrorCode.NOT_FOUND,
                f"the store {self.repository.store.url} has no model {name!r}",
                remedy="Compile and publish it first, or check the spelling.",
            )
        labels = self.repository.all_labels(name)
        return PolicyCatalogue(versions, labels.numbers, labels.faults)

    def load(self, name: str, version: int, instances: int, resources: Resources) -> tuple[LoadedModel, ...]:
        with self.repository.store.holding():
            opened = self.repository.open_version(self.repository.version(name, version))
            models = self.load_models(opened, instances, resources)
        self._signers.note(name, version, opened.signers)
        return models

    def trusted(self) -> frozenset[str]:
        return frozenset(self.repository.trust.keys)

    def revoked(self, name: str, version: int) -> bool:
        return self._signers.revoked(name, version, self.repository.trust)
