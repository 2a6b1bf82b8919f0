"""What an object store is: bytes by key, written once or replaced as a whole."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from shared_ir.errors import ErrorCode, IngotError

Data = bytes | memoryview | Path
"""The content of an object: bytes, or the file that holds them."""


_KEY = re.compile(r"[A-Za-z0-9_@+=-][A-Za-z0-9._@+=-]*(?:/[A-Za-z0-9_@+=-][A-Za-z0-9._@+=-]*)*")


@dataclass(frozen=True)
class ObjectInfo:
    """``size`` in bytes, ``modified`` in seconds since the epoch. Who writes the object anew gives it another ``tag``."""

    key: str
    size: int
    modified: float
    tag: str = ""


@dataclass(frozen=True)
class Identity:
    """Tells one state of an object from another without reading it: who writes an object anew gives it another ``tag``."""

    size: int
    tag: str
    modified: float


class DraftWriter(Protocol):
    """Goes on with a draft. What it has written is kept, however its block ends."""

    def kept(self) -> Iterator[bytes]:
        """What was there before, up to where this goes on. Before the first :meth:`write`."""

    def reserve(self) -> None:
        """From here on the draft is in the lists of the store, though it may have no bytes yet."""

    def write(self, data: bytes | memoryview) -> None:
        """The next bytes."""

    def finish(self, key: str) -> None:
        """What was kept and written becomes the object ``key``; the draft is gone.

        Raises:
            IngotError: INVALID_ARGUMENT (field ``offset``), somebody took parts of the draft away.
        """

    def drop(self) -> None:
        """Nothing of the draft stays."""


class ObjectDraft(Protocol):
    """An object that is not whole yet."""

    def held(self) -> int:
        """Bytes from its beginning on that are there."""

    def writer(self, offset: int) -> AbstractContextManager[DraftWriter]:
        """Go on at ``offset``; what is there behind it does not count any more.

        Raises:
            IngotError: INVALID_ARGUMENT (field ``offset``), there is less; UNAVAILABLE, somebody else writes it right now.
        """


class ObjectStore(Protocol):
    """Objects by key (``a/b/c``). Every method raises IngotError UNAVAILABLE when the store cannot be reached."""

    @property
    def url(self) -> str: ...

    def put(self, key: str, data: Data) -> None:
        """Write or replace; a reader sees the old object or the new one, nothing between."""

    def put_if_absent(self, key: str, data: Data) -> bool:
        """Write unless the key exists. Of several writers at once exactly one gets True, for ``bytes`` data."""

    def replace(self, key: str, data: bytes, tag: str) -> bool:
        """Write where the object is still the one that :meth:`get_tagged` gave this ``tag`` for; of several writers at once exactly
        one gets True."""

    def get(self, key: str, limit: int | None = None) -> bytes:
        """Raises IngotError NOT_FOUND; LIMIT_EXCEEDED, before it is read, when it has more than ``limit`` bytes."""

    def get_tagged(self, key: str, limit: int | None = None) -> tuple[bytes, str]:
        """As :meth:`get`, with a tag for :meth:`replace`."""

    def pieces(self, key: str) -> Iterator[bytes]:
        """The object from its beginning to its end, a piece at a time. Raises IngotError NOT_FOUND."""

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """At most ``length`` bytes from ``start``. Raises IngotError NOT_FOUND."""

    def size(self, key: str) -> int | None:
        """In bytes; None when there is no such object."""

    def identity(self, key: str) -> Identity | None:
        """None when there is no such object."""

    def list(self, prefix: str, after: str = "") -> Iterator[ObjectInfo]:
        """Objects whose key starts with ``prefix + "/"`` and comes after ``after``, in order of key. Who stops early pays for no more."""

    def keys(self, prefix: str, after: str = "") -> Iterator[str]:
        """As :meth:`list`, the keys alone."""

    def folders(self, prefix: str) -> tuple[str, ...]:
        """What follows ``prefix + "/"`` up to the next ``/`` in keys that have one, in order."""

    def delete_unused(self, key: str, before: float) -> bool:
        """Delete an object that was last written before this moment (seconds since the epoch); whether it was."""

    def delete(self, key: str) -> None:
        """Deleting what is not there is not an error."""

    def draft(self, key: str) -> ObjectDraft:
        """An object that is written piece by piece; ``key``, or what begins with ``key + "/"``, is in the lists until it is whole."""

    def local_path(self, key: str, limit: int | None = None) -> Path:
        """A local file with the object; it must not be written. Raises IngotError NOT_FOUND; LIMIT_EXCEEDED, as :meth:`get`."""

    def holding(self) -> AbstractContextManager[None]:
        """The local files that this thread is given until the end stay, though others need their room."""


def check_key(key: str) -> str:
    """Raises IngotError INVALID_ARGUMENT for a key that could leave its store or hide in it."""
    if len(key) > 512 or not _KEY.fullmatch(key):
        raise IngotError(
            ErrorCode.INVALID_ARGUMENT,
            "not a valid object key",
            expected="parts of letters, digits and ._@+=- that do not start with '.', joined by '/'",
            received=repr(key)[:200],
        )
    return key


def too_large(key: str, limit: int, size: int) -> IngotError:
    return IngotError(
        ErrorCode.LIMIT_EXCEEDED,
        f"object {key!r} of the store is larger than it may be",
        field=key,
        expected=f"at most {limit} bytes",
        received=f"{size} bytes",
    )


def not_found(key: str) -> IngotError:
    """NOTE: where the store is, is no business of clients."""
    return IngotError(ErrorCode.NOT_FOUND, f"no object {key!r} in the store", field=key)
