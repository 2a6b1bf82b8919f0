"""From what a store holds to what it has been proven to hold: the one place where a record of a store becomes a fact.

Records (``artifacts/*.json``, ``models/*/versions/*.json``) only point: every field but the digest in them is read again from the signed
document behind it, and that document must say that it is what was asked for. Labels are signed themselves. A record that proves
nothing is none.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeVar

from shared_ir.artifact.memory import Memory
from shared_ir.artifact.oci import (
    CREATED,
    MEDIA_INDEX,
    MEDIA_MANIFEST,
    PUBLICATION,
    TITLE,
    VERSION,
    Descriptor,
    Entry,
    read_index,
    read_manifest,
)
from shared_ir.artifact.published import (
    Deletion,
    PublishedLabel,
    Version,
    artifact_path,
    blob_key,
    deletion_path,
    label_path,
    read_deletion,
    read_label,
    version_path,
)
from shared_ir.artifact.signature import Trust
from shared_ir.artifact.signed import MAX_DOCUMENT_BYTES, corrupt, parse_document
from shared_ir.digest import digest_of
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.storage.protocol import ObjectStore

_LOG = logging.getLogger(__name__)
_MOST_KNOWN = 4096
_MOST_CHANGES = 16
"""Times that what is read is read again, since others change it."""
T = TypeVar("T")
_NO_NUMBER = 10**18


@dataclass(frozen=True)
class ProvenTarget:
    """What was compiled for a key: its entry in an index, and the blobs below its manifest."""

    entry: Entry
    blobs: tuple[Descriptor, ...]


@dataclass
class ProofCache:
    """What was proven of some bytes, for as long as the same keys are trusted: a list shows the same versions again and again."""

    _found: OrderedDict[tuple[object, ...], Any] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def find(self, trust: Trust, place: tuple[object, ...], prove: Callable[[], T]) -> T:
        key = (*place, *sorted(trust.keys))
        with self._lock:
            if key in self._found:
                self._found.move_to_end(key)
                found: T = self._found[key]
                return found
        found = prove()
        with self._lock:
            self._found[key] = found
            if len(self._found) > _MOST_KNOWN:
                self._found.popitem(last=False)
        return found


@dataclass(frozen=True)
class StoreReader:
    """What is proven of a store, by the keys of ``trust`` and by what ``memory`` has seen of it before."""

    store: ObjectStore
    trust: Trust
    memory: Memory
    known: ProofCache = field(default_factory=ProofCache)

    def target(self, key: str, staged: bool = False) -> ProvenTarget | None:
        """What was compiled for an artifact key; None when nothing was, or when what lies there is not proven to be that."""
        path = artifact_path(key, staged)
        try:
            descriptor = _pointer(self._document(path, "the artifact's record").get("descriptor"), MEDIA_MANIFEST)
            manifest, config, layers = read_manifest(self.blob(descriptor), self.trust, staged)
            if manifest.key != key:
                raise corrupt("an artifact lies under the key of another", expected=key, received=manifest.key)
        except IngotError as error:
            if error.code is not ErrorCode.NOT_FOUND:
                if error.code is ErrorCode.UNAVAILABLE:
                    raise
                _LOG.warning("%s in %s is not taken: %s", path, self.store.url, error)
            return None
        return ProvenTarget(Entry(descriptor, manifest), (config, *layers))

    def version(self, name: str, number: int) -> Version:
        """A version of a model.

        Raises:
            IngotError: NOT_FOUND; ARTIFACT_CORRUPT, ARTIFACT_UNTRUSTED.
        """

        def read() -> Version:
            record = self._document(version_path(name, number), "the version's record")
            index = _pointer(record.get("index"), MEDIA_INDEX)
            return self.version_of(name, number, index, self.blob(index), record.get("created"))

        return self._settled(read)

    def version_of(self, name: str, number: int, index: Descriptor, data: bytes, recorded: Any = None) -> Version:
        """The version that ``data`` is the index of, which is there, and remembered from now on.

        Raises:
            IngotError: ARTIFACT_CORRUPT, ARTIFACT_UNTRUSTED.
        """
        version = self.version_meant(name, number, index, data, recorded)
        if self._saw_deleted(name, number):
            raise self.memory.came_back(f"{self.store.url}/{version_path(name, number)}")
        self.saw(version)
        return version

    def saw(self, version: Version) -> None:
        """Remember that a version is, or was, there. Raises IngotError ARTIFACT_UNTRUSTED, another one of its number was."""
        name, number, digest = version.name, version.number, version.index.digest
        self.memory.refuse_older(f"{self.store.url}/{version_path(name, number)}", number, digest)
        newest = self.memory.seen(self._versions(name))
        if newest is None or number > newest.generation:
            self.memory.refuse_older(self._versions(name), number, digest)

    def version_meant(self, name: str, number: int, index: Descriptor, data: bytes, recorded: Any = None) -> Version:
        """The version that ``data`` is, or will be, the index of. Raises IngotError as :meth:`version_of`."""
        place = (name, number, index.digest, digest_of(data), str(recorded))
        return self.known.find(self.trust, place, lambda: self._version_meant(name, number, index, data, recorded))

    def _version_meant(self, name: str, number: int, index: Descriptor, data: bytes, recorded: Any) -> Version:
        facts, entries = read_index(data, self.trust)
        for annotation, wanted in ((TITLE, name), (VERSION, str(number))):
            if facts.get(annotation) != wanted:
                received = facts.get(annotation, "")
                raise corrupt("the index belongs to another version", expected=wanted, received=received)
        manifests = tuple(entry.manifest for entry in entries)
        created = _seconds(facts.get(CREATED), recorded)
        publication = facts.get(PUBLICATION, "")
        return Version(name, number, created, manifests[0].model_sha256, publication, index, manifests)

    def version_numbers(self, name: str, after: int = 0) -> tuple[int, ...]:
        """Of the records that there are, ascending; only those above ``after``.

        Raises:
            IngotError: ARTIFACT_UNTRUSTED, the newest that was ever seen is neither among them nor was it deleted.
        """

        def read() -> tuple[int, ...]:
            found = self._numbers(f"models/{name}/versions", after)
            newest = self.memory.seen(self._versions(name))
            gone = newest is not None and newest.generation > after and newest.generation not in found
            if newest is not None and gone and not self.learn_deletion(name, newest.generation):
                received = f"version {found[-1]}" if found else "none"
                raise self.memory.went_back(self._versions(name), f"version {newest.generation}", received)
            return found

        return self._settled(read)

    def numbers_between(self, name: str, after: int, before: int) -> tuple[int, ...]:
        """Of the records that there are above ``after`` and below ``before``, ascending."""
        return self._numbers(f"models/{name}/versions", after, before)

    def newest_number(self, name: str) -> int:
        """0 when there is no version. Reads the names of the newest alone, as far as versions have been published in bundles."""
        start = self.newest_bundle(name)
        found = self.version_numbers(name, start - 1) or (self.version_numbers(name) if start > 1 else ())
        return found[-1] if found else 0

    def numbering(self, name: str) -> tuple[int, frozenset[int]]:
        """The newest version that is proven, was seen, or of which it is signed that it was deleted (0: none), and the numbers above it by
        which records of versions and of deletions are named, whatever they prove."""
        start, seen = self.newest_bundle(name), self.memory.seen(self._versions(name))
        least = seen.generation if seen else 0
        numbers = self.version_numbers(name, start - 1)
        known = self._newest_proven(name, numbers, least)
        if known == 0 and start > 1:
            numbers = self.version_numbers(name)
            known = self._newest_proven(name, numbers, least)
        folders = (f"models/{name}/{folder}" for folder in ("deleted", "deleted-through"))
        deleted = sorted(number for folder in folders for number in self._numbers(folder, known))
        known = next((number for number in reversed(deleted) if self.deletion(name, number)), known)
        return known, frozenset(number for number in (*numbers, *deleted) if number > known)

    def _newest_proven(self, name: str, numbers: Sequence[int], least: int) -> int:
        """The newest of ``numbers`` above ``least`` whose version is proven; ``least`` where none is."""
        for number in reversed(numbers):
            if number <= least:
                break
            try:
                return self.version(name, number).number
            except IngotError as error:
                if error.code is ErrorCode.UNAVAILABLE:
                    raise
        return least

    def newest_bundle(self, name: str) -> int:
        """The first version of the newest bundle, 1 when there is none."""
        return max(self._numbers(f"models/{name}/bundles", 0), default=1)

    def deletion(self, name: str, number: int) -> Deletion | None:
        """The signed word that a version was deleted; None when it was not."""
        own = self._deletion(name, number, number)
        if own is not None:
            return own
        ranges = (self._deletion(name, last, 0) for last in self._numbers(f"models/{name}/deleted-through", number - 1))
        return next((found for found in ranges if found is not None and found.first <= number), None)

    def models_seen(self) -> frozenset[str]:
        """Names of all models that were ever seen. Raises IngotError ARTIFACT_UNTRUSTED, what was seen cannot be read."""
        return self.memory.below(f"{self.store.url}/models/")

    def was_deleted(self, name: str, number: int) -> bool:
        """Whether that is signed, or was when it was last looked at."""
        return self._saw_deleted(name, number) or self.deletion(name, number) is not None

    def learn_deletion(self, name: str, number: int) -> bool:
        """Whether a version whose record is gone was deleted. It is remembered, so that who puts the record back is refused.

        NOTE: as long as the record is there its deletion may be taken back, for the sake of a label.
        """
        found = self.deletion(name, number)
        if found is not None:
            self.remember_deletion(found)
        return found is not None

    def remember_deletion(self, deletion: Deletion) -> None:
        """It is done, and cannot be undone any more."""
        name, last = deletion.name, deletion.number
        if deletion.first == 1 and last > 1:
            self.memory.remember(self._through(name), last)
        else:
            self.memory.remember(self._gone(name, last), last)

    def learn_ranges(self, name: str) -> None:
        """Remember the deletions of the whole model, where its records are gone."""
        ranges = self._numbers(f"models/{name}/deleted-through", 0)
        for found in (self._deletion(name, 1, 1), *(self._deletion(name, last, 0) for last in ranges)):
            if found is not None and self.store.size(version_path(name, found.number)) is None:
                self.remember_deletion(found)

    def _saw_deleted(self, name: str, number: int) -> bool:
        through = self.memory.seen(self._through(name))
        return (through is not None and number <= through.generation) or bool(
            self.memory.seen(self._gone(name, number))
        )

    def _through(self, name: str) -> str:
        return f"{self.store.url}/models/{name}/deleted-through"

    def _gone(self, name: str, number: int) -> str:
        return f"{self.store.url}/{deletion_path(name, number, number)}"

    def _deletion(self, name: str, last: int, first: int) -> Deletion | None:
        path = deletion_path(name, last, first)
        try:
            return read_deletion(self.store.get(path, MAX_DOCUMENT_BYTES), self.trust, name, last)
        except IngotError as error:
            if error.code is ErrorCode.UNAVAILABLE:
                raise
            if error.code is not ErrorCode.NOT_FOUND:
                _LOG.warning("%s in %s is not taken: %s", path, self.store.url, error)
            return None

    def label(self, name: str, label: str) -> PublishedLabel | None:
        """A label, None when there is none; one that was taken away is of version 0.

        Raises:
            IngotError: ARTIFACT_CORRUPT, ARTIFACT_UNTRUSTED: it is not signed, is another one's, or is older than one seen before.
        """

        def read() -> PublishedLabel | None:
            try:
                data = self.store.get(label_path(name, label), MAX_DOCUMENT_BYTES)
            except IngotError as error:
                if error.code is not ErrorCode.NOT_FOUND:
                    raise
                return None
            return self.label_of(name, label, data)

        return self._settled(read)

    def label_of(self, name: str, label: str, data: bytes) -> PublishedLabel:
        """The label that ``data`` is the document of. Raises IngotError as :meth:`label`."""
        digest = digest_of(data)
        found = self.known.find(self.trust, (name, label, digest), lambda: read_label(data, self.trust, name, label))
        self.memory.refuse_older(f"{self.store.url}/{label_path(name, label)}", found.generation, digest)
        if found.number:
            self.memory.refuse_older(f"{self.store.url}/{version_path(name, found.number)}", found.number, found.index)
        return found

    def next_generation(self, name: str, label: str) -> int:
        """More than any that was seen of a label: microseconds since the epoch, so that it is so for those too who saw more."""
        before = self.memory.seen(f"{self.store.url}/{label_path(name, label)}")
        return max(before.generation + 1 if before else 0, time.time_ns() // 1000)

    def blob(self, descriptor: Descriptor) -> bytes:
        """The bytes of a signed document, as its descriptor says. Raises IngotError ARTIFACT_CORRUPT."""
        key = blob_key(descriptor.digest)
        try:
            data = self.store.get(key, MAX_DOCUMENT_BYTES)
        except IngotError as error:
            if error.code is ErrorCode.NOT_FOUND:
                raise corrupt("a blob of the artifact is missing", field=f"{self.store.url}/{key}") from error
            raise
        if digest_of(data) != descriptor.digest or len(data) != descriptor.size:
            received = digest_of(data)
            raise corrupt("a blob is not what it was when it was signed", expected=descriptor.digest, received=received)
        return data

    def blobs_of(self, index: Descriptor, data: bytes) -> tuple[Descriptor, ...]:
        """Every blob of the version that ``data`` is the index of, itself included. Raises IngotError as :meth:`blob`."""
        found = [index]
        for entry in read_index(data, self.trust)[1]:
            found += [entry.descriptor, *self._below(entry.descriptor)]
        return tuple(found)

    def _below(self, manifest: Descriptor) -> tuple[Descriptor, ...]:
        def read() -> tuple[Descriptor, ...]:
            _, config, layers = read_manifest(self.blob(manifest), self.trust)
            return (config, *layers)

        return self.known.find(self.trust, ("below", manifest.digest), read)

    def _settled(self, read: Callable[[], T]) -> T:
        """``read()``; once more where it was refused for what somebody else remembered after it had read: he changed it meanwhile."""
        for _ in range(_MOST_CHANGES):
            before = self.memory.changes
            try:
                return read()
            except IngotError as error:
                if error.code is not ErrorCode.ARTIFACT_UNTRUSTED or self.memory.changes == before:
                    raise
        return read()

    def _document(self, path: str, what: str) -> dict[str, Any]:
        return parse_document(self.store.get(path, MAX_DOCUMENT_BYTES), what)

    def _numbers(self, folder: str, after: int, before: int = _NO_NUMBER) -> tuple[int, ...]:
        """The numbers that objects in a folder are named by, ascending."""
        first = f"{folder}/{after:08d}.json" if after > 0 else ""
        found = set()
        for key in self.store.keys(folder, first):
            stem = key.removeprefix(f"{folder}/").removesuffix(".json")
            if len(stem) <= 18 and stem.isascii() and stem.isdecimal():
                if int(stem) >= before:
                    break
                found.add(int(stem))
        return tuple(sorted(number for number in found if number > max(after, 0)))

    def _versions(self, name: str) -> str:
        return f"{self.store.url}/models/{name}/versions"


def _pointer(data: Any, media_type: str) -> Descriptor:
    descriptor = Descriptor.from_dict(data)
    if descriptor.media_type != media_type:
        raise corrupt("a record points at something else", expected=media_type, received=descriptor.media_type)
    return descriptor


def _seconds(signed: str | None, recorded: Any) -> float:
    """When a version was made, in seconds since the epoch. Older indexes do not say; for showing, their record may."""
    if signed is None:
        return float(recorded) if isinstance(recorded, int | float) else 0.0
    try:
        return datetime.fromisoformat(signed).timestamp()
    except ValueError as error:
        raise corrupt("the time of a version is none", received=signed) from error


def created_text(seconds: float) -> str:
    """As RFC 3339 has it, which an index is signed with."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="microseconds")
