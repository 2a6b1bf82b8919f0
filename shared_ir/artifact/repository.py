"""Published models in an object store: artifacts by key, versions by number, labels that point at versions.

    blobs/sha256/<digest>                 content, shared by all models
    artifacts/<key>.json                  what was compiled for an artifact key
    models/<name>/versions/<number>.json  a version: its signed image index
    models/<name>/labels/<label>.json     stable -> 3, signed, with a generation
    oci-layout, index.json                the same as an OCI image layout with tags `<name>/<number>`

On local disk the store is thus an OCI image layout. ``index.json`` is derived and can be rebuilt; nothing here reads it. What the other
records say is taken from the signed documents that they point at (:mod:`shared_ir.artifact.proof`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shared_ir.artifact.host import best_for_host
from shared_ir.artifact.labels import LabelRecords, Labels
from shared_ir.artifact.layout import (
    Choose,
    DirectoryBlobs,
    OpenedArtifact,
    open_descriptor,
    open_target,
    pack,
    pack_index,
    read_references,
    read_report,
    references_document,
    tagged,
    with_report,
    write_references,
)
from shared_ir.artifact.memory import Memory
from shared_ir.artifact.oci import (
    CREATED,
    INDEX_FILE,
    LAYOUT_DOCUMENT,
    LAYOUT_FILE,
    PUBLICATION,
    REFERENCE,
    Descriptor,
    Entry,
    read_index,
    read_manifest,
)
from shared_ir.artifact.proof import StoreReader, created_text
from shared_ir.artifact.published import (
    Version,
    artifact_path,
    blob_key,
    check_label,
    check_model_name,
    entry_to_dict,
    is_model_name,
    version_path,
    version_to_dict,
)
from shared_ir.artifact.signature import SigningKey, Trust, TrustEither, TrustStore
from shared_ir.artifact.signed import corrupt, parse_document
from shared_ir.artifact.value import Artifact, Manifest
from shared_ir.digest import canonical_json
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.numerals import whole_number
from shared_ir.storage.protocol import Data, ObjectStore

__all__ = ["ArtifactRepository", "StoreBlobs", "Version", "blob_key", "check_label", "check_model_name"]

_LOG = logging.getLogger(__name__)
_LARGEST_INDEX = 256 << 20
"""Bytes of ``index.json``, which names every version of every model."""
_MOST_SCANNED = 16
"""How many of the newest versions are searched for an earlier publication by the same job, or of the same artifacts."""


@dataclass(frozen=True)
class StoreBlobs:
    """The blobs of an object store."""

    store: ObjectStore

    def put(self, digest: str, data: Data) -> None:
        self.store.put_if_absent(blob_key(digest), data)

    def path(self, digest: str, limit: int | None = None) -> Path:
        try:
            return self.store.local_path(blob_key(digest), limit)
        except IngotError as error:
            where = f"{self.store.url}/{blob_key(digest)}"
            if error.code is ErrorCode.NOT_FOUND:
                raise corrupt("a blob of the artifact is missing", field=where) from error
            if error.code is ErrorCode.LIMIT_EXCEEDED:
                expected, received = error.expected, error.received
                raise corrupt("a blob has the wrong size", field=where, expected=expected, received=received) from error
            raise


class ArtifactRepository:
    """Publish, find and open models.

    Args:
        store: where everything is kept.
        trust: whose artifacts may be opened.
        signer: signs what is published here, and is trusted to have signed what is found here; None for a reader.
        memory: what was seen of the store before; by default nothing.
    """

    def __init__(
        self, store: ObjectStore, trust: Trust, signer: SigningKey | None = None, memory: Memory | None = None
    ) -> None:
        self.store = store
        self.trust = trust if signer is None else TrustEither(trust, TrustStore.of([signer.public]))
        self._signer = signer
        self._blobs = StoreBlobs(store)
        self._proven = StoreReader(store, self.trust, memory or Memory())
        self._labels = LabelRecords(self._proven)

    # ---- artifacts by key

    def put_artifact(self, artifact: Artifact, staged: bool = False) -> None:
        """Store what was compiled, so that the same key is never compiled again. Doing it twice is harmless.

        A ``staged`` artifact was built but not verified: it is kept apart and cannot be published.
        """
        entry = pack(artifact, self._signing_key(), self._blobs, staged)
        self._put_entry(entry, staged)

    def promote(self, key: str, report: Mapping[str, Any]) -> None:
        """The staged artifact of ``key`` was verified: from now on it can be published, with this ``report``.

        Raises:
            IngotError: NOT_FOUND.
        """
        data = self._proven.blob(self._require_entry(key, staged=True).descriptor)
        self._put_entry(with_report(data, report, self.trust, self._signing_key(), self._blobs))

    def find_artifact(self, key: str, staged: bool = False) -> Manifest | None:
        """What was compiled for an artifact key, as it was signed; None when nothing was."""
        entry = self._proven.entry(key, staged)
        return entry.manifest if entry else None

    def open_artifact(self, key: str, staged: bool = False) -> OpenedArtifact:
        """Raises IngotError NOT_FOUND and those of :func:`shared_ir.artifact.layout.open_version`."""
        return open_target(self._blobs, self._require_entry(key, staged).descriptor, self.trust, staged)

    def report(self, key: str) -> Mapping[str, Any]:
        """The compiler's report of an artifact, without anything else of it. Raises as :meth:`open_artifact`."""
        return read_report(self._blobs, self._require_entry(key, staged=False).descriptor, self.trust)

    # ---- versions

    def publish(
        self,
        name: str,
        keys: Sequence[str],
        publication: str = "",
        labels: Sequence[str] = (),
        asked: float | None = None,
        once: bool = False,
    ) -> Version:
        """Make the artifacts of ``keys``, one per target, the next version of model ``name``, then move ``labels``.

        A second call with the same ``publication`` finds the version that the first one made; with ``once``, so does one with
        the same artifacts. Readers see a version once its record exists, which is written last. ``asked`` is as in :meth:`set_label`.

        Raises:
            IngotError: NOT_FOUND when a key was not compiled; INVALID_ARGUMENT.
        """
        check_model_name(name)
        for label in labels:
            check_label(label)
        version = self._find_publication(name, publication) or self._publish(name, keys, publication, once)
        for label in labels:
            self.set_label(name, label, version.number, asked)
        return version

    def models(self) -> tuple[str, ...]:
        """Names of all models with a version."""
        keys = (info.key.split("/") for info in self.store.list("models"))
        names = {parts[1] for parts in keys if len(parts) == 4 and parts[2] == "versions"}
        return tuple(sorted(filter(is_model_name, names)))

    def version_numbers(self, name: str) -> tuple[int, ...]:
        """Ascending. Raises IngotError ARTIFACT_UNTRUSTED when the newest that was seen before is gone."""
        return self._proven.version_numbers(check_model_name(name))

    def version(self, name: str, number: int) -> Version:
        """Raises IngotError NOT_FOUND; ARTIFACT_UNTRUSTED, ARTIFACT_CORRUPT when it is not proven to be that version."""
        try:
            return self._proven.version(check_model_name(name), number)
        except IngotError as error:
            if error.code is not ErrorCode.NOT_FOUND:
                raise
            known = ", ".join(map(str, self.version_numbers(name))) or "none"
            message = f"model {name!r} has no version {number}"
            raise IngotError(ErrorCode.NOT_FOUND, message, field="version", expected=f"one of {known}") from error

    def find_version(self, name: str, keys: Sequence[str]) -> Version | None:
        """The newest version with just the artifacts of ``keys``, among the newest ones."""
        newest = self.version_numbers(check_model_name(name))[-_MOST_SCANNED:]
        versions = (self._proven_version(name, number) for number in reversed(newest))
        return next((v for v in versions if v and sorted(m.key for m in v.targets) == sorted(keys)), None)

    def versions(self, name: str) -> tuple[Version, ...]:
        """Ascending; without those that nothing proves. Raises IngotError NOT_FOUND for an unknown model."""
        numbers = self.version_numbers(name)
        if not numbers:
            raise self._no_model(name)
        return tuple(version for number in numbers if (version := self._proven_version(name, number)))

    def newest(self, name: str) -> Version:
        """The newest version that is proven, for showing: what is served is :meth:`resolve`'s to say, which passes none over.

        Raises:
            IngotError: NOT_FOUND, there is none.
        """
        proven = (self._proven_version(name, number) for number in reversed(self.version_numbers(name)))
        found = next((version for version in proven if version), None)
        if found is None:
            raise self._no_model(name)
        return found

    def resolve(self, name: str, which: int | str | None = None) -> Version:
        """A version by number (``3`` or ``"3"``) or label; the newest for None or ``""``.

        Raises:
            IngotError: NOT_FOUND; ARTIFACT_UNTRUSTED, ARTIFACT_CORRUPT when it is not proven.
        """
        if isinstance(which, int):
            return self.version(name, which)
        number = whole_number(which or "")
        if number is not None:
            return self.version(name, number)
        if which:
            return self.version(name, self._labels.find(name, which).number)
        numbers = self.version_numbers(name)
        if not numbers:
            raise self._no_model(name)
        return self.version(name, numbers[-1])

    # ---- labels

    def labels(self, name: str) -> Mapping[str, int]:
        """Version number by label; without those that nothing proves."""
        return self._labels.all(name).numbers

    def all_labels(self, name: str) -> Labels:
        """The same, with what keeps the others from counting."""
        return self._labels.all(name)

    def set_label(self, name: str, label: str, number: int, asked: float | None = None) -> None:
        """Point ``label`` at a version that exists; one atomic write.

        Nothing changes where who ``asked`` for it (seconds since the epoch; by default now) did so before what is there was asked for.

        Raises:
            IngotError: NOT_FOUND.
        """
        version = self.version(name, number)
        self._labels.put(name, check_label(label), version.number, version.index.digest, self._signing_key(), asked)

    def delete_label(self, name: str, label: str) -> None:
        """Raises IngotError NOT_FOUND."""
        if not self._labels.is_there(check_model_name(name), check_label(label)):
            raise IngotError(ErrorCode.NOT_FOUND, f"model {name!r} has no label {label!r}", field="label")
        self._labels.put(name, label, 0, "", self._signing_key())

    # ---- out

    def open(self, name: str, which: int | str | None = None, choose: Choose = best_for_host) -> OpenedArtifact:
        """Check and open one target of a version; see :func:`shared_ir.artifact.layout.open_version`."""
        return self.open_version(self.resolve(name, which), choose)

    def open_version(self, version: Version, choose: Choose = best_for_host) -> OpenedArtifact:
        """As :meth:`open`. The signed index must be of this very model and version."""
        return open_descriptor(self._blobs, version.index, self.trust, choose, version.name, str(version.number))

    def files(self, version: Version, key: str = "") -> tuple[tuple[str, Data], ...]:
        """An OCI image layout with this version under its number as tag, as ``(path, content)``.

        With ``key`` it holds that target alone.
        """
        descriptor, documents = self._documents(version, key)
        files: dict[str, Data] = {
            LAYOUT_FILE: LAYOUT_DOCUMENT,
            INDEX_FILE: references_document([tagged(descriptor, str(version.number))]),
        }
        for found in documents:
            files[blob_key(found.digest)] = self._blobs.path(found.digest, found.size)
        return tuple(files.items())

    def fetch(self, name: str, which: int | str | None, directory: Path, key: str = "") -> str:
        """Add a version to the OCI image layout at ``directory``; return its tag."""
        version = self.resolve(name, which)
        descriptor, documents = self._documents(version, key)
        blobs, tag = DirectoryBlobs(directory), str(version.number)
        for found in documents:
            blobs.put(found.digest, self._blobs.path(found.digest, found.size))
        others = [d for d in read_references(directory) if d.annotations.get(REFERENCE) != tag]
        write_references(directory, [*others, tagged(descriptor, tag)])
        return tag

    def rebuild_index(self) -> None:
        """Write ``index.json`` anew from the version records."""
        versions = [version for name in self.models() for version in self.versions(name)]
        self.store.put(LAYOUT_FILE, LAYOUT_DOCUMENT)
        self.store.put(INDEX_FILE, references_document([tagged(v.index, f"{v.name}/{v.number}") for v in versions]))

    # ---- parts

    def _publish(self, name: str, keys: Sequence[str], publication: str, once: bool) -> Version:
        entries = [self._proven.entry(key) for key in keys]
        found = [entry for entry in entries if entry is not None]
        if len(found) != len(keys) or not found:
            message = "a version needs an artifact for each of its targets"
            raise IngotError(ErrorCode.NOT_FOUND, message, expected=f"{len(keys)} artifacts", received=str(len(found)))
        while (
            same := self.find_version(name, keys) if once else None
        ) is None:  # asked again when another took the number
            number = max(self.version_numbers(name), default=0) + 1
            created = time.time()
            facts = {CREATED: created_text(created)} | ({PUBLICATION: publication} if publication else {})
            index = pack_index(name, str(number), found, self._signing_key(), self._blobs, facts)
            manifests = tuple(entry.manifest for entry in found)
            version = Version(name, number, created, manifests[0].model_sha256, publication, index, manifests)
            if self.store.put_if_absent(version_path(name, number), canonical_json(version_to_dict(version))):
                self._add_to_index(version)
                return self.version(name, number)
        return same

    def _add_to_index(self, version: Version) -> None:
        tag = f"{version.name}/{version.number}"
        try:
            document = parse_document(self.store.get(INDEX_FILE, _LARGEST_INDEX), INDEX_FILE)
            others = [Descriptor.from_dict(item) for item in document.get("manifests") or ()]
        except (IngotError, TypeError) as error:
            if isinstance(error, IngotError) and error.code is ErrorCode.UNAVAILABLE:
                raise
            self.rebuild_index()
            return
        kept = [d for d in others if d.annotations.get(REFERENCE) != tag]
        self.store.put(INDEX_FILE, references_document([*kept, tagged(version.index, tag)]))

    def _find_publication(self, name: str, publication: str) -> Version | None:
        if not publication:
            return None
        newest = (
            self._proven_version(name, number) for number in reversed(self.version_numbers(name)[-_MOST_SCANNED:])
        )
        return next((version for version in newest if version and version.publication == publication), None)

    def _require_entry(self, key: str, staged: bool) -> Entry:
        entry = self._proven.entry(key, staged)
        if entry is None:
            raise IngotError(ErrorCode.NOT_FOUND, f"no artifact was compiled for key {key}", field="key")
        return entry

    def _put_entry(self, entry: Entry, staged: bool = False) -> None:
        self.store.put(artifact_path(entry.manifest.key, staged), canonical_json(entry_to_dict(entry)))
        if not staged:
            self.store.delete(artifact_path(entry.manifest.key, staged=True))

    def _proven_version(self, name: str, number: int) -> Version | None:
        """None for a record that proves nothing, which harms itself alone."""
        try:
            return self.version(name, number)
        except IngotError as error:
            if error.code is ErrorCode.UNAVAILABLE:
                raise
            _LOG.warning("version %d of model %r is not taken: %s", number, name, error)
            return None

    def _documents(self, version: Version, key: str) -> tuple[Descriptor, list[Descriptor]]:
        """The descriptor to tag, and everything below it."""
        entries = read_index(self._proven.blob(version.index), self.trust)[1]
        chosen = [entry for entry in entries if key in ("", entry.manifest.key)]
        if not chosen:
            message = f"version {version.number} of {version.name!r} has no artifact {key}"
            raise IngotError(ErrorCode.NOT_FOUND, message, field="artifact_key")
        documents = [] if key else [version.index]
        for entry in chosen:
            _, config, layers = read_manifest(self._proven.blob(entry.descriptor), self.trust)
            documents += [entry.descriptor, config, *layers]
        return (chosen[0].descriptor if key else version.index), documents

    def _signing_key(self) -> SigningKey:
        if self._signer is None:
            raise IngotError(
                ErrorCode.INTERNAL, "this repository was opened without a signing key: it can only be read"
            )
        return self._signer

    def _no_model(self, name: str) -> IngotError:
        known = ", ".join(self.models()[:20]) or "none"
        return IngotError(ErrorCode.NOT_FOUND, f"no model {name!r}", field="name", expected=f"one of {known}")
