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

from shared_ir.artifact.blobs import StoreBlobs
from shared_ir.artifact.bundles import Bundles, first_of
from shared_ir.artifact.layout import pack_index
from shared_ir.artifact.oci import CREATED, PUBLICATION, Descriptor
from shared_ir.artifact.proof import StoreReader, Target, created_text
from shared_ir.artifact.published import SCHEMA, Version, claim_path, version_path, version_to_dict
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


@dataclass(frozen=True)
class Publisher:
    proven: StoreReader
    blobs: StoreBlobs
    bundles: Bundles

    def find(self, name: str, keys: Sequence[str]) -> Version | None:
        """The version of a model that consists of these artifacts; None when there is none yet."""
        claim = self._claim(name, _content(keys))
        if claim is None:
            return self._older(name, keys)
        version = self._proven(name, claim)
        return version if version and _keys(version) == sorted(keys) and self._is_there(version) else None

    def publish(
        self, name: str, targets: Sequence[Target], publication: str, signer: SigningKey
    ) -> tuple[Version, bool]:
        """The version of these targets, and whether it is there since this call."""
        keys = [target.entry.manifest.key for target in targets]
        found = self.find(name, keys)
        if found is not None:
            return found, False
        for _ in range(_MOST_ATTEMPTS):
            claim = self._claim(name, _content(keys))
            fulfilled = None if claim is None else self._fulfil(name, claim, keys)
            if fulfilled is not None:
                version, is_new = fulfilled
                self.bundles.change(name, {version.number: self.proven.blob(version.index)})
                return version, is_new
            self._put_claim(name, targets, publication, signer, claim)
        message = f"others publish versions of model {name!r} all the time"
        raise IngotError(ErrorCode.UNAVAILABLE, message, remedy="Try again in a moment.")

    def _put_claim(
        self, name: str, targets: Sequence[Target], publication: str, signer: SigningKey, before: Claim | None
    ) -> None:
        """Where somebody else is faster, his claim is what there is."""
        number = self.proven.next_number(name)
        facts = {CREATED: created_text(time.time())} | ({PUBLICATION: publication} if publication else {})
        entries = [target.entry for target in targets]
        index = pack_index(name, str(number), entries, signer, self.blobs, facts)
        data = canonical_json({"schema": SCHEMA, "number": number, "index": index.to_dict()})
        path = claim_path(name, _content([entry.manifest.key for entry in entries]))
        if before is None:
            self.proven.store.put_if_absent(path, data)
        else:
            self.proven.store.replace(path, data, before.tag)

    def _fulfil(self, name: str, claim: Claim, keys: Sequence[str]) -> tuple[Version, bool] | None:
        """Write the record that the claim promises, and whether it was not there; None when it cannot be: its number is taken, or it
        was deleted, or it proves nothing."""
        version = self._proven(name, claim)
        if version is None or _keys(version) != sorted(keys) or self.proven.deletion(name, claim.number):
            return None
        record = canonical_json(version_to_dict(version))
        is_new = self.proven.store.put_if_absent(version_path(name, version.number), record)
        if not self._is_there(version):
            return None
        if self.proven.deletion(name, claim.number):  # in between
            self.proven.store.delete(version_path(name, version.number))
            return None
        return version, is_new

    def _is_there(self, version: Version) -> bool:
        """Whether the record of the version's number is of this very version."""
        try:
            return self.proven.version(version.name, version.number).index.digest == version.index.digest
        except IngotError as error:
            if error.code is ErrorCode.UNAVAILABLE:
                raise
            return False

    def _proven(self, name: str, claim: Claim) -> Version | None:
        try:
            return self.proven.version_meant(name, claim.number, claim.index, self.proven.blob(claim.index))
        except IngotError as error:
            if error.code is ErrorCode.UNAVAILABLE:
                raise
            _LOG.warning("the claim of version %d of model %r is not taken: %s", claim.number, name, error)
            return None

    def _claim(self, name: str, content: str) -> Claim | None:
        path = claim_path(name, content)
        try:
            data, tag = self.proven.store.get_tagged(path, MAX_DOCUMENT_BYTES)
        except IngotError as error:
            if error.code is ErrorCode.NOT_FOUND:
                return None
            raise
        try:
            document = parse_document(data, path)
            return Claim(int(document["number"]), Descriptor.from_dict(document.get("index")), tag)
        except (IngotError, KeyError, TypeError, ValueError):
            return Claim(0, Descriptor("", "sha256:" + "0" * 64, 0, {}), tag)  # proves nothing, and is replaced

    def _older(self, name: str, keys: Sequence[str]) -> Version | None:
        """A version of these artifacts without a claim: from before there were any. What is in a bundle has one."""
        copies: dict[int, Mapping[str, str]] = {}
        for number in reversed(self.proven.version_numbers(name, self.proven.newest_bundle(name) - 1)[-_MOST_SCANNED:]):
            first = first_of(number)
            if str(number) in copies.setdefault(first, self.bundles.copies(name, first)):
                continue
            try:
                version = self.proven.version(name, number)
            except IngotError as error:
                if error.code is ErrorCode.UNAVAILABLE:
                    raise
                continue
            if _keys(version) == sorted(keys):
                return version
        return None


def _keys(version: Version) -> list[str]:
    return sorted(manifest.key for manifest in version.targets)


def _content(keys: Sequence[str]) -> str:
    """Names a set of artifacts."""
    return sha256_hex(canonical_json(sorted(keys)))
