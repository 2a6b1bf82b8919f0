"""What records say for one target: the fastest schedule of a kernel, what was tried, and what a search may begin with."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence

from compiler_service.compiler.schedule.language.schedule import Schedule
from compiler_service.compiler.tune.measuring.trial import OutcomeKind
from compiler_service.compiler.tune.records.lines import read_lines, write_line, write_lines
from compiler_service.compiler.tune.records.record import TrialRecord, Workload, distance
from compiler_service.compiler.version import compiler_version
from shared_ir.machine.target import Target

_DECIDING = (b'"confirmed":true', b'"settled":true')
"""In canonical JSON there is one way to write it, and a line that spells it otherwise is none."""

MOST_KEPT_BYTES = 32 << 20
"""Of the records of a model for a target in the store of a service: some 30 000, half an hour of trials of 50 ms."""


class RecordBook:
    """Records of one target, by what they are about.

    Only what this version of the compiler made is an answer: another version may make other code of the same schedule, or have a default
    schedule that is faster. What others measured is where a search begins.
    """

    def __init__(self, records: Iterable[TrialRecord], target: Target) -> None:
        self._target = str(target)
        self._version = compiler_version()
        self._known: set[bytes] = set()
        self._of_workload: dict[str, list[TrialRecord]] = {}
        self._of_family: dict[str, list[TrialRecord]] = {}
        self.add(records)

    def add(self, records: Iterable[TrialRecord]) -> None:
        """Put more records in; those of other targets, and those that are in it, change nothing."""
        for record in records:
            line = write_line(record)
            if record.target == self._target and line not in self._known:
                self._known.add(line)
                self._of_workload.setdefault(record.workload, []).append(record)
                self._of_family.setdefault(record.family, []).append(record)

    def best(self, workload: str, methods: Collection[str]) -> TrialRecord | None:
        """The confirmed record that is fastest in comparison with the default schedule, where exactly these ``methods`` might be used;
        None where there is none: the default schedule is the fastest that is known. A task that was settled without such a record gives up
        those before.

        NOTE: with other methods the default is another schedule, which need not be slower.
        """
        return _answer(self._asked(workload, methods))

    def tried(self, workload: str) -> frozenset[str]:
        """Digests of the candidates that this version of the compiler made and that were tried, whatever came of them."""
        return frozenset(r.candidate for r in self.of(workload) if r.compiler == self._version)

    def is_settled(self, workload: str, methods: Collection[str]) -> bool:
        """Whether a tuner has left the task, as this version of the compiler makes it, for good."""
        return any(r.settled for r in self._asked(workload, methods))

    def settled(self) -> tuple[TrialRecord, ...]:
        """The record that the tuner left each task with last, of this version of the compiler."""
        own = sorted((r for r in self.records() if r.settled and r.compiler == self._version), key=lambda r: r.time)
        return tuple({(r.workload, r.methods): r for r in own}.values())

    def _asked(self, workload: str, methods: Collection[str]) -> list[TrialRecord]:
        asked = frozenset(methods)
        found = self._of_workload.get(workload, ())
        return [r for r in found if r.compiler == self._version and frozenset(r.methods) == asked]

    def latest(self, workload: str) -> float:
        """When the last of its records was written, in seconds since the epoch of whichever clock; 0 where there is none."""
        return max((r.time for r in self.of(workload)), default=0.0)

    def of(self, workload: str) -> Sequence[TrialRecord]:
        """All that is known of a workload, of any version of the compiler."""
        return tuple(self._of_workload.get(workload, ()))

    def nearest(self, workload: Workload) -> TrialRecord | None:
        """The record to begin with: of the workload of the same family whose sizes are nearest, the fastest in comparison with the default
        schedule that was measured beside it, and faster than that. Of the very workload it is one of another version of the compiler.
        """
        family = self._of_family.get(workload.family, ())
        others = (r for r in family if r.workload != workload.digest or r.compiler != self._version)
        seeds = ((distance(r.about, workload), *_rank(r), n, r) for n, r in enumerate(others) if r.share < 1)
        found = min(seeds, default=None)
        return None if found is None or math.isinf(found[0]) else found[-1]

    def records(self) -> tuple[TrialRecord, ...]:
        """All of them, in the order in which they came."""
        return tuple(r for found in self._of_workload.values() for r in found)


def _answer(task: Sequence[TrialRecord]) -> TrialRecord | None:
    """Of all that is known of one task, by one version of the compiler: what a compilation by it takes; see :meth:`RecordBook.best`."""
    given_up = max((r.time for r in task if r.settled and not r.confirmed), default=-math.inf)
    own = (r for r in task if r.confirmed and r.time > given_up and r.used_methods <= frozenset(r.methods))
    return min(own, key=_rank, default=None)


def answers(data: bytes, target: Target) -> bytes:
    """The lines of ``data`` that a compilation for ``target`` may take a schedule from, one for each workload and methods, sorted: what
    of records is a part of the key of an artifact. Other records change nothing."""
    deciding = b"\n".join(line for line in data.split(b"\n") if any(mark in line for mark in _DECIDING))
    # In order: of two that say the same of a schedule it is always the same one.
    book = RecordBook(merge(read_lines(deciding)[0]), target)
    asked = {(r.workload, r.methods) for r in book.records()}
    best = (book.best(workload, methods) for workload, methods in asked)
    return write_lines(r for r in best if r is not None)


def best_of(records: Iterable[TrialRecord]) -> tuple[TrialRecord, ...]:
    """As :meth:`RecordBook.best`, of each workload, target, version of the compiler, and methods."""
    tasks: dict[tuple[object, ...], list[TrialRecord]] = {}
    for record in merge(records):
        key = (record.workload, record.target, record.compiler, frozenset(record.methods))
        tasks.setdefault(key, []).append(record)
    return tuple(found for task in tasks.values() if (found := _answer(task)) is not None)


def merge(*sets: Iterable[TrialRecord]) -> tuple[TrialRecord, ...]:
    """Each record once, in the order of their lines: equal whatever the order of the sets."""
    found = {write_line(record): record for records in sets for record in records}
    return tuple(found[line] for line in sorted(found))


def merged(old: bytes, new: bytes, most: int = MOST_KEPT_BYTES) -> bytes:
    """The lines of both, each once and sorted, what is no record left out. Where these are more than ``most`` bytes, as many of each
    workload are dropped as it takes, those that are worth least first."""
    found = {write_line(record): record for data in (old, new) for record in read_lines(data)[0]}
    data, keep = b"".join(sorted(found)), len(found)
    while len(data) > most and keep:
        keep //= 2
        data = write_lines(prune(found.values(), keep))
    return data


def prune(
    records: Iterable[TrialRecord], keep: int | None = None, compiler: str | None = None
) -> tuple[TrialRecord, ...]:
    """What is worth to be kept.

    Args:
        keep: records of each workload, target and version of the compiler, at least those that say what a compilation takes and that a
            task is settled; then the confirmed, then the fastest in comparison with the default schedule.
        compiler: drop what other versions made.
    """
    groups: dict[tuple[str, str, str], list[TrialRecord]] = {}
    for record in merge(records):
        if compiler in (None, record.compiler):
            groups.setdefault((record.workload, record.target, record.compiler), []).append(record)
    return merge(*(_worth_most(found, keep) for found in groups.values()))


def _worth_most(records: Sequence[TrialRecord], keep: int | None) -> Sequence[TrialRecord]:
    """NOTE: who drops what a task was settled with answers with what was given up."""
    if keep is None:
        return records
    last = {r.methods: r for r in sorted(records, key=lambda r: r.time) if r.settled}
    found = [*best_of(records), *last.values()]
    deciding = [r for n, r in enumerate(found) if not any(r is other for other in found[:n])]
    others = [r for r in sorted(records, key=_rank) if not any(r is other for other in deciding)]
    return [*deciding, *others[: max(0, keep - len(deciding))]]


def _rank(record: TrialRecord) -> tuple[bool, float, float, float, str]:
    """Lowest for what is taken first. Seconds count only where there is nothing to compare them with: machines differ."""
    seconds = record.seconds if record.outcome is OutcomeKind.MEASURED else math.inf
    return not record.confirmed, record.share, seconds, -record.time, record.candidate


def schedule_of(record: TrialRecord | None) -> Schedule | None:
    """The schedule of a record of one kernel; None of a program of several."""
    return record.schedules[0] if record is not None and len(record.schedules) == 1 else None
