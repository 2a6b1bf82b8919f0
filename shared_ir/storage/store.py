"""Object storage: where models and artifacts live. The truth of the platform; Redis only speeds it up."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlsplit

from shared_ir.errors import ErrorCode, IngotError
from shared_ir.extras import needing
from shared_ir.storage.files import create_atomically, write_atomically

Data = bytes | memoryview | Path
"""The content of an object: bytes, or the file that holds them."""

_KEY = re.compile(r"[A-Za-z0-9_@+=-][A-Za-z0-9._@+=-]*(?:/[A-Za-z0-9_@+=-][A-Za-z0-9._@+=-]*)*")


@dataclass(frozen=True)
class ObjectInfo:
    """``size`` in bytes, ``modified`` in seconds since the epoch."""

    key: str
    size: int
    modified: float


class ObjectStore(Protocol):
    """Objects by key (``a/b/c``). Every method raises IngotError UNAVAILABLE when the store cannot be reached."""

    @property
    def url(self) -> str: ...

    def put(self, key: str, data: Data) -> None:
        """Write or replace; a reader sees the old object or the new one, nothing between."""

    def put_if_absent(self, key: str, data: Data) -> bool:
        """Write unless the key exists. Of several writers at once exactly one gets True, for ``bytes`` data."""

    def get(self, key: str) -> bytes:
        """Raises IngotError NOT_FOUND."""

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """At most ``length`` bytes from ``start``. Raises IngotError NOT_FOUND."""

    def size(self, key: str) -> int | None:
        """In bytes; None when there is no such object."""

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """Objects whose key starts with ``prefix + "/"``, in order of key."""

    def delete(self, key: str) -> None:
        """Deleting what is not there is not an error."""

    def local_path(self, key: str) -> Path:
        """A local file with the object, fit to map; it must not be written. Raises IngotError NOT_FOUND."""


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


def not_found(url: str, key: str) -> IngotError:
    return IngotError(ErrorCode.NOT_FOUND, f"no object {key!r} in {url}", field=key)


@dataclass(frozen=True)
class FileStore:
    """A directory. Safe for many processes on one machine."""

    root: Path

    @property
    def url(self) -> str:
        return self.root.absolute().as_uri()

    def put(self, key: str, data: Data) -> None:
        write_atomically(self._path(key), data)

    def put_if_absent(self, key: str, data: Data) -> bool:
        path = self._path(key)
        return not path.exists() and create_atomically(path, data)

    def get(self, key: str) -> bytes:
        try:
            return self._path(key).read_bytes()
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError) as error:
            raise not_found(self.url, key) from error

    def get_range(self, key: str, start: int, length: int) -> bytes:
        with self.local_path(key).open("rb") as file:
            file.seek(start)
            return file.read(length)

    def size(self, key: str) -> int | None:
        path = self._path(key)
        return path.stat().st_size if path.is_file() else None

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        found = []
        for directory, _, names in os.walk(self._path(prefix)):
            for name in names:
                if not name.startswith("."):  # a file still being written
                    found.append(Path(directory, name))
        for path in sorted(found, key=lambda p: p.relative_to(self.root).as_posix()):
            status = path.stat()
            yield ObjectInfo(path.relative_to(self.root).as_posix(), status.st_size, status.st_mtime)

    def delete(self, key: str) -> None:
        self._path(key).unlink(missing_ok=True)

    def local_path(self, key: str) -> Path:
        path = self._path(key)
        if not path.is_file():
            raise not_found(self.url, key)
        return path

    def _path(self, key: str) -> Path:
        return self.root / check_key(key)


def open_store(url: str, cache: Path | None = None) -> ObjectStore:
    """The store at ``url``: ``file:///data/store``, a plain path, ``s3://bucket/prefix``, ``gs://...`` or ``az://...``.

    Credentials and endpoint of remote stores come from the environment: ``AWS_ACCESS_KEY_ID``, ``AWS_ENDPOINT_URL``, ...
    ``cache`` is where copies of remote objects are kept; by default under ``XDG_CACHE_HOME``.

    Raises:
        IngotError: INVALID_ARGUMENT; UNAVAILABLE when the client of remote stores is not installed.
    """
    parts = urlsplit(url)
    if parts.scheme in ("", "file"):
        path = Path(unquote(parts.path)) if parts.scheme else Path(url)
        if parts.netloc not in ("", "localhost") or not str(path):
            raise _bad_url(url)
        path.mkdir(parents=True, exist_ok=True)
        return FileStore(path.absolute())
    if parts.scheme not in ("s3", "gs", "az") or not parts.netloc:
        raise _bad_url(url)
    # NOTE: imported here so that local use needs no obstore.
    with needing("runtime", "the client of remote stores"):
        from shared_ir.storage.remote import RemoteStore

    default = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ingot" / "objects"
    return RemoteStore.open(url, cache or default)


def _bad_url(url: str) -> IngotError:
    return IngotError(
        ErrorCode.INVALID_ARGUMENT,
        "not the URL of an object store",
        expected="file:///path, s3://bucket/prefix, gs://bucket/prefix or az://container/prefix",
        received=url[:200],
    )
