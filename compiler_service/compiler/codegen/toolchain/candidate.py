"""Candidates of the tuner for a machine without a compiler: a library of kernels, and the program that times it (``native/measure.c``)."""

from __future__ import annotations

import tempfile
from pathlib import Path

from compiler_service.compiler.codegen.toolchain.emulation import static_program
from compiler_service.compiler.codegen.toolchain.link import link_flags
from compiler_service.compiler.codegen.toolchain.recipe import link
from shared_ir.machine.target import Target

_SOURCES = ("measure.c", "load_elf.c", "memory.c", "float_mode.c")


def link_candidate(code: bytes, symbol: str, target: Target) -> bytes:
    """A shared library of the ELF object ``code`` that exports ``symbol`` alone. Equal objects give equal bytes.

    Raises:
        IngotError: COMPILER_FAULT, with the linker's message.
    """
    with tempfile.TemporaryDirectory(prefix="ingot-candidate-") as name:
        folder = Path(name)
        (folder / "code.o").write_bytes(code)
        (folder / "exports.map").write_text(f'{{ global: "{symbol}"; local: *; }};\n')
        link(("code.o",), "candidate.so", link_flags(target), target, folder)
        return (folder / "candidate.so").read_bytes()


def measuring_program(target: Target) -> Path:
    """The program that loads such a library on a machine of the target's architecture, whatever C library that has; from the cache, or
    linked now. Raises as :func:`link_candidate`."""
    return static_program(target, "measure", _SOURCES)
