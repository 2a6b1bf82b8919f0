"""The blobs of an object store: written once, and whole whenever somebody relies on them."""

from __future__ import annotations

import hashlib
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from shared_ir.artifact.oci import Descriptor
from shared_ir.artifact.published import blob_key
from shared_ir.artifact.signed import corrupt
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.storage.protocol import Data, Identity, ObjectStore

FRESH_SECONDS = 1800.0
"""A blob that is older than this is written again when somebody stores it once more: what collects garbage sees that it is in use."""
_MOST_REMEMBERED = 100_000
"""Blobs whose digest was taken; the least recently used are forgotten first."""


@dataclass
class StoreBlobs:
    """The blobs of an object store.

    The digest of each is taken once for each state that its object is in, so that looking whether an artifact is whole costs
    a question for its size and no more.
    """

    store: ObjectStore
    _whole: OrderedDict[str, str] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def put(self, digest: str, data: Data) -> None:
        """What lies there already stays, where it is whole and fresh."""
        key = blob_key(digest)
        found = self.store.identity(key)
        if found is None:
            if self.store.put_if_absent(key, data):
                return
            found = self.store.identity(key)
        if found is None or found.modified < time.time() - FRESH_SECONDS or not self._is_whole(digest, found):
            self.store.put(key, data)

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

    def require_whole(self, descriptors: Iterable[Descriptor]) -> None:
        """Raises IngotError ARTIFACT_CORRUPT for a blob that is missing, or not what it was when it was signed."""
        for descriptor in descriptors:
            where = f"{self.store.url}/{blob_key(descriptor.digest)}"
            found = self.store.identity(blob_key(descriptor.digest))
            if found is None:
                raise corrupt("a blob of the artifact is missing", field=where)
            if found.size != descriptor.size:
                expected, received = f"{descriptor.size} bytes", f"{found.size} bytes"
                raise corrupt("a blob has the wrong size", field=where, expected=expected, received=received)
            if not self._is_whole(descriptor.digest, found):
                raise corrupt("a blob is not what it was when it was signed", field=where, expected=descriptor.digest)

    def _is_whole(self, digest: str, found: Identity) -> bool:
        """NOTE: one at a time, so that of many who ask for the same large blob at once one reads it."""
        if self._knows(digest, found):
            return True
        with self._lock:
            if self._knows(digest, found):
                return True
            received = hashlib.sha256()
            for piece in self.store.pieces(blob_key(digest)):
                received.update(piece)
            if f"sha256:{received.hexdigest()}" != digest:
                return False
            self._whole[digest] = found.tag
            if len(self._whole) > _MOST_REMEMBERED:
                self._whole.popitem(last=False)
            return True

    def _knows(self, digest: str, found: Identity) -> bool:
        return self._whole.get(digest) == found.tag
