"""Cases in child processes: whatever a case does to its process, the next one is asked all the same."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from tests.oracle.case import Case
from tests.oracle.generate import drawn_case
from tests.oracle.judge import Finding, judge
from tests.oracle.shrink import shrink

PATIENCE = 120.0
"""Seconds of a processor after which a child that does not answer is ended; of one that waits, ten times as many on the clock."""
SLOW = 15.0
"""Seconds of a processor that a case of a few tiny operators may take."""


@dataclass(frozen=True)
class Task:
    """``signature``: of the finding to make smaller; empty where the case is only asked. ``folder``: of its seed."""

    family: str
    seed: int
    signature: str = ""
    folder: Path = Path()


@dataclass
class Outcome:
    """``findings``: signature -> description; ``saved``: file and text of a case that was made smaller."""

    task: Task
    seconds: float = 0.0
    answered: int = 0
    refusals: list[str] = field(default_factory=list)
    findings: dict[str, str] = field(default_factory=dict)
    saved: str = ""


def run_tasks(tasks: Iterator[Task], jobs: int, done: Callable[[Outcome], Sequence[Task]]) -> None:
    """All tasks, ``jobs`` at a time; ``done`` looks at every outcome and names tasks that come before the others."""
    urgent: list[Task] = []
    children: list[_Child] = []
    try:
        for _ in range(jobs):
            children.append(_Child())
        while True:
            for child in children:
                if child.task is None:
                    task = urgent.pop(0) if urgent else next(tasks, None)
                    if task is not None:
                        child.send(task)
            busy: dict[Any, _Child] = {c.pipe: c for c in children if c.task is not None}
            if not busy:
                return
            ready = wait(list(busy), timeout=1.0)
            late = [p for p, c in busy.items() if p not in ready and c.is_late()]
            for pipe in (*ready, *late):
                urgent += done(busy[pipe].receive())
    finally:
        for child in children:
            child.end()


class _Child:
    """A process that answers one task at a time, and is started anew when it dies."""

    def __init__(self) -> None:
        self.task: Task | None = None
        self.since = self.used = 0.0
        self._start()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, other = context.Pipe()
        self.process = context.Process(target=_serve, args=(other,), daemon=True)
        self.process.start()
        other.close()

    def send(self, task: Task) -> None:
        self.task, self.since, self.used = task, time.monotonic(), self._processor_seconds()
        self.pipe.send(task)

    def is_late(self) -> bool:
        waited = time.monotonic() - self.since
        return waited > PATIENCE and (self._processor_seconds() - self.used > PATIENCE or waited > 10 * PATIENCE)

    def _processor_seconds(self) -> float:
        """What the process has used so far; 0 where the system does not tell."""
        try:
            fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return 0.0
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def receive(self) -> Outcome:
        task, self.task = self.task, None
        assert task is not None
        try:
            if self.pipe.poll():
                outcome: Outcome = self.pipe.recv()
                return outcome
            what = f"no answer in {PATIENCE:.0f} s"
        except EOFError:
            self.process.join()
            what = f"the process ended with {self.process.exitcode}"
        self.end()
        self._start()
        seconds = time.monotonic() - self.since
        return Outcome(task, seconds, findings={} if task.signature else {f"fault: {what}": what})

    def end(self) -> None:
        self.process.kill()
        self.process.join()
        self.pipe.close()


def _serve(pipe: Connection) -> None:
    while True:
        try:
            task = pipe.recv()
        except EOFError:
            return
        pipe.send(made_smaller(task) if task.signature else asked(task))


def asked(task: Task) -> Outcome:
    """The case of a task, judged."""
    start = time.process_time()
    case, _ = drawn_case(task.family, task.seed)
    verdict = judge(case)
    seconds = time.process_time() - start
    findings: dict[str, str] = {}
    for finding in (*verdict.findings, *_slowness(seconds)):
        findings.setdefault(finding.signature, str(finding))
    return Outcome(task, seconds, verdict.answered, sorted(set(verdict.refusals)), findings)


def _slowness(seconds: float) -> list[Finding]:
    return [Finding("slow", "all levels", f"{seconds:.0f} s")] if seconds > SLOW else []


def made_smaller(task: Task) -> Outcome:
    """A finding with the smallest case that shows it, which is kept as a seed."""
    start = time.monotonic()
    _, trail = drawn_case(task.family, task.seed)
    case, _ = shrink(task.family, trail, lambda c: task.signature in signatures(c))
    detail = signatures(case).get(task.signature, "is not seen again")
    path = task.folder / f"{task.family.replace(' ', '-')}-{task.seed}.json"
    case.save(path, signature=task.signature, finding=detail)
    return Outcome(task, time.monotonic() - start, saved=f"{path.name}\n{detail}\n{case.text()}")


def signatures(case: Case) -> dict[str, str]:
    """What is found of a case: signature -> description."""
    found: dict[str, str] = {}
    for finding in judge(case).findings:
        found.setdefault(finding.signature, str(finding))
    return found
