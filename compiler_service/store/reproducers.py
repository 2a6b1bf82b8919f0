"""Reproducers of compiler faults in the object store, by job and target: ``reproducers/<job>/<number>.txt``."""

from __future__ import annotations

from dataclasses import dataclass

from shared_ir.errors import ErrorCode, IngotError
from shared_ir.storage.protocol import ObjectStore

MOST_BYTES = 4 << 20
"""Of one text: it travels in one message. A program that is longer is not kept."""


@dataclass(frozen=True)
class Reproducers:
    """Texts that a stage left; it had read a foreign model, so that they are no more than text."""

    store: ObjectStore

    def save(self, job: str, number: int, text: bytes) -> None:
        self.store.put(_key(job, number), text)

    def load(self, job: str, number: int) -> str:
        """Raises IngotError NOT_FOUND."""
        try:
            return self.store.get(_key(job, number), MOST_BYTES).decode(errors="replace")
        except IngotError as error:
            if error.code is not ErrorCode.NOT_FOUND:
                raise
            raise IngotError(
                ErrorCode.NOT_FOUND,
                f"job {job!r} has no reproducer",
                field="id",
                remedy="Jobs that end with COMPILER_FAULT in a pass of the compiler have one.",
            ) from error


def _key(job: str, number: int) -> str:
    return f"reproducers/{job}/{'whole' if number < 0 else number}.txt"
