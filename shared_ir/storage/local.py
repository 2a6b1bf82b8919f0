"""An object store in a folder."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

from shared_ir.digest import sha256_hex
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.storage.files import (
    create_atomically,
    is_regular,
    open_regular,
    replace_atomically,
    write_atomically,
    write_temporary,
)
from shared_ir.storage.growing import GrowingDraft
from shared_ir.storage.mark import StoreMark
from shared_ir.storage.protocol import Data, Identity, ObjectDraft, ObjectInfo, check_key, not_found, too_large

_PIECE_BYTES = 1 << 20


@dataclass(frozen=True)
class FileStore:
    """A directory. Safe for many processes on one machine. Links in it are no objects: whoever made one could have others read what he
    cannot.

    With a ``mark`` every method raises IngotError UNAVAILABLE where the directory is not the store that it was.
    """

    root: Path
    mark: StoreMark | None = field(default=None, compare=False, repr=False)

    @property
    def url(self) -> str:
        return self.root.absolute().as_uri()

    def put(self, key: str, data: Data) -> None:
        path = self._path(key)
        temporary = write_temporary(path, data)
        with self._locked(path):
            replace_atomically(path, temporary)

    def put_if_absent(self, key: str, data: Data) -> bool:
        path = self._path(key)
        return not path.exists() and create_atomically(path, data)

    def replace(self, key: str, data: bytes, tag: str) -> bool:
        with self._locked(self._path(key)):
            try:
                found = self.get_tagged(key)[1]
            except IngotError as error:
                if error.code is not ErrorCode.NOT_FOUND:
                    raise
                return False
            if found == tag:
                write_atomically(self._path(key), data)
            return found == tag

    def get(self, key: str, limit: int | None = None) -> bytes:
        try:
            with open_regular(self._path(key)) as file:
                size = os.fstat(file.fileno()).st_size
                if limit is not None and size > limit:
                    raise too_large(key, limit, size)
                return file.read(size)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise not_found(key) from error

    def get_tagged(self, key: str, limit: int | None = None) -> tuple[bytes, str]:
        data = self.get(key, limit)
        return data, sha256_hex(data)

    def pieces(self, key: str) -> Iterator[bytes]:
        with open_regular(self.local_path(key)) as file:
            while piece := file.read(_PIECE_BYTES):
                yield piece

    def get_range(self, key: str, start: int, length: int) -> bytes:
        with open_regular(self.local_path(key)) as file:
            file.seek(start)
            return file.read(length)

    def size(self, key: str) -> int | None:
        path = self._path(key)
        return path.lstat().st_size if is_regular(path) else None

    def identity(self, key: str) -> Identity | None:
        path = self._path(key)
        if not is_regular(path):
            return None
        status = path.lstat()
        return Identity(status.st_size, _tag(status), status.st_mtime)

    def list(self, prefix: str, after: str = "") -> Iterator[ObjectInfo]:
        for entry, key in _walk(self._path(prefix), prefix, after):
            try:
                status = entry.stat(follow_symlinks=False)
            except FileNotFoundError:  # deleted meanwhile
                continue
            yield ObjectInfo(key, status.st_size, status.st_mtime, _tag(status))

    def keys(self, prefix: str, after: str = "") -> Iterator[str]:
        return (key for _, key in _walk(self._path(prefix), prefix, after))

    def folders(self, prefix: str) -> tuple[str, ...]:
        entries = _entries(self._path(prefix))
        return tuple(sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False)))

    def delete_unused(self, key: str, before: float) -> bool:
        with self._locked(self._path(key)):
            found = self.identity(key)
            if found is None or found.modified >= before:
                return False
            self.delete(key)
            return True

    def delete(self, key: str) -> None:
        self._path(key).unlink(missing_ok=True)

    def local_path(self, key: str, limit: int | None = None) -> Path:
        size = self.size(key)
        if size is None:
            raise not_found(key)
        if limit is not None and size > limit:
            raise too_large(key, limit, size)
        return self._path(key)

    def holding(self) -> AbstractContextManager[None]:
        return nullcontext()

    def draft(self, key: str) -> ObjectDraft:
        return GrowingDraft(self._path(key), self._path, self._locked)

    def _path(self, key: str) -> Path:
        if self.mark is not None:
            self.mark.require()
        return self.root / check_key(key)

    @contextmanager
    def _locked(self, path: Path) -> Iterator[None]:
        """One writer of a folder at a time, of all processes of the machine."""
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


def _tag(status: os.stat_result) -> str:
    return f"{status.st_ino}-{status.st_mtime_ns}-{status.st_ctime_ns}-{status.st_size}"


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    """What lies in a folder, but for files that are still being written."""
    try:
        with os.scandir(folder) as entries:
            return [entry for entry in entries if not entry.name.startswith(".")]
    except (FileNotFoundError, NotADirectoryError):
        return []


def _walk(folder: Path, prefix: str, after: str) -> Iterator[tuple[os.DirEntry[str], str]]:
    """Files below a folder in order of key, a folder at a time. Links are none."""
    found = []
    for entry in _entries(folder):
        key = f"{prefix}/{entry.name}"
        if entry.is_dir(follow_symlinks=False):
            if f"{key}/" > after or after.startswith(f"{key}/"):
                found.append((f"{key}/", entry))
        elif key > after and entry.is_file(follow_symlinks=False):
            found.append((key, entry))
    for key, entry in sorted(found, key=lambda item: item[0]):
        if key.endswith("/"):
            yield from _walk(Path(entry.path), key[:-1], after)
        else:
            yield entry, key
