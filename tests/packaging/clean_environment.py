"""The wheel, and environments that hold one extra of it and nothing else: no pip, no setuptools, no repository."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from shared_ir.extras import DISTRIBUTION
from tests.deploy.lint_tools import tool
from tests.deployed.dockerfile import copied

ROOT = Path(__file__).parents[2]
WHEEL = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "--quiet", "wheel", "--no-deps")


def build_wheel(folder: Path) -> Path:
    """Built from a copy of what the images copy, so that nothing of this checkout gets in by accident."""
    source = folder / "source"
    for name in copied():
        path, place = ROOT / name, source / name
        if path.is_dir():
            shutil.copytree(path, place, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, place)
    run(*WHEEL, "--wheel-dir", str(folder), str(source))
    (wheel,) = folder.glob("*.whl")
    return wheel


def requirement(wheel: Path, extra: str) -> str:
    """What is asked for."""
    return f"{DISTRIBUTION}[{extra}] @ {wheel.as_uri()}" if extra else str(wheel)


def run(*command: str) -> None:
    """A program of this environment that must succeed."""
    done = subprocess.run(command, capture_output=True, text=True, cwd="/")
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"


@dataclass(frozen=True)
class CleanEnvironment:
    """A virtual environment at ``folder``, and ``home``, the only other folder that its programs are told of."""

    folder: Path
    home: Path

    @classmethod
    def make(cls, folder: Path, wheel: Path, extra: str) -> CleanEnvironment:
        made = cls(folder / "environment", folder / "home")
        made.home.mkdir(parents=True)
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(made.folder)], check=True)
        # Not pip: it takes five times as long, once for each extra. That it installs them is seen wherever `make` is.
        run(tool("uv"), "pip", "install", "--quiet", "--python", str(made.python), requirement(wheel, extra))
        return made

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def variables(self) -> dict[str, str]:
        """The environment of its programs. No system folder is on the path: what is used has to come with the wheel."""
        return {"PATH": str(self.folder / "bin"), "HOME": str(self.home), "LANG": "C.UTF-8"}

    @contextmanager
    def service(
        self, command: Sequence[str], log: Path, more: Mapping[str, str] | None = None
    ) -> Iterator[subprocess.Popen[bytes]]:
        """A program that runs during the block, its output in ``log``; whatever is left of it is killed."""
        with log.open("wb") as output:
            process = subprocess.Popen(
                self._command(command),
                env=self.variables | dict(more or {}),
                cwd=self.home,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def run(
        self, *command: str | Path, more: Mapping[str, str] | None = None, seconds: float = 300.0
    ) -> subprocess.CompletedProcess[str]:
        """Run a program of this environment to its end."""
        environment = self.variables | dict(more or {})
        own = self._command([str(part) for part in command])
        return subprocess.run(own, env=environment, cwd=self.home, capture_output=True, text=True, timeout=seconds)

    def _command(self, command: Sequence[str]) -> list[str]:
        return [str(self.folder / "bin" / command[0]), *command[1:]]

    def check(self, *command: str | Path, more: Mapping[str, str] | None = None) -> str:
        """Standard output of a program that must succeed."""
        done = self.run(*command, more=more)
        assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout}\n{done.stderr}"
        return done.stdout


def wait_until(condition: Callable[[], bool], process: subprocess.Popen[bytes], log: Path, seconds: float) -> None:
    """Until ``condition`` holds; a failure shows what ``process`` printed."""
    deadline = time.monotonic() + seconds
    while not condition():
        if process.poll() is not None or time.monotonic() > deadline:
            raise AssertionError(f"status {process.returncode} after {seconds:.0f} s at most: {log.read_text()}")
        time.sleep(0.2)
