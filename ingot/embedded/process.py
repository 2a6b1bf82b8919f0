"""A program that runs beside this one and never outlives it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

LAUNCHER = Path(__file__).with_name("launch.py")
_TAIL_BYTES = 4096


@dataclass(frozen=True)
class ChildProcess:
    """A running program in a process group of its own, its output in ``log``."""

    name: str
    log: Path
    process: subprocess.Popen[bytes]

    @classmethod
    def start(cls, name: str, command: Sequence[str], environment: Mapping[str, str], log: Path) -> ChildProcess:
        """Must be called from the main thread: the kernel ends the program when the thread that started it ends."""
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(LAUNCHER), str(os.getpid()), *command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=dict(environment),
                start_new_session=True,
            )
        return cls(name, log, process)

    @property
    def is_alive(self) -> bool:
        return self.process.poll() is None

    def last_words(self) -> str:
        """The end of its log, for messages."""
        with self.log.open("rb") as file:
            file.seek(max(0, self.log.stat().st_size - _TAIL_BYTES))
            lines = file.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it printed nothing"

    def terminate(self) -> None:
        if self.is_alive:
            self.process.send_signal(signal.SIGTERM)

    def wait(self, seconds: float) -> bool:
        """Whether it ended in time; its group is killed either way, so that nothing of it stays."""
        try:
            self.process.wait(max(0.0, seconds))
            ended = True
        except subprocess.TimeoutExpired:
            ended = False
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        return ended
