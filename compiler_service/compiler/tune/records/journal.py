"""A file that trials are written to as they end, by many processes at once. What was written is there after a SIGKILL at any moment."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from compiler_service.compiler.tune.records.claims import Claimant, Taken, TrialClaim
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
from shared_ir.storage.appended import LinesTail, add_lines, holding_lines
from shared_ir.storage.faults import told


class Journal:
    """The file ``path``, which is made by the first line (:mod:`shared_ir.storage.appended`). All methods raise IngotError where the file
    cannot be read or written, as :func:`shared_ir.storage.faults.told` has it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._tail, self._known = LinesTail(path), LinesTail(path)
        self._taken = Taken()
        self.unreadable = Unreadable()
        """Of what :meth:`read_new` has seen."""

    def append(self, records: Iterable[TrialRecord]) -> None:
        """Add records; they are on the disk when this is over."""
        with self._told():
            add_lines(self._path, b"".join(map(write_line, records)))

    def read_new(self) -> tuple[TrialRecord, ...]:
        """Records that were added since this was asked last, by whoever; all of them when the file was replaced."""
        found: list[TrialRecord] = []
        with self._told():
            data = self._tail.read_new()
        for entry in read_entries(data):
            if isinstance(entry, TrialRecord):
                found.append(entry)
            elif isinstance(entry, str):
                self.unreadable = self.unreadable.and_one(entry)
        return tuple(found)

    def claim(
        self, workload: str, target: str, candidates: Sequence[str], methods: Sequence[str] = ()
    ) -> tuple[str, ...]:
        """Those of ``candidates`` that nobody has measured and nobody is measuring, which are this process's to measure now.

        Claims of a process that has ended count no more.

        Args:
            workload: digest of what is computed.
            target: canonical text.
            candidates: digests (:attr:`TrialRecord.candidate`).
            methods: that may be used (:attr:`TrialRecord.methods`).
        """
        task = (workload, target, compiler_version(), tuple(sorted(methods)))
        with self._told(), holding_lines(self._path) as held:
            self._look()
            free = self._taken.free(task, candidates)
            if free:
                held.add(write_claim(TrialClaim(task, free, Claimant.this_process(), time.time())))
                self._look()
        return free

    def give_back(self, workload: str, target: str, candidates: Sequence[str], methods: Sequence[str] = ()) -> None:
        """Candidates that this process claimed and does not measure, since the device is lost or the time is over."""
        task = (workload, target, compiler_version(), tuple(sorted(methods)))
        claim = TrialClaim(task, tuple(candidates), Claimant.this_process(), time.time(), gives_back=True)
        with self._told():
            add_lines(self._path, write_claim(claim) if candidates else b"")

    def rewrite(self, choose: Callable[[Sequence[TrialRecord]], Iterable[TrialRecord]]) -> Unreadable:
        """Have the file hold what ``choose`` keeps of its records, and what is claimed right now; what of it is no record is dropped, and
        told. Processes that add to it wait meanwhile, and then go on with the new file."""
        with self._told(), holding_lines(self._path) as held:
            data = held.read()
            records, unreadable = read_lines(data)
            live = (e for e in read_entries(data) if isinstance(e, TrialClaim) and e.by.is_alive(e.time))
            held.replace(write_lines(choose(records)) + b"".join(map(write_claim, live)))
        return unreadable

    def _told(self) -> AbstractContextManager[None]:
        return told("the tuning records cannot be kept", self._path)

    def _look(self) -> None:
        for entry in read_entries(self._known.read_new()):
            if isinstance(entry, TrialRecord):
                task = (entry.workload, entry.target, entry.compiler, tuple(sorted(entry.methods)))
                self._taken.measured(task, entry.candidate)
            elif isinstance(entry, TrialClaim):
                self._taken.claimed(entry)
