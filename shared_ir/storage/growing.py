"""Drafts in a folder: a file that grows under a lock, and is renamed once it is whole."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from io import FileIO
from pathlib import Path

from shared_ir.errors import ErrorCode, IngotError
from shared_ir.storage.drafts import gap
from shared_ir.storage.faults import told
from shared_ir.storage.files import is_regular, sync_directory

_PIECE_BYTES = 1 << 20
WINDOW_BYTES = 32 * 1024 * 1024
"""Of a file of which the kernel has twice as much in memory at most. The disk works from the beginning on, and not only in the end; memory
that was in use a moment ago is several times faster than such as a virtual machine has to get from its host."""
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
Locked = Callable[[Path], AbstractContextManager[None]]
"""Holds off other writers of the folder of a path."""


@dataclass(frozen=True)
class GrowingDraft:
    """The file ``path``; ``place`` gives the path of a key."""

    path: Path
    place: Callable[[str], Path]
    locked: Locked

    def held(self) -> int:
        return self.path.lstat().st_size if is_regular(self.path) else 0

    @contextmanager
    def writer(self, offset: int) -> Iterator[GrowingWriter]:
        if offset > self.held():
            raise gap(self.held(), offset)
        with told("an upload cannot be kept", self.path), self._open() as file:
            held = os.fstat(file.fileno()).st_size
            if offset > held:
                raise gap(held, offset)
            with ThreadPoolExecutor(1) as settling:
                try:
                    yield GrowingWriter(self, file, offset, settling)
                finally:
                    if not os.fstat(file.fileno()).st_size:
                        self.remove(file)

    def _open(self) -> FileIO:
        """The file, locked. NOTE: it may have been finished or dropped between being opened and being locked: then what is locked is
        another file, perhaps one that counts as whole."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        while True:
            file = FileIO(os.open(self.path, _FLAGS, 0o666), "r+")
            with ExitStack() as opened:
                opened.enter_context(file)
                _lock(file)
                if self.is_file(file):
                    opened.pop_all()
                    return file

    def is_file(self, file: FileIO) -> bool:
        """Whether it is still the one at the path."""
        with suppress(FileNotFoundError):
            return os.path.samestat(os.fstat(file.fileno()), self.path.lstat())
        return False

    def remove(self, file: FileIO) -> None:
        if self.is_file(file):
            self.path.unlink(missing_ok=True)


def _lock(file: FileIO) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        message, remedy = "this file is being uploaded by someone else right now", "Try again in a moment."
        raise IngotError(ErrorCode.UNAVAILABLE, message, field="sha256", remedy=remedy) from error


class GrowingWriter:
    """A :class:`shared_ir.storage.protocol.DraftWriter`. Unbuffered, so that what has come is there after a crash."""

    def __init__(self, draft: GrowingDraft, file: FileIO, offset: int, settling: ThreadPoolExecutor) -> None:
        self._draft = draft
        self._file = file
        self._offset = offset
        self._is_cut = False
        self._settling = settling
        self._settled: Future[None] | None = None
        self._settles_from = self._end = offset

    def kept(self) -> Iterator[bytes]:
        at = 0
        while at < self._offset and (piece := os.pread(self._file.fileno(), min(_PIECE_BYTES, self._offset - at), at)):
            yield piece
            at += len(piece)

    def reserve(self) -> None:
        """The file is there already."""

    def write(self, data: bytes | memoryview) -> None:
        self._cut()
        view = memoryview(data)
        self._end += len(view)
        while len(view):
            view = view[self._file.write(view) :]
        if self._end - self._settles_from >= WINDOW_BYTES:
            self._settle()

    def finish(self, key: str) -> None:
        """NOTE: nobody else renames the file as long as it is locked; but it may have been collected as garbage."""
        self._cut()
        target = self._draft.place(key)
        os.fsync(self._file.fileno())
        target.parent.mkdir(parents=True, exist_ok=True)
        with self._draft.locked(target):
            if not self._draft.is_file(self._file):
                raise gap(0, self._offset)
            os.replace(self._draft.path, target)
        sync_directory(target.parent)

    def drop(self) -> None:
        self._draft.remove(self._file)

    def _settle(self) -> None:
        """What was written since the last time goes to the disk, beside what is written next."""
        if self._settled is not None:
            self._settled.result()
        start, self._settles_from = self._settles_from, self._end
        self._settled = self._settling.submit(_to_disk, self._file.fileno(), start, self._end - start)

    def _cut(self) -> None:
        if not self._is_cut:
            self._file.truncate(self._offset)
            self._file.seek(self._offset)
            self._is_cut = True


def _to_disk(descriptor: int, start: int, length: int) -> None:
    """Write it out, and let the memory go that the kernel has it in: the next bytes take that, and no other."""
    os.fdatasync(descriptor)
    os.posix_fadvise(descriptor, start, length, os.POSIX_FADV_DONTNEED)
