"""How much one order may ask for: it is kept whole in Redis and in the store, and told to everyone who lists or watches jobs."""

from __future__ import annotations

from collections.abc import Sequence

from compiler_service.jobs.persistence.codec import encode
from compiler_service.jobs.persistence.seal import ORDER
from compiler_service.jobs.records import JobRecord, Submission
from shared_ir.errors import ErrorCode, IngotError

MAX_TARGETS = 64
MOST_LABELS = 64
"""Each of them is moved by itself, while a client or a worker waits."""
MOST_ORDER_BYTES = 1 << 20
"""Of all texts of an order together, so that a job with what came of it is a message that every client takes."""


def check_amounts(submission: Submission) -> None:
    """Raises IngotError: INVALID_ARGUMENT for no target, too many, or too many labels."""
    if not submission.targets:
        raise _too_many("targets", submission.targets, MAX_TARGETS, "a job needs a target", 1)
    if len(submission.targets) > MAX_TARGETS:
        raise _too_many("targets", submission.targets, MAX_TARGETS, "too many targets", 1)
    if len(submission.labels) > MOST_LABELS:
        raise _too_many("labels", submission.labels, MOST_LABELS, "too many labels", 0)


def check_size(record: JobRecord) -> None:
    """Raises IngotError LIMIT_EXCEEDED."""
    size = len(encode(record)[ORDER])
    if size > MOST_ORDER_BYTES:
        raise IngotError(
            ErrorCode.LIMIT_EXCEEDED,
            "the order of the job is too long",
            expected=f"at most {MOST_ORDER_BYTES} bytes of options, external data, targets and labels together",
            received=f"{size} bytes",
            remedy="Name fewer files of external data (a model may keep all of its weights in one), shapes or passes.",
        )


def _too_many(what: str, given: Sequence[str], most: int, message: str, least: int) -> IngotError:
    remedies = {
        "targets": "Name what to compile for, such as `x86-64-v3` or `aws/graviton3`; ListTargets lists all.",
        "labels": "Move the others with SetLabel.",
    }
    return IngotError(
        ErrorCode.INVALID_ARGUMENT,
        message,
        field=what,
        expected=f"{least} to {most}",
        received=str(len(given)),
        remedy=remedies[what],
    )
