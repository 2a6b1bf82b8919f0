"""Progress of a compilation, and what DEBUG and DUMP show of it."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from shared_ir.numerals import whole_number
from shared_ir.printable import printable

Progress = Callable[[str, int, int, str], None]
"""Called with (stage, done, total, message) as work advances."""


def silent(stage: str, done: int, total: int, message: str) -> None:
    """Reports nothing."""


@dataclass
class Log:
    """Times of the stages, progress reports, and debug output.

    ``DEBUG=1`` prints stages and times, 2 also passes, 3 schedules, 4 loop IR, 5 LLVM IR, 6 assembly; ``DUMP=dir`` writes
    the same to files. All are read from the environment once, when a compilation starts.

    Attributes:
        seconds: of each stage; ``parts``: of what takes turns within one, kernel by kernel.
        verifies: plans are proved and loop programs checked before they are handed on: with ``VERIFY=1``, and wherever DEBUG is at
            least 1.
    """

    progress: Progress = silent
    level: int = 0
    dump: Path | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    parts: dict[str, float] = field(default_factory=dict)
    verifies: bool = False

    @classmethod
    def from_environment(cls, progress: Progress) -> Log:
        dump = os.environ.get("DUMP")
        debug = os.environ.get("DEBUG", "0")
        level = whole_number(debug) or 0
        verifies = level >= 1 or os.environ.get("VERIFY", "0") not in ("", "0")
        return cls(progress, level, Path(dump) if dump else None, verifies=verifies)

    @contextmanager
    def stage(self, name: str, total: int = 1) -> Iterator[Callable[[int, str], None]]:
        """Times a stage; yields a function (done, message) to report progress inside it."""
        start, before = time.perf_counter(), set(self.parts)
        self.progress(name, 0, total, "")
        yield lambda done, message: self.progress(name, done, total, message)
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start
        self.progress(name, total, total, "")
        self.show(1, name, f"{name}: {self.seconds[name] * 1e3:.1f} ms{self._parts_since(before)}")

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Times a part of a stage; the times of all turns add up."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.parts[name] = self.parts.get(name, 0.0) + time.perf_counter() - start

    def _parts_since(self, before: Collection[str]) -> str:
        told = [f"{name} {seconds * 1e3:.1f} ms" for name, seconds in self.parts.items() if name not in before]
        return f" ({', '.join(told)})" if told else ""

    def wants(self, level: int) -> bool:
        """Whether text of this level goes anywhere."""
        return self.level >= level or self.dump is not None

    def show(self, level: int, name: str, text: str) -> None:
        """Print ``text`` if DEBUG is at least ``level``; write it to ``DUMP/name.txt`` unless it is a mere timing."""
        if self.level >= level:
            print(printable(text), file=sys.stderr)
        if self.dump is not None and level > 1:
            self.dump.mkdir(parents=True, exist_ok=True)
            (self.dump / f"{name}.txt").write_text(text)
