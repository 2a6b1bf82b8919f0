"""A folder with one model as a source: an OCI image layout, as ``ingot compile --out`` and ``Artifact.save`` write it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

from runtime_service.executors.resources import Resources
from runtime_service.models.repository import LoadModels
from runtime_service.models.served import LoadedModel
from runtime_service.models.signers import Signers
from runtime_service.policies import PolicyCatalogue
from shared_ir.artifact.host import best_for_host
from shared_ir.artifact.layout import DirectoryBlobs, named, open_descriptor, read_references
from shared_ir.artifact.oci import Descriptor
from shared_ir.artifact.signature import Trust
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.numerals import whole_number


@dataclass
class LayoutSource:
    """Implements :class:`runtime_service.models.source.VersionSource`, for whatever name the model is to be served under.

    Others put the folder there, perhaps after the server has started: a version is there once the index names it. Signatures and digests
    are checked as those of a store are; which versions there were before is not known.

    Attributes:
        directory: of the layout; may be a link.
    """

    directory: Path
    trust: Trust
    load_models: LoadModels
    _signers: Signers = field(default_factory=Signers)
    _seen: tuple[str, frozenset[str]] | None = None
    """The index, and the ids of the keys, when they were looked at last."""

    def changes(self, names: Collection[str] | None) -> frozenset[str]:
        """All, under whatever names, where the index or a key is another one; unasked, the name that the model was signed with."""
        now = self._index(), self.trusted()
        if now == self._seen:
            return frozenset()
        found = frozenset(names if names is not None else (name for name, _, _ in self._found()))
        self._seen = now
        return found

    def _index(self) -> str:
        """What is in it, or what keeps it from being read, which :meth:`catalogue` says."""
        try:
            return repr(read_references(self.directory))
        except IngotError as error:
            return str(error)

    def trusted(self) -> frozenset[str]:
        return frozenset(self.trust.keys)

    def catalogue(self, name: str) -> PolicyCatalogue:
        return PolicyCatalogue(tuple(sorted(self._versions())), {})

    def load(self, name: str, version: int, instances: int, resources: Resources) -> tuple[LoadedModel, ...]:
        descriptor, title, text = self._versions()[version]
        opened = open_descriptor(
            DirectoryBlobs(self.directory), descriptor, self.trust, best_for_host, title=title, version=text
        )
        models = self.load_models(opened, instances, resources)
        self._signers.note(name, version, opened.signers)
        return models

    def revoked(self, name: str, version: int) -> bool:
        return self._signers.revoked(name, version, self.trust)

    def _versions(self) -> dict[int, tuple[Descriptor, str, str]]:
        """By number. One that was given none is number 1 where it is the only one."""
        found = self._found()
        if len({title for title, _, _ in found}) != 1:
            raise IngotError(
                ErrorCode.NOT_FOUND,
                "there is not one model in the layout" if found else "no model is in the layout yet",
                field=str(self.directory),
                expected="an OCI image layout with versions of one model, as `ingot compile --out` writes it",
                received=", ".join(sorted({title for title, _, _ in found})),
            )
        numbers = [whole_number(text) or (1 if len(found) == 1 else None) for _, text, _ in found]
        return {
            number: (descriptor, title, text)
            for number, (title, text, descriptor) in zip(numbers, found, strict=True)
            if number is not None
        }

    def _found(self) -> list[tuple[str, str, Descriptor]]:
        return [(*named(self.directory, each, self.trust), each) for each in read_references(self.directory)]
