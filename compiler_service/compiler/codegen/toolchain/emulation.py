"""Libraries for other machines, run here: qemu's user mode, and a static program that loads ``model.so`` (``native/loaded.c``)."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from compiler_service.compiler.codegen.toolchain.bundle import EXECUTABLE
from compiler_service.compiler.codegen.toolchain.host import host_machine, runs_here
from compiler_service.compiler.codegen.toolchain.link import runtime_objects
from compiler_service.compiler.codegen.toolchain.recipe import link
from shared_ir.machine.machine import Machine
from shared_ir.machine.target import Target
from shared_ir.storage.files import replace_atomically

_EMULATORS = {"x86_64": "qemu-x86_64", "aarch64": "qemu-aarch64", "armv7": "qemu-arm", "riscv64": "qemu-riscv64"}
_SOURCES = ("main.c", "loaded.c")
_PROGRAM = "loaded"
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

    def command(self, target: Target) -> tuple[str, ...]:
        """What runs a program with every feature that is emulated."""
        return str(self.program), "-cpu", self._processor(target)

    def _processor(self, target: Target) -> str:
        number = self.version.rpartition(" ")[2].partition(".")[0]
        if target.architecture == "riscv64" and (not number.isdigit() or int(number) < _OLDEST_WITH_MAX):
            return "rv64,v=true,vext_spec=v1.0"
        return "max"


def find_emulator(architecture: str, environment: Mapping[str, str] = os.environ) -> Emulator | None:
    """The emulator of an architecture on this machine's ``PATH``: ``qemu-aarch64``, or ``qemu-aarch64-static``."""
    name = _EMULATORS.get(architecture)
    for word in (name, f"{name}-static") if name else ():
        found = shutil.which(word, path=environment.get("PATH"))
        if found:
            return Emulator(Path(found).resolve())
    return None


def emulator_for(target: Target) -> Emulator | None:
    """What runs code for ``target`` here; None where this machine does so itself, or nothing is installed that does."""
    return None if runs_here(target.triple, target.features) else find_emulator(target.architecture)


def this_machine(environment: Mapping[str, str] = os.environ) -> Machine:
    """What this machine runs: itself, and under the emulators on its ``PATH``."""
    emulated = (name for name in _EMULATORS if find_emulator(name, environment))
    return replace(host_machine(), emulates=frozenset(emulated))


def emulated_name(architecture: str) -> str:
    """What to look for where there is no emulator."""
    return _EMULATORS.get(architecture, f"an emulator of {architecture}")


def loading_program(target: Target) -> Path:
    """The program for the target that loads ``model.so`` and ``weights.bin`` of its working directory; from the cache, or linked now.

    Raises:
        IngotError: COMPILER_FAULT, UNAVAILABLE.
    """
    objects = runtime_objects(target, _SOURCES, static=True)
    program = objects[0].parent / _PROGRAM
    if not program.exists():
        with tempfile.TemporaryDirectory(prefix="ingot-loading-") as name:
            link([str(path) for path in objects], _PROGRAM, EXECUTABLE, target, Path(name), static=True)
            _keep((Path(name) / _PROGRAM).read_bytes(), program)
    return program


def _keep(data: bytes, program: Path) -> None:
    """As a file that may be executed, from its beginning: an emulator runs no other, and the boundary allows no ``chmod``."""
    temporary = program.with_name(f".{program.name}.{secrets.token_hex(8)}.tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o755)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    replace_atomically(program, temporary)


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
