"""A server that is measured: its processes, where it listens, what they cost. It stands still while it is not its turn."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_START_SECONDS = 120.0


class ServerFailed(Exception):
    """It did not start, or a version of it is not to be had; the text says why."""


@dataclass(frozen=True)
class Start:
    """How a server is started.

    Attributes:
        kinds: what it answers, of :data:`bench.load.requests.KINDS`, by the address that does.
        http: where it says over HTTP whether it is ready, and which version it is of.
    """

    name: str
    command: Sequence[str]
    folder: Path
    environment: Mapping[str, str]
    kinds: Mapping[str, str]
    http: str


class ServerProcess:
    """One that runs, in a session of its own, or several below it."""

    def __init__(self, start: Start) -> None:
        self.name, self.kinds = start.name, tuple(start.kinds)
        self._addresses, self._log = start.kinds, start.folder / f"{start.name}.log"
        with self._log.open("wb") as log:
            self._child = subprocess.Popen(
                start.command,
                cwd=start.folder,
                env=dict(start.environment),
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            self._wait(f"http://{start.http}/v2/health/ready")
            with urllib.request.urlopen(f"http://{start.http}/v2", timeout=5) as answer:
                self.version = str(json.load(answer)["version"])
        except BaseException:
            self.stop()
            raise

    def address(self, kind: str) -> str:
        """``host:port``. Raises KeyError: it does not answer such requests."""
        return self._addresses[kind]

    def cpu_seconds(self) -> float:
        """Of all its processes, since they began."""
        return sum(_cpu_seconds(process) for process in tree(self._child.pid))

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)

    @contextmanager
    def turn(self) -> Iterator[None]:
        """It runs in this block, and stands still behind it."""
        self._signal(signal.SIGCONT)
        try:
            yield
        finally:
            self.pause()

    def stop(self) -> None:
        self._signal(signal.SIGCONT)
        members = tree(self._child.pid)
        sessions = {self._child.pid, *members}
        self._child.terminate()
        try:
            self._child.wait(10)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
        for process in members:
            with suppress(ProcessLookupError):
                if os.getsid(process) in sessions:  # else its number is another's by now
                    os.kill(process, signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        for process in tree(self._child.pid):
            with suppress(ProcessLookupError):
                os.kill(process, number)

    def _wait(self, ready: str) -> None:
        end = time.monotonic() + _START_SECONDS
        while time.monotonic() < end:
            if self._child.poll() is not None:
                break
            with suppress(OSError), urllib.request.urlopen(ready, timeout=5):
                return
            time.sleep(0.1)
        raise ServerFailed(f"{self.name} does not become ready: {self._log.read_text()[-800:]}")


def tree(process: int) -> list[int]:
    """A process and all below it."""
    found = [process]
    for parent in found:
        for task in Path(f"/proc/{parent}/task").glob("*/children"):
            with suppress(OSError):
                found += map(int, task.read_text().split())
    return found


def _cpu_seconds(process: int) -> float:
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:  # it has ended
        return 0.0
    return (int(fields[11]) + int(fields[12])) / _TICKS
