"""Another process that takes a core in bursts, as there is one on every shared machine: ``python -m bench.neighbour SEED``."""

from __future__ import annotations

import contextlib
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from types import TracebackType
from typing import Self

from bench.worker import die_with_parent

_SHORTEST, _LONGEST = 1e-3, 20e-3
"""Seconds of a burst, and of the pause behind it."""


class Neighbour:
    """The process; it computes in blocks of :meth:`beside` only."""

    def __init__(self, seed: int = 0) -> None:
        self._child = subprocess.Popen([sys.executable, "-m", "bench.neighbour", str(seed)])
        self._child.send_signal(signal.SIGSTOP)

    @contextlib.contextmanager
    def beside(self) -> Iterator[None]:
        self._child.send_signal(signal.SIGCONT)
        try:
            yield
        finally:
            self._child.send_signal(signal.SIGSTOP)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._child.kill()
        self._child.wait()


def compute(seed: int) -> None:
    """For ever: bursts and pauses of the same lengths on average."""
    drawn = random.Random(seed)
    while True:
        end = time.perf_counter() + drawn.uniform(_SHORTEST, _LONGEST)
        while time.perf_counter() < end:
            pass
        time.sleep(drawn.uniform(_SHORTEST, _LONGEST))


if __name__ == "__main__":
    die_with_parent()
    compute(int(sys.argv[1]))
