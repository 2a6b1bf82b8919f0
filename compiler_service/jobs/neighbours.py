"""What jobs need of those around them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from compiler_service.jobs.records import JobStage, Source
from shared_ir.machine.target import Target

Member = tuple[str, int]
"""A job, and the number of a target of it or WHOLE_JOB."""


class Queue(Protocol):
    """Tells the workers that there is work."""

    def send(self, stage: JobStage, job: str, target: int) -> None:
        """A stage waits in its line; only ids travel."""

    def waiting(self) -> Mapping[str, Sequence[Member]]:
        """Jobs and targets of the messages that no worker has taken, by the names of :data:`compiler_service.jobs.line.LINES`."""


class Compiler(Protocol):
    """What a submission must know of the compiler."""

    def resolve_target(self, text: str) -> Target:
        """Raises IngotError INVALID_TARGET."""

    def normalise_options(self, options: Mapping[str, Any]) -> Mapping[str, Any]:
        """Every option that changes code, defaults filled in. Raises IngotError INVALID_ARGUMENT naming the option."""

    def artifact_key(self, source: Source, target: Target, options: Mapping[str, Any], records: bytes) -> str:
        """The key that the artifact will have."""


class SourceCatalogue(Protocol):
    """The uploaded models."""

    def require(self, source: Source) -> None:
        """Raises IngotError NOT_FOUND naming a file that was not uploaded."""


class RecordStore(Protocol):
    """Tuning records of a model on a target, as JSON bytes; empty when there are none."""

    def load(self, source: Source, target: Target) -> bytes: ...
