"""How a version comes to be: a number of its own, written once, and one version for what is the same.

    models/<name>/contents/<digest>.json   which version these artifacts are, or are about to be
    models/<name>/versions/<number>.json   the version: from then on it is there

Who publishes claims the content first, with the number and the signed index of the version; whoever finds a claim that nobody has
fulfilled, because its owner is slow or dead, fulfils it himself. So of many who publish the same at once all get one version.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count

from shared_ir.artifact.blobs import StoreBlobs
from shared_ir.artifact.bundles import Bundles, first_of
from shared_ir.artifact.oci import CREATED, MEDIA_INDEX, PUBLICATION, Descriptor, index_document
from shared_ir.artifact.proof import ProvenTarget, StoreReader, created_text
from shared_ir.artifact.published import SCHEMA, Version, claim_path, counted, version_path, version_to_dict
from shared_ir.artifact.signature import SigningKey
from shared_ir.artifact.signed import MAX_DOCUMENT_BYTES, parse_document
from shared_ir.digest import canonical_json, sha256_hex
from shared_ir.errors import ErrorCode, IngotError

_LOG = logging.getLogger(__name__)
_MOST_ATTEMPTS = 100
_MOST_SCANNED = 16
"""How many of the newest versions are searched for the same artifacts, of those that were published before there were claims."""


@dataclass(frozen=True)
class Claim:
    """That a content is version ``number``, whose index is ``index``. It only points, like all that is not signed."""

    number: int
    index: Descriptor
    tag: str


_FARTHEST_VERSIONS = 1_000_000
"""Versions of a model that may have been published since the newest that is known."""

Meant = tuple[Version, bytes]
"""A version that is there or may come to be, and its signed index."""


def next_number(proven: StoreReader, name: str) -> int:
    """That no version has, or had before it was deleted.

    NOTE: records that prove nothing may be those of a key that is trusted no longer, so their numbers are passed over; but not as far as
    somebody may write: one of 999999999999999999 would be the end of the model.
    """
    newest, named = proven.numbering(name)
    last = max((number for number in named if number <= newest + _FARTHEST_VERSIONS), default=newest)
    return next(number for number in count(last + 1) if number not in named)


@dataclass(frozen=True)
class Publisher:
    proven: StoreReader
    blobs: StoreBlobs
    bundles: Bundles

    def find(self, name: str, keys: Sequence[str]) -> Version | None:
        """The version of a model that consists of these artifacts; None when there is none yet."""
        return self._find(name, keys, self._claim(name, keys))

    def publish(
        self, name: str, targets: Sequence[ProvenTarget], publication: str, signer: SigningKey
    ) -> tuple[Version, bool]:
        """The version of these targets, and whether it is there since this call."""
        keys = [target.entry.manifest.key for target in targets]
        claim = self._claim(name, keys)
        found = self._find(name, keys, claim)
        if found is not None:
            return found, False
        for _ in range(_MOST_ATTEMPTS):
            meant = None if claim is None else self._meant(name, keys, claim)
            fulfilled = None if meant is None else self._fulfil(meant)
            if fulfilled is None:  # what there is cannot be, so it is replaced
                meant = self._put_claim(name, targets, publication, signer, claim)
                fulfilled = None if meant is None else self._fulfil(meant)
            if fulfilled is not None:
                return fulfilled
            claim = self._claim(name, keys)
        message = f"others publish versions of model {name!r} all the time"
        raise IngotError(ErrorCode.UNAVAILABLE, message, remedy="Try again in a moment.")

    def _find(self, name: str, keys: Sequence[str], claim: Claim | None) -> Version | None:
        if claim is None:
            return self._older(name, keys)
        meant = self._proven(name, keys, claim)
        return meant[0] if meant and self._is_there(meant[0]) and self._is_whole(meant) else None

    def _put_claim(
        self, name: str, targets: Sequence[ProvenTarget], publication: str, signer: SigningKey, before: Claim | None
    ) -> Meant | None:
        """What is claimed in place of ``before``; None where somebody else was faster, whose claim is what there is."""
        number = next_number(self.proven, name)
        facts = {CREATED: created_text(time.time())} | ({PUBLICATION: publication} if publication else {})
        entries = [target.entry for target in targets]
        data = index_document(name, str(number), entries, signer, facts)
        index = Descriptor.of(MEDIA_INDEX, data)
        self.blobs.put(index.digest, data)
        claim = canonical_json({"schema": SCHEMA, "number": number, "index": index.to_dict()})
        path = claim_path(name, _content([entry.manifest.key for entry in entries]))
        store = self.proven.store
        if not (store.put_if_absent(path, claim) if before is None else store.replace(path, claim, before.tag)):
            return None
        return self.proven.version_meant(name, number, index, data), data

    def _meant(self, name: str, keys: Sequence[str], claim: Claim) -> Meant | None:
        """What a claim promises and can still be: its number was not deleted, and its blobs are whole."""
        meant = self._proven(name, keys, claim)
        return meant if meant and not self.proven.was_deleted(name, claim.number) and self._is_whole(meant) else None

    def _fulfil(self, meant: Meant) -> tuple[Version, bool] | None:
        """Write the record of a version, and whether it was not there; None when it cannot be: its number is taken, or was deleted."""
        version, data = meant
        store, path = self.proven.store, version_path(version.name, version.number)
        is_new = store.put_if_absent(path, canonical_json(version_to_dict(version)))
        if not is_new and not self._is_there(version):
            return None
        if self.proven.deletion(version.name, version.number):  # in between
            store.delete(path)
            return None
        self.bundles.change(version.name, {version.number: data})
        self.proven.saw(version)
        return version, is_new

    def _is_there(self, version: Version) -> bool:
        """Whether the record of the version's number is of this very version."""
        try:
            return self.proven.version(version.name, version.number).index.digest == version.index.digest
        except IngotError as error:
            if error.code is ErrorCode.UNAVAILABLE:
                raise
            return False

    def _is_whole(self, meant: Meant) -> bool:
        """Whether every blob of a version can be read. One that is spoiled is no answer: the artifacts, which are whole, become another.

        NOTE: the manifests of a version are not always those of the cache: what is compiled again is signed anew.
        """
        version, data = meant
        try:
            self.blobs.require_whole(self.proven.blobs_of(version.index, data))
        except IngotError as error:
            if error.code is ErrorCode.UNAVAILABLE:
                raise
            _LOG.warning("version %d of model %r is not whole: %s", version.number, version.name, error)
            return False
        return True

    def _proven(self, name: str, keys: Sequence[str], claim: Claim) -> Meant | None:
        try:
            data = self.proven.blob(claim.index)
            version = self.proven.version_meant(name, claim.number, claim.index, data)
        except IngotError as error:
            if error.code is ErrorCode.UNAVAILABLE:
                raise
            _LOG.warning("the claim of version %d of model %r is not taken: %s", claim.number, name, error)
            return None
        return (version, data) if _keys(version) == sorted(keys) else None

    def _claim(self, name: str, keys: Sequence[str]) -> Claim | None:
        path = claim_path(name, _content(keys))
        try:
            data, tag = self.proven.store.get_tagged(path, MAX_DOCUMENT_BYTES)
        except IngotError as error:
            if error.code is ErrorCode.NOT_FOUND:
                return None
            raise
        try:
            document = parse_document(data, path)
            return Claim(counted(document.get("number"), path), Descriptor.from_dict(document.get("index")), tag)
        except IngotError:
            return Claim(0, Descriptor("", "sha256:" + "0" * 64, 0, {}), tag)  # proves nothing, and is replaced

    def _older(self, name: str, keys: Sequence[str]) -> Version | None:
        """A version of these artifacts without a claim: from before there were any. What is in a bundle has one."""
        copies: dict[int, Mapping[str, str]] = {}
        for number in reversed(self.proven.version_numbers(name, self.proven.newest_bundle(name) - 1)[-_MOST_SCANNED:]):
            first = first_of(number)
            if first not in copies:
                copies[first] = self.bundles.copies(name, first)
            if str(number) in copies[first]:
                continue
            try:
                version = self.proven.version(name, number)
            except IngotError as error:
                if error.code is ErrorCode.UNAVAILABLE:
                    raise
                continue
            if _keys(version) == sorted(keys) and self._is_whole((version, self.proven.blob(version.index))):
                return version
        return None


def _keys(version: Version) -> list[str]:
    return sorted(manifest.key for manifest in version.targets)


def _content(keys: Sequence[str]) -> str:
    """Names a set of artifacts."""
    return sha256_hex(canonical_json(sorted(keys)))
