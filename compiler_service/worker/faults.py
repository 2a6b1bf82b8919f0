"""Which errors pass by themselves, and how long to wait for that. What the model is at fault for is never tried again."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from compiler_service.stages.outcome import StageError, UnseenError
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.storage.faults import NO_ROOM


@dataclass(frozen=True)
class RetryPolicy:
    """A stage is tried ``tries`` times more, ``first`` seconds after it has failed, then after twice that, at most ``most`` seconds."""

    tries: int
    first: float
    most: float

    def pause(self, tries: int) -> float | None:
        """Seconds to wait after so many tries; None when it has ended."""
        return min(self.most, self.first * 2.0 ** min(tries, 30)) if tries < self.tries else None


_OUTAGE = RetryPolicy(tries=40, first=1.0, most=30.0)
"""Some eighteen minutes: a store that is away for minutes costs minutes, not the job."""
_ACCIDENT = RetryPolicy(tries=3, first=2.0, most=10.0)

PATIENCE: Mapping[ErrorCode, RetryPolicy] = {
    ErrorCode.UNAVAILABLE: _OUTAGE,
    ErrorCode.DISK_FULL: _OUTAGE,
    ErrorCode.OUT_OF_MEMORY: _ACCIDENT,
    ErrorCode.STAGE_KILLED: _ACCIDENT,
}
_LEAST_FREE_BYTES = 1 << 20
"""Bytes without which a file system counts as full."""


def pause(error: IngotError, tries: int) -> float | None:
    """Seconds after which a stage that failed with ``error`` is tried again, having been so after ``tries`` failures of the kind; None for
    never. Each kind has its own: a stage that has waited for its store is no nearer to its end when its process is killed.

    What the process of a stage says of itself is the fault of the model or of the compiler, whatever it says.
    """
    patience = None if isinstance(error, StageError) else PATIENCE.get(error.code)
    return patience.pause(tries) if patience else None


def explain(error: Exception, work: Path) -> IngotError:
    """What ``error``, raised while a stage worked below ``work``, comes to: a full disk and a machine without memory show in many ways."""
    code = error.code if isinstance(error, IngotError) else None
    full = isinstance(error, OSError) and error.errno in NO_ROOM
    if full or (code in (None, ErrorCode.COMPILER_FAULT, ErrorCode.DISK_FULL, ErrorCode.INTERNAL) and _is_full(work)):
        return disk_full(str(work))
    if isinstance(error, MemoryError):
        return IngotError(
            ErrorCode.OUT_OF_MEMORY,
            "the worker's machine has no memory left",
            remedy="Give the workers more memory, or run fewer stages at once (INGOT_WORKERS).",
        )
    if isinstance(error, UnseenError):
        return IngotError(
            ErrorCode.STAGE_KILLED,
            "the process of the stage ended because there was no space, as it says, where there is some",
            remedy="Perhaps something else had taken it for a moment; who keeps seeing this has too small a disk below INGOT_HOME.",
        )
    if isinstance(error, IngotError):
        return error
    message = f"the worker failed: {type(error).__name__}: {error}"[:500]
    return IngotError(ErrorCode.INTERNAL, message, remedy="Submit the job again; tell the operator if it fails again.")


def disk_full(where: str) -> IngotError:
    return IngotError(
        ErrorCode.DISK_FULL,
        "the disk of the worker or of the store is full",
        field=where,
        remedy="Make room on it: working files lie below INGOT_HOME, models and artifacts in the store.",
    )


def _is_full(work: Path) -> bool:
    """Whether its file system has no room, or this user none there."""
    try:
        found = os.statvfs(work)
        if found.f_bavail * found.f_frsize < _LEAST_FREE_BYTES or (found.f_files > 0 and found.f_favail == 0):
            return True
        with tempfile.TemporaryFile(dir=work) as file:
            os.posix_fallocate(file.fileno(), 0, _LEAST_FREE_BYTES)
    except OSError as error:
        return error.errno in NO_ROOM
    return False
