"""Tuning records in the object store: one set per model and target, which many workers add to."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from compiler_service.jobs.records import UploadedModel
from compiler_service.stages.process import MOST_RECORD_BYTES
from shared_ir.digest import canonical_json, sha256_hex
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.machine.target import Target, target_to_dict
from shared_ir.storage.protocol import ObjectStore

_ATTEMPTS = 100
_PAUSE_SECONDS = 0.05
"""At most, between two attempts: of workers that began at once one is through each time."""


@dataclass(frozen=True)
class TuningStore:
    """Records as the tuner writes them; empty bytes when there are none.

    Attributes:
        merge: makes one set of two, of which only the first is known to be one.
    """

    store: ObjectStore
    merge: Callable[[bytes, bytes], bytes]

    def load(self, source: UploadedModel, target: Target) -> bytes:
        return self._tagged(_key(source, target))[0]

    def add(self, source: UploadedModel, target: Target, records: bytes) -> None:
        """Records that were found; what others have added meanwhile stays.

        Raises:
            IngotError: UNAVAILABLE, the store is away, or others write there without end.
        """
        key = _key(source, target)
        for _ in range(_ATTEMPTS):
            old, tag = self._tagged(key)
            new = self.merge(old, records)
            if new == old or (self.store.replace(key, new, tag) if tag else self.store.put_if_absent(key, new)):
                return
            time.sleep(random.uniform(0, _PAUSE_SECONDS))
        raise IngotError(
            ErrorCode.UNAVAILABLE, "tuning records cannot be added, since others add theirs all the time", field=key
        )

    def _tagged(self, key: str) -> tuple[bytes, str]:
        """The set, and what it is replaced by; no tag for one that is not there."""
        try:
            return self.store.get_tagged(key, MOST_RECORD_BYTES)
        except IngotError as error:
            if error.code is ErrorCode.NOT_FOUND:
                return b"", ""
            raise


def _key(source: UploadedModel, target: Target) -> str:
    return f"tuning/{source.digest}/{sha256_hex(canonical_json(target_to_dict(target)))}.json"
