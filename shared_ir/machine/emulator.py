"""qemu's user mode: programs for another architecture, run on this machine."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

EMULATORS = {"x86_64": "qemu-x86_64", "aarch64": "qemu-aarch64", "armv7": "qemu-arm", "riscv64": "qemu-riscv64"}
"""Architecture -> program."""
_OLDEST_WITH_MAX = 8
"""First version of qemu whose RISC-V has a processor ``max``."""
_SECONDS = 10.0


@dataclass(frozen=True)
class Emulator:
    """qemu's user mode for one architecture."""

    program: Path

    @property
    def version(self) -> str:
        """``qemu-aarch64 7.2.22``; without a number where the program does not say."""
        return _version(self.program)

    def command(self, architecture: str) -> tuple[str, ...]:
        """What runs a program with every feature that is emulated."""
        return str(self.program), "-cpu", self._processor(architecture)

    def _processor(self, architecture: str) -> str:
        number = self.version.rpartition(" ")[2].partition(".")[0]
        if architecture == "riscv64" and (not number.isdigit() or int(number) < _OLDEST_WITH_MAX):
            return "rv64,v=true,vext_spec=v1.0"
        return "max"


def find_emulator(architecture: str, environment: Mapping[str, str] = os.environ) -> Emulator | None:
    """The emulator of an architecture on this machine's ``PATH``: ``qemu-aarch64``, or ``qemu-aarch64-static``."""
    name = EMULATORS.get(architecture)
    for word in (name, f"{name}-static") if name else ():
        found = shutil.which(word, path=environment.get("PATH"))
        if found:
            return Emulator(Path(found).resolve())
    return None


def emulated_name(architecture: str) -> str:
    """What to look for where there is no emulator."""
    return EMULATORS.get(architecture, f"an emulator of {architecture}")


@cache
def _version(program: Path) -> str:
    name = program.name.removesuffix("-static")
    try:
        command: Sequence[str] = (str(program), "--version")
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return name
    found = re.search(r"\bversion (\d+(\.\d+)*)", done.stdout)
    return f"{name} {found[1]}" if found else name
