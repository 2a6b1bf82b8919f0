"""Who measures what right now: said before a trial begins, so that nobody else begins it too."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Self

from shared_ir.digest import sha256_hex

ELSEWHERE_SECONDS = 600.0
"""How long a claim holds of a process that cannot be seen from here: on another machine, or in another container."""
_START_FIELD = 19
"""Of ``/proc/<pid>/stat``, counted from the state behind the name of the program: clock ticks from boot to its start."""
_ENDED = "ZXx"
"""States of a process that has ended, and that nobody has waited for."""

Task = tuple[str, str, str, tuple[str, ...]]
"""A workload, a target, a version of the compiler, and the methods that may be used, sorted: trials of one are of no use to another, since
each has a default schedule of its own that they are compared with."""


@dataclass(frozen=True)
class Claimant:
    """A process: its number, which others get after it, together with when it began, and where that number holds.

    Attributes:
        place: names the boot of the machine and the space of process numbers.
    """

    pid: int
    began: int
    place: str

    @classmethod
    def this_process(cls) -> Self:
        return cls(os.getpid(), _began(os.getpid()) or 0, _place())

    def is_alive(self, claimed: float) -> bool:
        """Whether it may still be at what it ``claimed`` at that time (seconds since the epoch). Where nothing tells when a process began,
        who claimed without knowing it himself lives."""
        if self.place != _place():
            return 0 <= time.time() - claimed < ELSEWHERE_SECONDS
        return (_began(self.pid) or 0) == self.began


@dataclass(frozen=True)
class TrialClaim:
    """Candidates that a process is about to measure, or gives back unmeasured."""

    task: Task
    candidates: tuple[str, ...]
    by: Claimant
    time: float
    gives_back: bool = False


class Taken:
    """Candidates that need no trial: measured, or claimed by a process that lives."""

    def __init__(self) -> None:
        self._measured: dict[Task, set[str]] = {}
        self._claimed: dict[Task, dict[str, TrialClaim]] = {}

    def measured(self, task: Task, candidate: str) -> None:
        self._measured.setdefault(task, set()).add(candidate)
        self._claimed.get(task, {}).pop(candidate, None)

    def claimed(self, claim: TrialClaim) -> None:
        """Who claims what somebody else had claimed does so because that process has ended."""
        held = self._claimed.setdefault(claim.task, {})
        for candidate in claim.candidates:
            if not claim.gives_back:
                held[candidate] = claim
            elif candidate in held and held[candidate].by == claim.by:
                del held[candidate]

    def free(self, task: Task, candidates: Iterable[str]) -> tuple[str, ...]:
        """Those of ``candidates`` that are neither, each once."""
        measured, held = self._measured.get(task, set()), self._claimed.get(task, {})

        def is_free(candidate: str) -> bool:
            claim = held.get(candidate)
            return candidate not in measured and (claim is None or not claim.by.is_alive(claim.time))

        return tuple(c for c in dict.fromkeys(candidates) if is_free(c))


def _began(pid: int) -> int | None:
    """Clock ticks from boot to the start of a process; None where it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        return None if fields[0] in _ENDED else int(fields[_START_FIELD])
    except (OSError, LookupError, ValueError):
        return None


@cache
def _place() -> str:
    parts = (Path("/proc/sys/kernel/random/boot_id"), Path("/proc/self/ns/pid"))
    return sha256_hex(f"{_text(parts[0])} {_link(parts[1])}".encode())[:16]


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _link(path: Path) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""
