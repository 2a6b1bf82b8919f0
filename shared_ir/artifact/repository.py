"""Published models in an object store: artifacts by key, versions by number, labels that point at versions.

    blobs/sha256/<digest>                 content, shared by all models
    artifacts/<key>.json                  what was compiled for an artifact key
    models/<name>/versions/<number>.json  a version: its signed image index
    models/<name>/labels/<label>.json     stable -> 3
    oci-layout, index.json                the same as an OCI image layout with tags `<name>/<number>`

On local disk the store is thus an OCI image layout. ``index.json`` is derived and can be rebuilt; the rest is truth.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from shared_ir.artifact.host import best_for_host
from shared_ir.artifact.layout import (
    Choose,
    DirectoryBlobs,
    OpenedArtifact,
    open_descriptor,
    pack,
    pack_index,
    read_references,
    references_document,
    tagged,
    write_references,
)
from shared_ir.artifact.oci import (
    INDEX_FILE,
    LAYOUT_DOCUMENT,
    LAYOUT_FILE,
    REFERENCE,
    Descriptor,
    Entry,
    corrupt,
    parse_document,
    read_index,
    read_manifest,
)
from shared_ir.artifact.published import (
    Version,
    artifact_path,
    check_label,
    check_model_name,
    entry_from_dict,
    entry_to_dict,
    label_path,
    version_from_dict,
    version_path,
    version_to_dict,
)
from shared_ir.artifact.signature import SigningKey, TrustStore
from shared_ir.artifact.value import Artifact, Manifest
from shared_ir.digest import canonical_json, digest_hex
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.storage.protocol import Data, ObjectStore

__all__ = ["ArtifactRepository", "StoreBlobs", "Version", "blob_key", "check_label", "check_model_name"]

_SCAN = 16
"""How many of the newest versions are searched for an earlier publication by the same job."""


@dataclass(frozen=True)
class StoreBlobs:
    """The blobs of an object store."""

    store: ObjectStore

    def put(self, digest: str, data: Data) -> None:
        self.store.put_if_absent(blob_key(digest), data)

    def path(self, digest: str) -> Path:
        try:
            return self.store.local_path(blob_key(digest))
        except IngotError as error:
            if error.code is ErrorCode.NOT_FOUND:
                raise corrupt(
                    "a blob of the artifact is missing", field=f"{self.store.url}/{blob_key(digest)}"
                ) from error
            raise


def blob_key(digest: str) -> str:
    return f"blobs/sha256/{digest_hex(digest)}"


class ArtifactRepository:
    """Publish, find and open models.

    Args:
        store: where everything is kept.
        trust: whose artifacts may be opened.
        signer: signs what is published here; None for a reader.
    """

    def __init__(self, store: ObjectStore, trust: TrustStore, signer: SigningKey | None = None) -> None:
        self.store = store
        self.trust = trust
        self._signer = signer
        self._blobs = StoreBlobs(store)

    # ---- artifacts by key

    def put_artifact(self, artifact: Artifact, staged: bool = False) -> None:
        """Store what was compiled, so that the same key is never compiled again. Doing it twice is harmless.

        A ``staged`` artifact was built but not verified: it is kept apart and cannot be published.
        """
        entry = pack(artifact, self._signing_key(), self._blobs)
        self.store.put(artifact_path(artifact.manifest.key, staged), canonical_json(entry_to_dict(entry)))
        if not staged:
            self.store.delete(artifact_path(artifact.manifest.key, staged=True))

    def find_artifact(self, key: str, staged: bool = False) -> Manifest | None:
        """What was compiled for an artifact key, None when nothing was."""
        entry = self._find_entry(key, staged)
        return entry.manifest if entry else None

    def open_artifact(self, key: str, staged: bool = False) -> OpenedArtifact:
        """Raises IngotError NOT_FOUND and those of :func:`shared_ir.artifact.layout.open_version`."""
        entry = self._find_entry(key, staged)
        if entry is None:
            raise IngotError(ErrorCode.NOT_FOUND, f"no artifact was compiled for key {key}", field="key")
        return open_descriptor(self._blobs, entry.descriptor, self.trust, best_for_host)

    # ---- versions

    def publish(self, name: str, keys: Sequence[str], publication: str = "", labels: Sequence[str] = ()) -> Version:
        """Make the artifacts of ``keys``, one per target, the next version of model ``name``, then move ``labels``.

        A second call with the same ``publication`` finds the version that the first one made. Readers see a version
        once its record exists, which is written last.

        Raises:
            IngotError: NOT_FOUND when a key was not compiled; INVALID_ARGUMENT.
        """
        check_model_name(name)
        for label in labels:
            check_label(label)
        version = self._find_publication(name, publication) or self._publish(name, keys, publication)
        for label in labels:
            self.set_label(name, label, version.number)
        return version

    def models(self) -> tuple[str, ...]:
        """Names of all models with a version."""
        keys = (info.key.split("/") for info in self.store.list("models"))
        return tuple(sorted({parts[1] for parts in keys if len(parts) == 4 and parts[2] == "versions"}))

    def version_numbers(self, name: str) -> tuple[int, ...]:
        """Ascending."""
        keys = (info.key for info in self.store.list(f"models/{check_model_name(name)}/versions"))
        return tuple(sorted(int(Path(key).stem) for key in keys))

    def version(self, name: str, number: int) -> Version:
        """Raises IngotError NOT_FOUND."""
        try:
            data = self.store.get(version_path(check_model_name(name), number))
        except IngotError as error:
            if error.code is not ErrorCode.NOT_FOUND:
                raise
            known = ", ".join(map(str, self.version_numbers(name))) or "none"
            message = f"model {name!r} has no version {number}"
            raise IngotError(ErrorCode.NOT_FOUND, message, field="version", expected=f"one of {known}") from error
        return version_from_dict(parse_document(data, "the version's record"))

    def versions(self, name: str) -> tuple[Version, ...]:
        """Ascending. Raises IngotError NOT_FOUND for an unknown model."""
        numbers = self.version_numbers(name)
        if not numbers:
            raise self._no_model(name)
        return tuple(self.version(name, number) for number in numbers)

    def resolve(self, name: str, which: int | str | None = None) -> Version:
        """A version by number (``3`` or ``"3"``) or label; the newest for None or ``""``.

        Raises:
            IngotError: NOT_FOUND.
        """
        if isinstance(which, int) or (which and which.isdecimal()):
            return self.version(name, int(which))
        if which:
            labels = self.labels(name)
            if which not in labels:
                expected = ", ".join(sorted(labels)) or "a version number: it has no labels"
                message = f"model {name!r} has no label {which!r}"
                raise IngotError(ErrorCode.NOT_FOUND, message, field="label", expected=expected)
            return self.version(name, labels[which])
        numbers = self.version_numbers(name)
        if not numbers:
            raise self._no_model(name)
        return self.version(name, numbers[-1])

    # ---- labels

    def labels(self, name: str) -> Mapping[str, int]:
        """Version number by label."""
        found = {}
        for info in self.store.list(f"models/{check_model_name(name)}/labels"):
            found[Path(info.key).stem] = int(parse_document(self.store.get(info.key), "the label")["version"])
        return found

    def set_label(self, name: str, label: str, number: int) -> None:
        """Point ``label`` at a version that exists; one atomic write. Raises IngotError NOT_FOUND."""
        version = self.version(name, number)
        self.store.put(label_path(name, check_label(label)), canonical_json({"version": version.number}))

    def delete_label(self, name: str, label: str) -> None:
        """Raises IngotError NOT_FOUND."""
        key = label_path(check_model_name(name), check_label(label))
        if self.store.size(key) is None:
            raise IngotError(ErrorCode.NOT_FOUND, f"model {name!r} has no label {label!r}", field="label")
        self.store.delete(key)

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
        for digest in documents:
            files[blob_key(digest)] = self._blobs.path(digest)
        return tuple(files.items())

    def fetch(self, name: str, which: int | str | None, directory: Path, key: str = "") -> str:
        """Add a version to the OCI image layout at ``directory``; return its tag."""
        version = self.resolve(name, which)
        descriptor, digests = self._documents(version, key)
        blobs, tag = DirectoryBlobs(directory), str(version.number)
        for digest in digests:
            blobs.put(digest, self._blobs.path(digest))
        others = [d for d in read_references(directory) if d.annotations.get(REFERENCE) != tag]
        write_references(directory, [*others, tagged(descriptor, tag)])
        return tag

    def rebuild_index(self) -> None:
        """Write ``index.json`` anew from the version records."""
        versions = [version for name in self.models() for version in self.versions(name)]
        self.store.put(LAYOUT_FILE, LAYOUT_DOCUMENT)
        self.store.put(INDEX_FILE, references_document([tagged(v.index, f"{v.name}/{v.number}") for v in versions]))

    # ---- parts

    def _publish(self, name: str, keys: Sequence[str], publication: str) -> Version:
        entries = [self._find_entry(key) for key in keys]
        found = [entry for entry in entries if entry is not None]
        if len(found) != len(keys) or not found:
            message = "a version needs an artifact for each of its targets"
            raise IngotError(ErrorCode.NOT_FOUND, message, expected=f"{len(keys)} artifacts", received=str(len(found)))
        while True:
            number = max(self.version_numbers(name), default=0) + 1
            index = pack_index(name, str(number), found, self._signing_key(), self._blobs)
            manifests = tuple(entry.manifest for entry in found)
            version = Version(name, number, time.time(), manifests[0].model_sha256, publication, index, manifests)
            if self.store.put_if_absent(version_path(name, number), canonical_json(version_to_dict(version))):
                break
        self._add_to_index(version)
        return version

    def _add_to_index(self, version: Version) -> None:
        tag = f"{version.name}/{version.number}"
        if self.store.size(INDEX_FILE) is None:
            self.rebuild_index()
            return
        document = parse_document(self.store.get(INDEX_FILE), INDEX_FILE)
        others = [Descriptor.from_dict(item) for item in document["manifests"]]
        kept = [d for d in others if d.annotations.get(REFERENCE) != tag]
        self.store.put(INDEX_FILE, references_document([*kept, tagged(version.index, tag)]))

    def _find_publication(self, name: str, publication: str) -> Version | None:
        if not publication:
            return None
        newest = (self.version(name, number) for number in reversed(self.version_numbers(name)[-_SCAN:]))
        return next((version for version in newest if version.publication == publication), None)

    def _find_entry(self, key: str, staged: bool = False) -> Entry | None:
        try:
            data = self.store.get(artifact_path(key, staged))
        except IngotError as error:
            if error.code is ErrorCode.NOT_FOUND:
                return None
            raise
        return entry_from_dict(parse_document(data, "the artifact's record"))

    def _documents(self, version: Version, key: str) -> tuple[Descriptor, list[str]]:
        """The descriptor to tag, and the digests of everything below it."""
        index = self._blobs.path(version.index.digest).read_bytes()
        entries = read_index(index, self.trust)[1]
        chosen = [entry for entry in entries if key in ("", entry.manifest.key)]
        if not chosen:
            message = f"version {version.number} of {version.name!r} has no artifact {key}"
            raise IngotError(ErrorCode.NOT_FOUND, message, field="artifact_key")
        digests = [] if key else [version.index.digest]
        for entry in chosen:
            document = self._blobs.path(entry.descriptor.digest).read_bytes()
            _, config, layers = read_manifest(document, self.trust)
            digests += [entry.descriptor.digest, config.digest, *(layer.digest for layer in layers)]
        return (chosen[0].descriptor if key else version.index), digests

    def _signing_key(self) -> SigningKey:
        if self._signer is None:
            raise IngotError(
                ErrorCode.INTERNAL, "this repository was opened without a signing key: it can only be read"
            )
        return self._signer

    def _no_model(self, name: str) -> IngotError:
        known = ", ".join(self.models()[:20]) or "none"
        return IngotError(ErrorCode.NOT_FOUND, f"no model {name!r}", field="name", expected=f"one of {known}")
