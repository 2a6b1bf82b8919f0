"""Objects on their way into a store: written piece by piece, by one process after another, until they are whole.

What a draft has is in the store itself, so whoever reaches the store can go on with it. In a folder it is one file that grows and is
renamed in the end; a bucket, whose objects cannot grow, has an object for each part (:mod:`shared_ir.storage.parts`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import groupby

from shared_ir.errors import ErrorCode, IngotError
from shared_ir.storage.protocol import ObjectInfo

PART = re.compile(r"(?P<start>\d{16})-(?P<sha256>[0-9a-f]{64})")
"""Name of a part below its draft: where it starts, and what it is."""


def gap(held: int, offset: int) -> IngotError:
    """An upload that cannot go on where it says."""
    return IngotError(
        ErrorCode.INVALID_ARGUMENT,
        "the upload resumes after a gap",
        field="offset",
        expected=f"at most {held}",
        received=str(offset),
        remedy="Ask QueryUpload where to resume.",
    )


def draft_of(key: str) -> str:
    """The draft that the object ``key`` belongs to."""
    draft, _, name = key.rpartition("/")
    return draft if PART.fullmatch(name) else key


def abandoned(found: Iterable[ObjectInfo], before: float) -> Iterator[ObjectInfo]:
    """Of objects of drafts, in order of key, those of drafts that nobody has written to since ``before`` (seconds since the epoch)."""
    for _, own in groupby(found, key=lambda info: draft_of(info.key)):
        objects = list(own)
        if max(info.modified for info in objects) < before:
            yield from objects
