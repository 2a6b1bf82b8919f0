"""``python -m tests.oracle --seconds 3600 --jobs 2``: cases of every operator until the time is up.

Prints how many cases ran of each operator, refusals by cause, and every new finding with its smallest model; what is found is kept
under ``--keep``. The exit status is 1 when there is something new.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.oracle.families import FAMILIES
from tests.oracle.seeds import known_findings
from tests.oracle.workers import Outcome, Task, run_tasks


@dataclass
class Tally:
    """What came of the cases so far. ``known``: family and signature of what seeds hold already."""

    folder: Path
    known: frozenset[tuple[str, str]] = frozenset()
    cases: Counter[str] = field(default_factory=Counter)
    answered: Counter[str] = field(default_factory=Counter)
    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    refusals: Counter[str] = field(default_factory=Counter)
    findings: Counter[tuple[str, str]] = field(default_factory=Counter)
    fresh: dict[tuple[str, str], str] = field(default_factory=dict)

    def add(self, outcome: Outcome) -> Sequence[Task]:
        """Enter an outcome; what it shows for the first time is to be made smaller."""
        task = outcome.task
        if task.signature:
            self.fresh[task.family, task.signature] = outcome.saved
            print(f"\n--- {task.family} seed {task.seed}: {outcome.saved or task.signature}", flush=True)
            return ()
        self.cases[task.family] += 1
        self.answered[task.family] += outcome.answered
        self.seconds[task.family] += outcome.seconds
        self.refusals.update(outcome.refusals)
        wanted = []
        for signature, detail in outcome.findings.items():
            kind = (task.family, signature)
            self.findings[kind] += 1
            if kind in self.known or kind in self.fresh:
                continue
            self.fresh[kind] = f"seed {task.seed}: {detail}"
            if signature.startswith(("slow", "fault: no answer", "fault: the process")):
                print(f"\n--- {task.family} {self.fresh[kind]}", flush=True)
                continue
            wanted.append(Task(task.family, task.seed, signature, self.folder))
        return wanted

    def print(self) -> None:
        for name in sorted(self.cases):
            found = sum(n for (family, _), n in self.findings.items() if family == name)
            mean = self.seconds[name] / self.cases[name]
            print(
                f"{name:28}{self.cases[name]:7} cases {self.answered[name]:7} answers {mean:7.2f} s {found:5} findings"
            )
        for cause, count in self.refusals.most_common():
            print(f"{count:7} refused: {cause}")
        for (family, signature), count in sorted(self.findings.items()):
            print(f"{count:7} {'NEW  ' if (family, signature) in self.fresh else 'known'} {family}: {signature}")
        print(f"{self.cases.total()} cases, {len(self.fresh)} new findings")


def tasks(families: Sequence[str], first: int, end: float, most: int) -> Iterator[Task]:
    """Round after round over the families, until the time is up."""
    for number in range(most):
        for name in families:
            if time.monotonic() > end:
                return
            yield Task(name, first + number)


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.oracle", description=__doc__)
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument(
        "--seed", type=int, default=None, help="number of the first case; by default another one each time"
    )
    parser.add_argument("--cases", type=int, default=10**9, help="most cases of a family")
    parser.add_argument("--family", default="", help="families to draw, with commas between; by default all")
    parser.add_argument("--keep", type=Path, default=Path("oracle-findings"), help="folder for what is found")
    given = parser.parse_args()
    first = int(time.time()) * 1000 if given.seed is None else given.seed
    given.keep.mkdir(parents=True, exist_ok=True)
    families = given.family.split(",") if given.family else sorted(FAMILIES)
    print(f"from case {first} on, {len(families)} families, {given.seconds:.0f} s, {given.jobs} jobs", flush=True)
    tally = Tally(given.keep, known_findings())
    run_tasks(tasks(families, first, time.monotonic() + given.seconds, given.cases), given.jobs, tally.add)
    tally.print()
    return 1 if tally.fresh else 0


if __name__ == "__main__":
    sys.exit(main())
