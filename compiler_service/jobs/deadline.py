"""By when a job has to have finished, where its order says so."""

from __future__ import annotations

import math
import time

from compiler_service.jobs.records import JobRecord
from shared_ir.errors import ErrorCode, IngotError

MOST_SECONDS = 30 * 24 * 3600.0


def check_deadline(seconds: float) -> None:
    """Raises IngotError INVALID_ARGUMENT for what is no time from an order to its deadline; 0 is none."""
    if not math.isfinite(seconds) or not 0 <= seconds <= MOST_SECONDS:
        raise IngotError(
            ErrorCode.INVALID_ARGUMENT,
            "a job cannot have this time",
            field="timeout_seconds",
            expected=f"0 (no deadline) to {MOST_SECONDS:.0f} seconds",
            received=f"{seconds:g}",
        )


def is_late(record: JobRecord) -> bool:
    return 0 < record.deadline <= time.time() and not record.state.finished


def too_late(record: JobRecord) -> IngotError:
    where = f"stage {record.stage!r}" if record.stage else "the queue"
    busy = [
        f"{target.target!r} in stage {target.stage!r}"
        for target in record.targets
        if not target.state.finished and target.stage
    ]
    return IngotError(
        ErrorCode.DEADLINE_EXCEEDED,
        f"the job had not finished at its deadline; it was in {', '.join(busy) or where}",
        field="timeout_seconds",
        expected=f"at most {record.deadline - record.created:g} seconds",
        remedy="Order it with more time, or when fewer jobs wait; what was made of it is found again.",
    )
