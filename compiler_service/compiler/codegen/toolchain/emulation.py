"""Libraries for other machines, run here: qemu's user mode, and a static program that loads ``model.so`` (``native/loaded.c``)."""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from compiler_service.compiler.codegen.toolchain.bundle import EXECUTABLE
from compiler_service.compiler.codegen.toolchain.host import host_machine, runs_here
from compiler_service.compiler.codegen.toolchain.link import runtime_objects
from compiler_service.compiler.codegen.toolchain.recipe import link
from shared_ir.machine.emulator import EMULATORS, Emulator, emulated_name, find_emulator
from shared_ir.machine.machine import Machine
from shared_ir.machine.target import Target
from shared_ir.storage.files import replace_atomically

__all__ = [
    "Emulator",
    "emulated_name",
    "emulator_for",
    "find_emulator",
    "loading_program",
    "static_program",
    "this_machine",
]

_LOADING = ("main.c", "loaded.c", "load_elf.c")


def emulator_for(target: Target) -> Emulator | None:
    """What runs code for ``target`` here; None where this machine does so itself, or nothing is installed that does."""
    return None if runs_here(target.triple, target.features) else find_emulator(target.architecture)


def this_machine(environment: Mapping[str, str] = os.environ) -> Machine:
    """What this machine runs: itself, and under the emulators on its ``PATH``."""
    emulated = (name for name in EMULATORS if find_emulator(name, environment))
    return replace(host_machine(), emulates=frozenset(emulated))


def loading_program(target: Target) -> Path:
    """The program for the target that loads ``model.so`` and ``weights.bin`` of its working directory; from the cache, or linked now.

    Raises:
        IngotError: COMPILER_FAULT, UNAVAILABLE.
    """
    return static_program(target, "loaded", _LOADING)


def static_program(target: Target, name: str, sources: Sequence[str]) -> Path:
    """A program of C sources of ``native/`` that needs nothing on the machine; from the cache, or linked now. Raises as
    :func:`loading_program`."""
    objects = runtime_objects(target, sources, static=True)
    program = objects[0].parent / name
    if not program.exists():
        with tempfile.TemporaryDirectory(prefix="ingot-program-") as folder:
            link([str(path) for path in objects], name, EXECUTABLE, target, Path(folder), static=True)
            _keep((Path(folder) / name).read_bytes(), program)
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
