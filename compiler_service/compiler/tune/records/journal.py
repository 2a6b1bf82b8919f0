"""A file that trials are written to as they end, by many processes at once. What was written is there after a SIGKILL at any moment."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from io import FileIO
from pathlib import Path

from compiler_service.compiler.tune.records.claims import Claim, Claimant, Taken
from compiler_service.compiler.tune.records.lines import (
    Unreadable,
    read_entries,
    read_lines,
    write_claim,
    write_line,
    write_lines,
)
from compiler_service.compiler.tune.records.record import TrialRecord
from compiler_service.compiler.version import compiler_version
from shared_ir.storage.files import open_regular, replace_atomically, sync_directory, write_temporary

_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
_END = b"\n"


class JournalTail:
    """What others add to a file of lines; nothing is locked, since who writes it may be nobody to wait for."""

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


class Journal:
    """The file ``path``, which is made by the first line. Locked by ``flock`` while a line is added; many may read meanwhile.

    A process of the compiler service that reads a model of somebody else may lock nothing (docs/design/boundary.md): its journal is in
    a folder of its own, where nobody else writes.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._tail, self._known = JournalTail(path), JournalTail(path)
        self._taken = Taken()
        self.unreadable = Unreadable()
        """Of what :meth:`read_new` has seen."""

    def append(self, records: Iterable[TrialRecord]) -> None:
        """Add records, all by one write, and wait until the disk has them.

        A line that somebody left torn stays one: the next begins behind it.

        Raises:
            OSError: the file cannot be written.
        """
        data = b"".join(map(write_line, records))
        if data:
            with self._locked() as file:
                _add(file, data)

    def read_new(self) -> tuple[TrialRecord, ...]:
        """Records that were added since this was asked last, by whoever; all of them when the file was replaced."""
        found: list[TrialRecord] = []
        for entry in read_entries(self._tail.read_new()):
            if isinstance(entry, TrialRecord):
                found.append(entry)
            elif isinstance(entry, str):
                self.unreadable = self.unreadable.and_one(entry)
        return tuple(found)

    def claim(self, workload: str, target: str, candidates: Sequence[str]) -> tuple[str, ...]:
        """Those of ``candidates`` that nobody has measured and nobody is measuring, which are this process's to measure now.

        Claims of a process that has ended count no more.

        Args:
            workload: digest of what is computed.
            target: canonical text.
            candidates: digests (:attr:`TrialRecord.candidate`).
        """
        task = (workload, target, compiler_version())
        with self._locked() as file:
            self._look()
            free = self._taken.free(task, candidates)
            if free:
                own = Claim(task, free, Claimant.this_process(), time.time())
                _add(file, write_claim(own))
                self._look()
        return free

    def give_back(self, workload: str, target: str, candidates: Sequence[str]) -> None:
        """Candidates that this process claimed and does not measure, since the device is lost or the time is over."""
        claim = Claim((workload, target, compiler_version()), tuple(candidates), Claimant.this_process(), time.time())
        if candidates:
            with self._locked() as file:
                _add(file, write_claim(replace(claim, gives_back=True)))

    def rewrite(self, choose: Callable[[Sequence[TrialRecord]], Iterable[TrialRecord]]) -> Unreadable:
        """Have the file hold what ``choose`` keeps of its records, and what is claimed right now; what of it is no record is dropped, and
        told. Processes that add to it wait meanwhile, and then go on with the new file."""
        with self._locked() as file:
            data = os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0)
            records, unreadable = read_lines(data)
            live = (e for e in read_entries(data) if isinstance(e, Claim) and e.by.is_alive(e.time))
            kept = write_lines(choose(records)) + b"".join(map(write_claim, live))
            replace_atomically(self._path, write_temporary(self._path, kept))
        return unreadable

    def _look(self) -> None:
        for entry in read_entries(self._known.read_new()):
            if isinstance(entry, TrialRecord):
                self._taken.measured((entry.workload, entry.target, entry.compiler), entry.candidate)
            elif isinstance(entry, Claim):
                self._taken.claimed(entry)

    @contextmanager
    def _locked(self) -> Iterator[FileIO]:
        """The file, which nobody else adds to. NOTE: it may have been replaced between being opened and being locked."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        while True:
            is_new = not self._path.exists()
            with FileIO(os.open(self._path, _FLAGS, 0o666), "r+") as file:
                with suppress(PermissionError):  # what the boundary answers, and no file system
                    fcntl.flock(file, fcntl.LOCK_EX)
                if not _is_at(file, self._path):
                    continue
                yield file
                if is_new:
                    sync_directory(self._path.parent)
                return


def _add(file: FileIO, data: bytes) -> None:
    size = os.fstat(file.fileno()).st_size
    is_torn = size > 0 and os.pread(file.fileno(), 1, size - 1) != _END
    rest = memoryview(_END + data if is_torn else data)
    while len(rest):
        rest = rest[file.write(rest) :]
    os.fsync(file.fileno())


def _is_at(file: FileIO, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False
