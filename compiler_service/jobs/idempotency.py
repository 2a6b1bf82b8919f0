"""One order sent twice is one job: the id of a job follows from the key that its client chose."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from compiler_service.jobs.deadline import MOST_SECONDS
from compiler_service.jobs.persistence.store import JobStore
from compiler_service.jobs.records import JobRecord, Orderer, Submission
from shared_ir.digest import canonical_json, sha256_hex
from shared_ir.errors import ErrorCode, IngotError

MOST_KEY_CHARACTERS = 128
_ID_CHARACTERS = 16
_SAME_SECONDS = 1e-5
_TAKING_SECONDS, _PATIENCE_SECONDS, _SHORT_SECONDS = 30.0, 2.0, 0.01
"""A call that answers from what is known may take so long; another one with its key waits for it so long, and looks so often."""
_DOMAIN = "ingot job: "
_COLON_DOMAIN = "ingot job, key with a colon: "


def job_ids(idempotency_key: str, namespace: str = "") -> tuple[str, ...]:
    """The id of a job, and others that a version before this one gave it. Without a key, one that nobody can foresee.

    NOTE: a namespace holds no colon. So a key in a namespace begins with a name and a colon, and no key without a namespace may look so:
    those that have a colon, which clients of ours never choose, are hashed apart. Before, they were hashed like all others.

    Raises:
        IngotError: INVALID_ARGUMENT, the key is too long.
    """
    if not idempotency_key:
        return (secrets.token_hex(_ID_CHARACTERS // 2),)
    if len(idempotency_key) > MOST_KEY_CHARACTERS:
        raise IngotError(
            ErrorCode.INVALID_ARGUMENT,
            "the idempotency key is too long",
            field="idempotency_key",
            expected=f"at most {MOST_KEY_CHARACTERS} characters, such as a UUID",
            received=f"{len(idempotency_key)} characters",
        )
    if namespace:
        return (_hashed(f"{_DOMAIN}{namespace}:{idempotency_key}"),)
    if ":" not in idempotency_key:
        return (_hashed(_DOMAIN + idempotency_key),)
    return _hashed(_COLON_DOMAIN + idempotency_key), _hashed(_DOMAIN + idempotency_key)


def _hashed(text: str) -> str:
    return sha256_hex(text.encode())[:_ID_CHARACTERS]


def order_again(record: JobRecord, by: Orderer) -> Submission:
    """What was ordered with ``record``, to be ordered once more by somebody; it gets as much time as before."""
    again = Submission(
        record.name,
        record.source,
        tuple(target.target for target in record.targets),
        record.options,
        record.labels,
        timeout=min(MOST_SECONDS, _timeout(record)),
        priority=record.priority,
    )
    return by.order(again)


def same_order(record: JobRecord, submission: Submission, options: Mapping[str, Any]) -> JobRecord:
    """``record``, which must have been ordered as ``submission`` with normalised ``options`` says. Raises IngotError INVALID_ARGUMENT."""
    if (
        record.source.namespace != submission.source.namespace
    ):  # it was ordered in a version before this one: nothing of it is told
        raise IngotError(
            ErrorCode.INVALID_ARGUMENT,
            "the idempotency key cannot be used",
            field="idempotency_key",
            remedy="Make a new key, such as a UUID.",
        )
    asked = {
        "name": (record.name, submission.name),
        "source": (record.source.digest, submission.source.digest),
        "targets": ([target.target for target in record.targets], list(submission.targets)),
        "options": (dict(record.options), dict(options)),
        "labels": (list(record.labels), list(submission.labels)),
        "priority": (record.priority, submission.priority),
        "timeout_seconds": (True, _same_timeout(record, submission.timeout)),
    }
    other = [name for name, (before, now) in asked.items() if canonical_json(before) != canonical_json(now)]
    if other:
        raise IngotError(
            ErrorCode.INVALID_ARGUMENT,
            "the idempotency key was used for another request",
            field="idempotency_key",
            expected=f"the same request as that of job {record.id}",
            received=f"another {', '.join(other)}",
            remedy="Make a new key, such as a UUID, for each request.",
        )
    return record


@contextmanager
def taking(store: JobStore, job: str, submission: Submission) -> Iterator[bool]:
    """Around what answers an order from what is known: whether no other call answers one with the same key right now. Without a key
    there is none. Where the block raises, the next call may begin at once."""
    name = f"order:{job}"
    if not submission.idempotency_key:
        yield True
        return
    is_first = store.claim(name, _TAKING_SECONDS)
    try:
        yield is_first
    except BaseException:
        if is_first:
            store.give_back(name)
        raise


def taken_by_another(find: Callable[[str], JobRecord | None], job: str) -> JobRecord:
    """What another call, which is :func:`taking` it, makes of an order.

    Raises:
        IngotError: UNAVAILABLE, that takes long.
    """
    until = time.monotonic() + _PATIENCE_SECONDS
    while (found := find(job)) is None:
        if time.monotonic() > until:
            raise IngotError(
                ErrorCode.UNAVAILABLE,
                "another call takes the order with this idempotency key right now",
                field="idempotency_key",
                remedy="Send the same again in a moment.",
            )
        time.sleep(_SHORT_SECONDS)
    return found


def _timeout(record: JobRecord) -> float:
    """Seconds that it was given, 0 for any number."""
    return record.deadline - record.created if record.deadline else 0.0


def _same_timeout(record: JobRecord, seconds: float) -> bool:
    """NOTE: what was asked for is what stands between two times of day, which are doubles of less than a microsecond."""
    if not record.deadline or not seconds:
        return not record.deadline and not seconds
    return abs(_timeout(record) - seconds) < _SAME_SECONDS
