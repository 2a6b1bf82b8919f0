"""Local copies of remote objects, in a folder of a size that is set. Any number of processes may share one."""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from shared_ir.storage.faults import told
from shared_ir.storage.files import write_temporary

CACHE_LIMIT_BYTES = 20 * 1024**3
"""By default."""
_TOLD = partial(told, "a copy of an object cannot be kept")
_ABANDONED_SECONDS = 24 * 3600.0
"""A file that nobody has written to for so long is no longer being written."""


@dataclass(frozen=True)
class ObjectCache:
    """Copies are named by store, key and version. Where they take more than ``limit`` bytes (0: no limit), the least recently used of
    those go that nobody holds."""

    directory: Path
    limit: int = CACHE_LIMIT_BYTES
    _held: threading.local = field(default_factory=threading.local, repr=False, compare=False)

    def path(self, name: str) -> Path:
        return self.directory / name[:2] / name

    @contextmanager
    def holding(self) -> Iterator[None]:
        """What this thread is given until the end stays, whoever needs room: a copy is not taken away between its name and its use."""
        before = getattr(self._held, "files", None)
        with ExitStack() as files:
            self._held.files = files
            try:
                yield
            finally:
                self._held.files = before
        self._evict()

    def find(self, name: str) -> Path | None:
        path = self.path(name)
        with suppress(FileNotFoundError):
            if path.is_file() and self._hold(path):
                os.utime(path)
                return path
        return None

    def add(self, name: str, chunks: Iterator[bytes]) -> Path:
        """Raises IngotError DISK_FULL, and what ``chunks`` raises; nothing is added then."""
        path = self.path(name)
        with _TOLD():
            temporary = write_temporary(path, b"")
        try:
            _fill(temporary, chunks)
            while not self._put(temporary, path):
                pass  # the copy of somebody else came first, and has gone since
        finally:
            temporary.unlink(missing_ok=True)
        self._evict(keep=path)
        return path

    def _put(self, temporary: Path, path: Path) -> bool:
        """NOTE: what is there stays, which others may hold: copies of one name are the same."""
        try:
            with suppress(FileExistsError):
                os.link(temporary, path)
        except OSError:  # a file system without links
            os.replace(temporary, path)
        with suppress(FileNotFoundError):
            return self._hold(path)
        return False

    def _hold(self, path: Path) -> bool:
        """Whether the file is there, and stays while it is held. NOTE: the lock ends with the process, however that ends."""
        files: ExitStack | None = getattr(self._held, "files", None)
        if files is None:
            return True
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        files.callback(os.close, descriptor)
        with suppress(OSError):  # a file system without locks
            fcntl.flock(descriptor, fcntl.LOCK_SH)
        return _is_at(path, descriptor)  # else it was taken away just before

    def _evict(self, keep: Path | None = None) -> None:
        """NOTE: a file that someone has mapped stays readable to them after it is unlinked."""
        found = []
        for path in self.directory.glob("*/*"):
            with suppress(FileNotFoundError):
                found.append((path.stat(), path))
        files = [(status, path) for status, path in found if not path.name.startswith(".")]
        for status, path in found:
            if path.name.startswith(".") and status.st_mtime < time.time() - _ABANDONED_SECONDS:
                path.unlink(missing_ok=True)
        excess = sum(status.st_size for status, _ in files) - self.limit if self.limit else 0
        for status, path in sorted(files, key=lambda item: item[0].st_mtime_ns):
            if excess <= 0:
                return
            if path != keep and _remove_unheld(path):
                excess -= status.st_size


def _fill(path: Path, chunks: Iterator[bytes]) -> None:
    with path.open("wb") as file:
        for chunk in chunks:
            with _TOLD():
                file.write(chunk)
        with _TOLD():
            file.flush()
            os.fsync(file.fileno())


def _remove_unheld(path: Path) -> bool:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    try:
        with suppress(OSError):  # a file system without locks: only one who holds the file refuses it
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
        if _is_at(path, descriptor):  # else somebody has taken it away, and there may be another one
            path.unlink(missing_ok=True)
        return True
    finally:
        os.close(descriptor)


def _is_at(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False
