"""Bundles: the weights inside the code, as one shared library or one static program."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from compiler_service.compiler.codegen.entry.module import BUNDLED_WEIGHTS
from compiler_service.compiler.codegen.toolchain.link import (
    RUNTIME_SOURCES,
    link_flags,
    runtime_objects,
    write_exports,
    write_objects,
)
from compiler_service.compiler.codegen.toolchain.recipe import know_how_to_link, link
from compiler_service.compiler.codegen.toolchain.zig import run_zig, zig_target
from shared_ir.machine.target import Target
from shared_ir.plan.program import ALIGNMENT_BYTES

BundleKind = Literal["shared", "executable"]

EXECUTABLE = ("-static", "-g0", "-Wl,--gc-sections", "-Wl,--build-id=none", "-Wl,-z,noexecstack", "-Wl,--strip-all")


def link_bundle(
    objects: Mapping[str, bytes],
    weights: bytes | memoryview | Path,
    target: Target,
    kind: BundleKind = "shared",
) -> bytes:
    """One file that needs no ``weights.bin``.

    ``objects`` are those of :func:`link_library`. ``shared`` is a library for C programs (``ingot.h``, ``weights`` NULL);
    ``executable`` a statically linked program (``native/main.c``) for a device of the target's architecture with nothing
    installed.

    Raises:
        IngotError: COMPILER_FAULT, with the linker's message.
    """
    static = kind == "executable"
    with tempfile.TemporaryDirectory(prefix="ingot-bundle-") as name:
        directory = Path(name)
        inputs = write_objects(objects, directory)
        arguments = zig_target(target, static=static)
        if _size(weights):
            inputs.append(_weights_object(weights, arguments, directory))
        sources = (*RUNTIME_SOURCES, "main.c") if static else RUNTIME_SOURCES
        runtime = [str(path) for path in runtime_objects(target, sources, static=static)]
        write_exports(directory)
        flags = EXECUTABLE if static else link_flags(target)
        link((*inputs, *runtime), "bundle", flags, target, directory, static=static)
        return (directory / "bundle").read_bytes()


def prepare(target: Target, kind: BundleKind | Literal[""] = "") -> None:
    """Put into the cache what linking a model for ``target`` takes, and its bundle of this kind: from then on it only reads there.

    Raises:
        IngotError: COMPILER_FAULT, UNAVAILABLE.
    """
    for static in (False, True) if kind == "executable" else (False,):
        runtime_objects(target, (*RUNTIME_SOURCES, "main.c") if static else RUNTIME_SOURCES, static=static)
        know_how_to_link(EXECUTABLE if static else link_flags(target), target, static=static)


def _size(weights: bytes | memoryview | Path) -> int:
    return weights.stat().st_size if isinstance(weights, Path) else len(weights)


def _weights_object(weights: bytes | memoryview | Path, arguments: tuple[str, ...], directory: Path) -> str:
    """Assemble an object whose read-only data is the file; the assembler copies it without parsing."""
    file = weights.resolve() if isinstance(weights, Path) else directory / "weights.bin"
    if not isinstance(weights, Path):
        file.write_bytes(weights)
    (directory / "weights.S").write_text(
        f'    .section .rodata.{BUNDLED_WEIGHTS},"a",%progbits\n'
        f"    .globl {BUNDLED_WEIGHTS}\n"
        f"    .hidden {BUNDLED_WEIGHTS}\n"
        f"    .balign {ALIGNMENT_BYTES}\n"
        f"{BUNDLED_WEIGHTS}:\n"
        f"    .incbin {json.dumps(str(file), ensure_ascii=False)}\n"
        '    .section .note.GNU-stack,"",%progbits\n'
    )
    run_zig(["cc", *arguments, "-c", "weights.S", "-o", "weights.o"], directory, alone=True)
    return "weights.o"
