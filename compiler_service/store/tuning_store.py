"""Tuning records in the object store: one set per model and target."""

from __future__ import annotations

from dataclasses import dataclass

from compiler_service.jobs.records import UploadedModel
from compiler_service.stages.process import MOST_RECORD_BYTES
from shared_ir.digest import canonical_json, sha256_hex
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.machine.target import Target, target_to_dict
from shared_ir.storage.protocol import ObjectStore


@dataclass(frozen=True)
class TuningStore:
    """Records as the tuner writes them; empty bytes when there are none."""

    store: ObjectStore

    def load(self, source: UploadedModel, target: Target) -> bytes:
        try:
            return self.store.get(_key(source, target), MOST_RECORD_BYTES)
        except IngotError as error:
            if error.code is ErrorCode.NOT_FOUND:
                return b""
            raise

    def save(self, source: UploadedModel, target: Target, records: bytes) -> None:
        if records:
            self.store.put(_key(source, target), records)


def _key(source: UploadedModel, target: Target) -> str:
    return f"tuning/{source.digest}/{sha256_hex(canonical_json(target_to_dict(target)))}.json"
