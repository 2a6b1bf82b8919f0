"""Orders of jobs in the object store: what Redis forgets when it loses its data is taken from here.

    orders/open/<job>.json   a job that has not finished, as it was ordered
    orders/done/<job>.json   one that has, as it ended

An order is written before anything of the job is in Redis, and moves to the other folder once the job has finished.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from compiler_service.jobs.persistence.packing import MOST_BYTES
from shared_ir.digest import canonical_json
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.foreign_json import foreign_json
from shared_ir.storage.protocol import ObjectStore

_OPEN, _DONE = "orders/open", "orders/done"


@dataclass(frozen=True)
class Orders:
    """Every method raises IngotError UNAVAILABLE when the store cannot be reached."""

    store: ObjectStore

    def open(self, job: str, fields: Mapping[str, str]) -> bool:
        """Keep the fields of a new record; False when a job with this id was ordered before."""
        return self.store.put_if_absent(_path(_OPEN, job), canonical_json(dict(fields)))

    def close(self, job: str, fields: Mapping[str, str]) -> None:
        """The job has finished, as ``fields`` say. Doing it twice is harmless."""
        self.store.put(_path(_DONE, job), canonical_json(dict(fields)))
        self.store.delete(_path(_OPEN, job))

    def unfinished(self) -> Sequence[str]:
        """Ids of jobs whose orders are open, the oldest first."""
        found = sorted(self.store.list(_OPEN), key=lambda info: info.modified)
        return [info.key.removeprefix(f"{_OPEN}/").removesuffix(".json") for info in found]

    def find(self, job: str) -> Mapping[str, str]:
        """The fields of a job, finished or not; empty when none was ordered under this id."""
        for folder in (_OPEN, _DONE):
            try:
                found = foreign_json(self.store.get(_path(folder, job), MOST_BYTES))
            except IngotError as error:
                if error.code not in (ErrorCode.NOT_FOUND, ErrorCode.INVALID_ARGUMENT):
                    raise
                continue
            except ValueError:  # it harms itself alone
                continue
            if isinstance(found, dict) and all(isinstance(text, str) for text in found.values()):
                return found
        return {}

    def forget(self, before: float) -> int:
        """Delete what finished before ``before``, in seconds since the epoch; how many."""
        old = [info.key for info in self.store.list(_DONE) if info.modified < before]
        for key in old:
            self.store.delete(key)
        return len(old)


def _path(folder: str, job: str) -> str:
    return f"{folder}/{job}.json"
