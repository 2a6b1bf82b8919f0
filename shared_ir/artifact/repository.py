"""Published models in an object store: artifacts by key, versions by number, labels that point at versions.

    blobs/sha256/<digest>                  content, shared by all models
    artifacts/<key>.json                   what was compiled for an artifact key; `staged/`: not verified yet
    models/<name>/versions/<number>.json   a version: its signed image index
    models/<name>/labels/<label>.json      stable -> 3, signed, with a generation
    models/<name>/deleted/<number>.json    that a version was deleted, signed; `deleted-through/`: all up to it
    models/<name>/contents/<digest>.json   which version a set of artifacts is (publishing.py)
    models/<name>/bundles/<number>.json    copies of signed indexes, for lists (bundles.py)
    models/@generation.json                another text after each change, for readers to ask for (generation.py)
    audit/<day>/...                        who changed what, signed (audit.py)
    oci-layout, index.json                 the same as an OCI image layout with tags `<name>/<number>`

What the records say is taken from the signed documents that they point at (:mod:`shared_ir.artifact.proof`). ``index.json``, by which a
store on local disk is an OCI image layout, is derived on demand; nothing here reads it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from shared_ir.artifact.audit import AuditLog, Change
from shared_ir.artifact.blobs import StoreBlobs
from shared_ir.artifact.bundles import Bundles
from shared_ir.artifact.generation import tell_readers
from shared_ir.artifact.host import best_for_host
from shared_ir.artifact.labels import LabelRecords, Labels, Move, Order
from shared_ir.artifact.layout import (
    Choose,
    DirectoryBlobs,
    OpenedArtifact,
    open_descriptor,
    open_target,
    pack,
    read_references,
    read_report,
    references_document,
    tagged,
    with_report,
    write_references,
)
from shared_ir.artifact.memory import Memory
from shared_ir.artifact.oci import (
    INDEX_FILE,
    LAYOUT_DOCUMENT,
    LAYOUT_FILE,
    REFERENCE,
    Descriptor,
    Entry,
    read_index,
    read_manifest,
)
from shared_ir.artifact.proof import ProvenTarget, StoreReader
from shared_ir.artifact.published import (
    Version,
    artifact_path,
    blob_key,
    check_label,
    check_model_name,
    check_new_label,
    entry_to_dict,
    is_model_name,
)
from shared_ir.artifact.publishing import Publisher
from shared_ir.artifact.signature import SigningKey, Trust
from shared_ir.artifact.value import CompiledArtifact, Manifest
from shared_ir.digest import canonical_json
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.numerals import whole_number
from shared_ir.storage.protocol import Data, ObjectStore

__all__ = ["ArtifactRepository", "StoreBlobs", "Version", "blob_key", "check_model_name", "check_new_label"]

_LOG = logging.getLogger(__name__)
USED_SECONDS = 24 * 3600.0
"""An older record of an artifact is written again when somebody relies on it, for what collects garbage to see."""


class ArtifactRepository:
    """Publish, find and open models.

    Args:
        store: where everything is kept.
        trust: whose artifacts may be opened.
        signer: signs what is published here; None for a reader. What it signed is found where ``trust`` has it, as that of others.
        memory: what was seen of the store before; by default nothing.
    """

    def __init__(
        self, store: ObjectStore, trust: Trust, signer: SigningKey | None = None, memory: Memory | None = None
    ) -> None:
        self.store = store
        self.trust = trust
        self._signer, self._marks_use = signer, signer is not None
        self._blobs = StoreBlobs(store)
        self.proven = StoreReader(store, self.trust, memory or Memory())
        self.bundles = Bundles(self.proven)
        self.audit = AuditLog(store, self.trust)
        self._labels = LabelRecords(self.proven)
        self._publisher = Publisher(self.proven, self._blobs, self.bundles)

    def put_artifact(self, artifact: CompiledArtifact, staged: bool = False) -> None:
        """Store what was compiled, so that the same key is never compiled again. Doing it twice is harmless.

        A ``staged`` artifact was built but not verified: it is kept apart and cannot be published.

        Raises:
            IngotError: COMPILER_FAULT, its manifest has fields whose meaning would be signed unseen.
        """
        if artifact.manifest.others:
            received = ", ".join(sorted(artifact.manifest.others))[:200]
            message = "what was compiled has a manifest with unknown fields"
            raise IngotError(ErrorCode.COMPILER_FAULT, message, received=received)
        entry = pack(artifact, self.signer, self._blobs, staged)
        self._put_entry(entry, staged)

    def promote(self, key: str, report: Mapping[str, Any]) -> None:
        """The staged artifact of ``key`` was verified: from now on it can be published, with this ``report``.

        Raises:
            IngotError: NOT_FOUND.
        """
        data = self.proven.blob(self._require_entry(key, staged=True).descriptor)
        self._put_entry(with_report(data, report, self.trust, self.signer, self._blobs))

    def find_artifact(self, key: str, staged: bool = False) -> Manifest | None:
        """What was compiled for an artifact key, as it was signed; None when nothing was.

        What is found can be relied on: a key that is trusted signed it, and its blobs are there and whole.
        """
        found = self._find_target(key, staged)
        return None if found is None else found.entry.manifest

    def open_artifact(self, key: str, staged: bool = False) -> OpenedArtifact:
        """Raises IngotError NOT_FOUND and those of :func:`shared_ir.artifact.layout.open_version`."""
        return open_target(self._blobs, self._require_entry(key, staged).descriptor, self.trust, staged)

    def report(self, key: str) -> Mapping[str, Any]:
        """The compiler's report of an artifact, without anything else of it. Raises as :meth:`open_artifact`."""
        return read_report(self._blobs, self._require_entry(key).descriptor, self.trust)

    def publish(
        self,
        name: str,
        keys: Sequence[str],
        publication: str = "",
        labels: Sequence[str] = (),
        asked: float | None = None,
        by: str = "",
    ) -> Version:
        """Make the artifacts of ``keys``, one per target, a version of model ``name``, then move ``labels``.

        Artifacts that are a version of the model already stay that version, also where several publish them at once. Readers see a
        version once its record exists. ``publication`` is the id of the job; ``asked`` and ``by`` are as in
        :meth:`set_label`.

        Raises:
            IngotError: NOT_FOUND when a key was not compiled; INVALID_ARGUMENT.
        """
        check_model_name(name)
        for label in labels:
            check_new_label(label)
        by = by or (f"job {publication}" if publication else "")
        found = [target for key in keys if (target := self._find_target(key)) is not None]
        if len(found) != len(keys) or not found:
            message, expected = "a version needs an artifact for each of its targets", f"{len(keys)} artifacts"
            raise IngotError(ErrorCode.NOT_FOUND, message, expected=expected, received=str(len(found)))
        with self.proven.memory.together():
            version, is_new = self._publisher.publish(name, found, publication, self.signer)
        if is_new:
            after = version.index.digest
            self.audit.write(Change("publish", by, name, version.number, after=after), self.signer)
        for label in labels:
            self._set_label(name, label, version.number, asked, by)
        tell_readers(self.store)
        return version

    def find_version(self, name: str, keys: Sequence[str]) -> Version | None:
        """The version of a model that consists of the artifacts of ``keys``; None when none does."""
        return self._publisher.find(check_model_name(name), keys)

    def names(self) -> tuple[str, ...]:
        """Of all models, those among them that were deleted; read from the names of folders alone."""
        return tuple(filter(is_model_name, self.store.folders("models")))

    def models(self) -> tuple[str, ...]:
        """Names of all models with a version."""
        return tuple(self._models())

    def version_numbers(self, name: str) -> tuple[int, ...]:
        """Ascending. Raises IngotError ARTIFACT_UNTRUSTED when the newest that was seen before is gone."""
        return self.proven.version_numbers(check_model_name(name))

    def version(self, name: str, number: int) -> Version:
        """Raises IngotError NOT_FOUND; ARTIFACT_UNTRUSTED, ARTIFACT_CORRUPT when it is not proven to be that version."""
        try:
            return self.proven.version(check_model_name(name), number)
        except IngotError as error:
            if error.code is not ErrorCode.NOT_FOUND:
                raise
            self.proven.learn_deletion(name, number)
            known = ", ".join(map(str, self.version_numbers(name))) or "none"
            message = f"model {name!r} has no version {number}"
            raise IngotError(ErrorCode.NOT_FOUND, message, field="version", expected=f"one of {known}") from error

    def versions(self, name: str) -> tuple[Version, ...]:
        """Ascending; without those that nothing proves. Raises IngotError NOT_FOUND for an unknown model."""
        numbers = self.version_numbers(name)
        if not numbers:
            raise self.no_model(name)
        return tuple(version for number in numbers if (version := self.find_proven(name, number)))

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
        newest = self.proven.newest_number(check_model_name(name))
        if not newest:
            raise self.no_model(name)
        return self.version(name, newest)

    # ---- labels

    def labels(self, name: str) -> Mapping[str, int]:
        """Version number by label; without those that nothing proves."""
        return self._labels.all(name).numbers

    def all_labels(self, name: str) -> Labels:
        """The same, with what keeps the others from counting."""
        return self._labels.all(name)

    def set_label(
        self, name: str, label: str, number: int, asked: float | None = None, by: str = "", etag: str = ""
    ) -> None:
        """Point ``label`` at a version that exists, comparing it with what was read before it is written.

        Args:
            asked, by: when somebody asked for it, in seconds since the epoch, and who; by default now. Nothing changes where he did so
                before what is there was asked for.
            etag: that the label must have; ``0`` for none, empty for any.

        Raises:
            IngotError: NOT_FOUND; CONFLICT, the label has another etag.
        """
        self._set_label(name, label, number, asked, by, etag)
        tell_readers(self.store)  # also where it stood there: who moved it may have ended before he could

    def _set_label(self, name: str, label: str, number: int, asked: float | None, by: str, etag: str = "") -> None:
        version, order = self.version(name, number), Order(by, asked, etag)
        move = self._labels.put(name, check_new_label(label), version, self.signer, order)
        # who deletes it meanwhile looks for labels afterwards too
        if move is not None and self.proven.deletion(name, number):
            before = self.find_proven(name, move.before.number) if move.before and move.before.number else None
            self._labels.put(name, label, before, self.signer, Order(by, etag=move.after.etag))
            raise IngotError(ErrorCode.NOT_FOUND, f"version {number} of {name!r} is being deleted", field="version")
        self._log_move("set-label", name, label, move, by)

    def delete_label(self, name: str, label: str, by: str = "", etag: str = "") -> None:
        """Raises IngotError NOT_FOUND; CONFLICT, as :meth:`set_label`."""
        if not self._labels.is_there(check_model_name(name), check_label(label)):
            raise IngotError(ErrorCode.NOT_FOUND, f"model {name!r} has no label {label!r}", field="label")
        move = self._labels.put(name, label, None, self.signer, Order(by, etag=etag))
        self._log_move("delete-label", name, label, move, by)
        tell_readers(self.store)

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

    @property
    def signer(self) -> SigningKey:
        """Raises IngotError INTERNAL for a reader."""
        if self._signer is None:
            message = "this repository was opened without a signing key: it can only be read"
            raise IngotError(ErrorCode.INTERNAL, message)
        return self._signer

    def find_proven(self, name: str, number: int) -> Version | None:
        """None for a record that proves nothing, which harms itself alone."""
        try:
            return self.version(name, number)
        except IngotError as error:
            if error.code is ErrorCode.UNAVAILABLE:
                raise
            _LOG.warning("version %d of model %r is not taken: %s", number, name, error)
            return None

    # ---- parts

    def _find_target(self, key: str, staged: bool = False) -> ProvenTarget | None:
        """None unless it is whole."""
        found = self.proven.target(key, staged)
        if found is None:
            return None
        try:
            self._blobs.require_whole(found.blobs)
        except IngotError as error:
            if error.code is not ErrorCode.ARTIFACT_CORRUPT:
                raise
            _LOG.warning("artifact %s in %s is not taken: %s", key, self.store.url, error)
            return None
        if self._marks_use:
            self._mark_use(artifact_path(key, staged))
        return found

    def _mark_use(self, path: str) -> None:
        record = self.store.identity(path)
        if record is not None and record.modified < time.time() - USED_SECONDS:
            self.store.replace(path, *self.store.get_tagged(path))  # who has written it meanwhile has marked it too

    def _require_entry(self, key: str, staged: bool = False) -> Entry:
        found = self.proven.target(key, staged)
        if found is None:
            raise IngotError(ErrorCode.NOT_FOUND, f"no artifact was compiled for key {key}", field="key")
        return found.entry

    def _put_entry(self, entry: Entry, staged: bool = False) -> None:
        self.store.put(artifact_path(entry.manifest.key, staged), canonical_json(entry_to_dict(entry)))
        if not staged:
            self.store.delete(artifact_path(entry.manifest.key, staged=True))

    def _log_move(self, action: str, name: str, label: str, move: Move | None, by: str) -> None:
        if move is not None and move.is_elsewhere:
            before, after = (str(own.number) if own and own.number else "" for own in (move.before, move.after))
            self.audit.write(Change(action, by, name, move.after.number, label, before, after), self.signer)

    def _models(self) -> Iterator[str]:
        return (name for name in self.names() if any(self.store.keys(f"models/{name}/versions")))

    def _documents(self, version: Version, key: str) -> tuple[Descriptor, list[Descriptor]]:
        """The descriptor to tag, and everything below it."""
        entries = read_index(self.proven.blob(version.index), self.trust)[1]
        chosen = [entry for entry in entries if key in ("", entry.manifest.key)]
        if not chosen:
            message = f"version {version.number} of {version.name!r} has no artifact {key}"
            raise IngotError(ErrorCode.NOT_FOUND, message, field="artifact_key")
        documents = [] if key else [version.index]
        for entry in chosen:
            _, config, layers = read_manifest(self.proven.blob(entry.descriptor), self.trust)
            documents += [entry.descriptor, config, *layers]
        return (chosen[0].descriptor if key else version.index), documents

    def no_model(self, name: str) -> IngotError:
        known = ", ".join(islice(self._models(), 20)) or "none"
        return IngotError(ErrorCode.NOT_FOUND, f"no model {name!r}", field="name", expected=f"one of {known}")
