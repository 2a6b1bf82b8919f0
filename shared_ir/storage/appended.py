"""A file of lines that many processes add to at once, and that loses none of them to a SIGKILL at any moment."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import FileIO
from pathlib import Path

from shared_ir.storage.files import open_regular, replace_atomically, sync_directory, write_temporary

_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
_END = b"\n"


@dataclass(frozen=True)
class HeldLines:
    """A file of lines that nobody else writes to, as long as its block lasts."""

    path: Path
    file: FileIO

    def read(self) -> bytes:
        return os.pread(self.file.fileno(), self._size(), 0)

    def add(self, lines: bytes) -> None:
        """Whole lines, by one write; the disk has them when this is over. What somebody left torn stays a line of its own."""
        is_torn = self._size() > 0 and os.pread(self.file.fileno(), 1, self._size() - 1) != _END
        rest = memoryview(_END + lines if is_torn else lines)
        while len(rest):
            rest = rest[self.file.write(rest) :]
        os.fsync(self.file.fileno())

    def replace(self, lines: bytes) -> None:
        """Have the file hold these and nothing else. Who waits to add to it then adds to the new one."""
        replace_atomically(self.path, write_temporary(self.path, lines))

    def _size(self) -> int:
        return os.fstat(self.file.fileno()).st_size


@contextmanager
def holding_lines(path: Path) -> Iterator[HeldLines]:
    """The file at ``path``, made where there is none, locked by ``flock``.

    A process that reads a model of somebody else may lock nothing (docs/design/boundary.md): what it adds lines to is in a folder of its
    own, where nobody else writes.

    Raises:
        OSError: it cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    while True:
        is_new = not path.exists()
        with FileIO(os.open(path, _FLAGS, 0o666), "r+") as file:
            with suppress(PermissionError):  # what the boundary answers, and no file system
                fcntl.flock(file, fcntl.LOCK_EX)
            if not _is_at(file, path):  # it was replaced between being opened and being locked
                continue
            yield HeldLines(path, file)
            if is_new:
                sync_directory(path.parent)
            return


def add_lines(path: Path, lines: bytes) -> None:
    """Add whole lines to a file, as :func:`holding_lines` and :meth:`HeldLines.add` do."""
    if lines:
        with holding_lines(path) as held:
            held.add(lines)


class LinesTail:
    """What is added to a file of lines. Nothing is locked, since who writes it may be nobody to wait for."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file, self._offset = 0, 0

    def read_new(self, most: int | None = None) -> bytes:
        """Whole lines that were added since this was asked last, ``most`` bytes of them at most; all of them when the file was replaced,
        none when there is no file. Of a line that is longer than ``most`` nothing is handed out but its end."""
        try:
            with open_regular(self._path) as file:
                found = os.fstat(file.fileno())
                if found.st_ino != self._file or found.st_size < self._offset:
                    self._file, self._offset = found.st_ino, 0
                file.seek(self._offset)
                data = file.read(-1 if most is None else most)
        except FileNotFoundError:
            return b""
        whole = data[: data.rfind(_END) + 1]
        is_endless = not whole and len(data) == most
        self._offset += len(data if is_endless else whole)
        return whole


def _is_at(file: FileIO, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False
