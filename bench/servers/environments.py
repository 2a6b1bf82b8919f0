"""Environments of the peers, each with one package of PyPI: their requirements contradict each other and ours."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from bench.servers.processes import ServerFailed

_VERSION = "from importlib.metadata import version; print(version({name!r}))"


def environment(folder: Path, name: str, version: str) -> Path:
    """The Python of an environment at ``folder`` that has this version; it is made where there is none.

    Raises:
        ServerFailed: it cannot be installed.
    """
    python = folder / "bin" / "python"
    if not (python.exists() and _installed(python, name) == version):
        _run([sys.executable, "-m", "venv", str(folder)])
        _run([str(python), "-m", "pip", "install", "--quiet", f"{name}=={version}"])
    return python


def _installed(python: Path, name: str) -> str:
    asked = subprocess.run([str(python), "-c", _VERSION.format(name=name)], capture_output=True, text=True)
    return asked.stdout.strip()


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise ServerFailed(f"{' '.join(command)}: {done.stderr.strip()[-500:]}")
