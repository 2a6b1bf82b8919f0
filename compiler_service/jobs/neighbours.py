"""What jobs need of those around them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

from compiler_service.jobs.records import JobStage, UploadedModel
from shared_ir.machine.target import Target

Member = tuple[str, int]
"""A job, and the number of a target of it or WHOLE_JOB."""


Addressed = tuple[str, str]
"""A line, as :data:`compiler_service.jobs.waiting.line.LINES` names it, and a kind of machine, empty for any."""


class Queue(Protocol):
    """Tells the workers that there is work."""

    def send(self, stage: JobStage, job: str, target: int, kind: str = "") -> None:
        """A stage waits in its line, for workers on a ``kind`` of machine or for any; only ids travel."""

    def waiting(self, kinds: Collection[str]) -> Mapping[Addressed, Sequence[Member]]:
        """Jobs and targets of the messages that no worker has taken, of those to any worker and to ``kinds`` of machines."""


class Compiler(Protocol):
    """What a submission must know of the compiler."""

    def resolve_target(self, text: str) -> Target:
        """Raises IngotError INVALID_TARGET."""

    def normalise_options(self, options: Mapping[str, Any]) -> Mapping[str, Any]:
        """Every option that changes code, defaults filled in. Raises IngotError INVALID_ARGUMENT naming the option."""

    def artifact_key(self, source: UploadedModel, target: Target, options: Mapping[str, Any], records: bytes) -> str:
        """The key that the artifact will have. Of ``records`` it depends on those that the compilation may use."""

    def merge_records(self, old: bytes, new: bytes) -> bytes:
        """One set of two, always written in the same way; of ``new``, which a stage left, what is no record is left out."""


class SourceCatalogue(Protocol):
    """The uploaded models."""

    def require(self, source: UploadedModel) -> None:
        """Raises IngotError NOT_FOUND naming a file that was not uploaded."""


class RecordStore(Protocol):
    """Tuning records of a model on a target, as JSON bytes; empty when there are none."""

    def load(self, source: UploadedModel, target: Target) -> bytes: ...
