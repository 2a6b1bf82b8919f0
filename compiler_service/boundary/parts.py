"""What the boundary consists of, and what each part promises."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field


class BoundaryPart(enum.StrEnum):
    """A part of the boundary; the value names it in logs, metrics and errors."""

    PRIVILEGES = "privileges"
    LIMITS = "limits"
    FILES = "files"
    SYSTEM_CALLS = "system-calls"
    NETWORK = "network"
    PROCESSES = "processes"
    SIGNALS = "signals"


PROMISES: Mapping[BoundaryPart, str] = {
    BoundaryPart.PRIVILEGES: "no capabilities, and none to be had: set-user-id programs give nothing",
    BoundaryPart.LIMITS: "memory, processor time, size of files, open files and number of processes are bounded",
    BoundaryPart.FILES: "opens the toolchain and what it was given for reading, its own folder for writing, and no other file",
    BoundaryPart.SYSTEM_CALLS: "no sockets but pairs of streams, no memory of other processes, "
    "no mounts, keys, modules, tracing or asynchronous rings",
    BoundaryPart.NETWORK: "a network of its own without any interface, so that abstract Unix sockets are out of reach too",
    BoundaryPart.PROCESSES: "processes of its own: it sees no others, and all of them end with it",
    BoundaryPart.SIGNALS: "signals reach its own processes only",
}


@dataclass(frozen=True)
class Standing:
    """Which parts hold. ``missing`` says of each other part why it does not."""

    missing: Mapping[BoundaryPart, str] = field(default_factory=dict)

    @property
    def is_whole(self) -> bool:
        return not self.missing

    def holds(self, part: BoundaryPart) -> bool:
        return part not in self.missing

    def __str__(self) -> str:
        if self.is_whole:
            return f"whole ({', '.join(BoundaryPart)})"
        return "without " + "; ".join(f"{part} ({reason})" for part, reason in self.missing.items())

    def to_dict(self) -> dict[str, str]:
        return {str(part): reason for part, reason in self.missing.items()}

    @classmethod
    def from_dict(cls, document: Mapping[str, str]) -> Standing:
        return cls({BoundaryPart(name): reason for name, reason in document.items()})
