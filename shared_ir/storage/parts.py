"""Drafts in a bucket: objects cannot grow there, so each part is one of its own, and the whole is put together in the end.

A part is named by where it starts and by its digest: two who send the same bytes write the same parts, and who sends others overwrites
none. Nothing is locked. A writer puts together what it has kept and written itself, whatever else lies there.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Protocol

from shared_ir.digest import sha256_hex
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.storage.drafts import PART, gap
from shared_ir.storage.protocol import Data, ObjectInfo

PART_BYTES = 5 * 1024 * 1024
"""Of a part, and so what a server loses when it is killed: the least that S3 takes as a part of a larger object. Smaller ones are the last
that somebody wrote."""
_LOG = logging.getLogger(__name__)


class Bucket(Protocol):
    """What a draft asks of its store."""

    @property
    def url(self) -> str: ...

    def put(self, key: str, data: Data) -> None: ...

    def put_pieces(self, key: str, pieces: Iterator[bytes]) -> None:
        """As put, of what is too large for memory; where ``pieces`` raises, nothing is written."""

    def get(self, key: str, limit: int | None = None) -> bytes: ...

    def list(self, prefix: str, after: str = "") -> Iterator[ObjectInfo]: ...

    def delete(self, key: str) -> None: ...


@dataclass(frozen=True)
class DraftPart:
    """Bytes of a draft from ``start`` to ``end``; of them those from ``first`` to ``last`` are used."""

    key: str
    start: int
    end: int
    first: int
    last: int

    @classmethod
    def of(cls, key: str, start: int, size: int) -> DraftPart:
        return cls(key, start, start + size, start, start + size)

    @property
    def is_whole(self) -> bool:
        return (self.first, self.last) == (self.start, self.end)

    def read(self, bucket: Bucket) -> bytes:
        """Raises IngotError: as :func:`shared_ir.storage.drafts.gap`, it is gone, or is not what it was."""
        sha256 = self.key.rpartition("-")[2]
        try:
            data = bucket.get(self.key, PART_BYTES)
        except IngotError as error:
            if error.code is ErrorCode.UNAVAILABLE:
                raise
            raise gap(self.start, self.end) from error
        if sha256_hex(data) != sha256:
            _LOG.warning("%s in %s is not what it was, and is deleted", self.key, bucket.url)
            bucket.delete(self.key)
            raise gap(self.start, self.end)
        return data if self.is_whole else data[self.first - self.start : self.last - self.start]


def chain(parts: Iterable[DraftPart], limit: int | None = None) -> list[DraftPart]:
    """Parts that follow on one another from the beginning, as far as they reach, or up to ``limit``."""
    found = list[DraftPart]()
    waiting = sorted(parts, key=lambda part: part.start)
    reach, farthest = 0, None
    for part in [*waiting, None]:
        if farthest is not None and (part is None or part.start > reach):
            last = farthest.end if limit is None else min(farthest.end, limit)
            found.append(replace(farthest, first=reach, last=last))
            reach, farthest = last, None
        if part is None or part.start > reach or reach == limit:
            break
        if part.end > max(reach, farthest.end if farthest else 0):
            farthest = part
    return found


@dataclass(frozen=True)
class PartsDraft:
    """Objects below the prefix ``key``."""

    bucket: Bucket
    key: str

    def held(self) -> int:
        return _reach(chain(self.parts()))

    @contextmanager
    def writer(self, offset: int) -> Iterator[PartsWriter]:
        kept = chain(self.parts(), offset) if offset else []
        if _reach(kept) < offset:
            raise gap(_reach(kept), offset)
        writer = PartsWriter(self, kept)
        try:
            yield writer
        finally:
            with suppress(IngotError):  # what cannot be kept is sent again
                writer.leave()

    def parts(self) -> list[DraftPart]:
        found = []
        for info in self.bucket.list(self.key):
            if name := PART.fullmatch(info.key.rpartition("/")[2]):
                start = int(name["start"])
                found.append(DraftPart.of(info.key, start, info.size))
        return found

    def drop(self) -> None:
        for info in list(self.bucket.list(self.key)):
            self.bucket.delete(info.key)

    def put(self, start: int, data: bytes) -> DraftPart:
        key = f"{self.key}/{start:016d}-{sha256_hex(data)}"
        self.bucket.put(key, data)
        return DraftPart.of(key, start, len(data))


class PartsWriter:
    """A :class:`shared_ir.storage.protocol.DraftWriter`."""

    def __init__(self, draft: PartsDraft, kept: list[DraftPart]) -> None:
        self._draft = draft
        self._parts = list(kept)
        self._kept = tuple(kept)
        self._waiting: list[bytes] = []
        self._size = 0
        self._reserved: DraftPart | None = None

    def kept(self) -> Iterator[bytes]:
        return (part.read(self._draft.bucket) for part in self._kept)

    def reserve(self) -> None:
        self._reserved = self._draft.put(0, b"")

    def write(self, data: bytes | memoryview) -> None:
        view = memoryview(data)
        while len(view):
            taken = view[: PART_BYTES - self._size]
            self._waiting.append(data if len(taken) == len(data) and isinstance(data, bytes) else bytes(taken))
            self._size += len(taken)
            view = view[len(taken) :]
            if self._size == PART_BYTES:
                self.flush()

    def leave(self) -> None:
        """What waits is kept; where there is nothing, no place is either."""
        self.flush()
        if self._reserved is not None and not self._parts:
            self._draft.bucket.delete(self._reserved.key)

    def flush(self) -> None:
        """What waits becomes a part."""
        if self._size:
            data = b"".join(self._waiting)
            self._waiting, self._size = [], 0
            self._parts.append(self._draft.put(_reach(self._parts), data))

    def finish(self, key: str) -> None:
        bucket = self._draft.bucket
        if not self._parts:
            bucket.put(key, b"".join(self._waiting))
            self._waiting, self._size = [], 0
        else:
            self.flush()
            with ThreadPoolExecutor(1) as reader:
                bucket.put_pieces(key, _ahead(reader, bucket, self._parts))
        self._draft.drop()

    def drop(self) -> None:
        self._waiting, self._size = [], 0
        self._draft.drop()


def _ahead(reader: ThreadPoolExecutor, bucket: Bucket, parts: list[DraftPart]) -> Iterator[bytes]:
    """What is in the parts. NOTE: read in another thread, since the client of the store asks for the next piece while it writes."""
    waiting = [reader.submit(part.read, bucket) for part in parts[:1]]
    for following in [*parts[1:], None]:
        found = waiting.pop().result()
        if following is not None:
            waiting.append(reader.submit(following.read, bucket))
        yield found
        del found


def _reach(parts: list[DraftPart]) -> int:
    return parts[-1].last if parts else 0
