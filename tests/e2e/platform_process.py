"""`ingot up` in a child process, and what it leaves."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ingot.client import Client
from ingot.demo.platform import processes_of
from ingot.home import Addresses

ROOT = Path(__file__).parents[2]


class PlatformProcess:
    """Runs in ``home`` on free ports; ready when this returns."""

    def __init__(self, home: Path, *arguments: str, wait: bool = True, **environment: str) -> None:
        self.home = home
        clean = {name: value for name, value in os.environ.items() if not name.startswith("INGOT_")}
        self.environment = clean | {"PYTHONPATH": str(ROOT)} | environment
        command = [sys.executable, "-m", "ingot", "up", "--home", str(home), "--free-ports", "--json", *arguments]
        self.process = subprocess.Popen(
            command, env=self.environment, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        if wait:
            assert self.process.stdout is not None
            line = self.process.stdout.readline()
            assert line, self.process.communicate()[1].decode() + self.logs()
            self.announced: dict[str, Any] = json.loads(line)

    @property
    def addresses(self) -> Addresses:
        return Addresses.find(self.home)

    def client(self) -> Client:
        return Client(self.addresses.compiler)

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """The `ingot` command as someone at a terminal of this installation uses it."""
        return subprocess.run(
            [sys.executable, "-m", "ingot", *arguments],
            env=self.environment | {"INGOT_HOME": str(self.home)},
            cwd=ROOT,
            capture_output=True,
            text=True,
        )

    def stop(self, number: signal.Signals = signal.SIGTERM, seconds: float = 40.0) -> int:
        """The exit status."""
        self.process.send_signal(number)
        return self.process.wait(seconds)

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()

    def members(self) -> list[int]:
        """Processes that belong to it now."""
        return processes_of(self.home)

    def left_over(self) -> list[int]:
        """Processes that still belong to it; those that the kernel is about to end get a moment."""
        deadline = time.monotonic() + 5.0
        while (found := self.members()) and time.monotonic() < deadline:
            time.sleep(0.05)
        return found

    def logs(self) -> str:
        return "\n".join(f"--- {path.name}\n{path.read_text()}" for path in sorted(self.home.glob("logs/*.log")))


def wait_until(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.05)
