"""Linking: the objects of a model and the C runtime become ``model.so``."""

from __future__ import annotations

import hashlib
import importlib.metadata
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from pathlib import Path

from compiler_service.compiler.codegen.toolchain.elf import read_shared_library
from compiler_service.compiler.codegen.toolchain.recipe import link
from compiler_service.compiler.codegen.toolchain.zig import cache_directory, min_glibc, run_zig, zig_target
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.machine.target import Target
from shared_ir.storage.files import write_atomically

__all__ = ["PUBLIC_SYMBOLS", "RUNTIME_SOURCES", "link_flags", "link_library", "min_glibc", "runtime_objects"]

NATIVE = Path(__file__).parent.parent / "native"
RUNTIME_SOURCES = (
    "check.c",
    "cpu_count.c",
    "cpu_features.c",
    "float_mode.c",
    "memory.c",
    "parts.c",
    "runtime.c",
    "slots.c",
    "thread_pool.c",
)

PUBLIC_SYMBOLS = (
    "ingot_abi_version",
    "ingot_compiler_version",
    "ingot_create",
    "ingot_destroy",
    "ingot_give_back",
    "ingot_input_count",
    "ingot_input_has_default",
    "ingot_input_info",
    "ingot_kernel_count",
    "ingot_kernel_name",
    "ingot_last_error",
    "ingot_output_count",
    "ingot_output_info",
    "ingot_output_shapes",
    "ingot_plan_digest",
    "ingot_run",
    "ingot_run_kernel",
    "ingot_run_kernel_stoppable",
    "ingot_run_stoppable",
    "ingot_time_kernel",
    "ingot_weights_size",
)
"""Everything that a model exports: the functions of ``ingot.h``."""

# Clang warns about _Generic in glibc's own string.h; unwind tables are for profilers.
_COMPILE = (
    *("-std=c99", "-O2", "-g0", "-fPIC", "-Wall", "-Wextra", "-Werror", "-pedantic", "-Wno-c11-extensions"),
    *("-fno-sanitize=all", "-fno-stack-protector", "-ffunction-sections", "-fvisibility=default"),
)
_LINK = (
    *("-g0", "-shared", "-Wl,-z,defs", "-Wl,-z,noexecstack", "-Wl,-z,relro", "-Wl,-z,now", "-Wl,--gc-sections"),
    *("-Wl,--build-id=none", "-Wl,--version-script=exports.map"),
)
_GUARDED: ContextVar[bool] = ContextVar("guarded", default=False)
_ALLOWED_LIBRARIES = re.compile(r"(libc\.so\.6|libc\.so|libpthread\.so\.0|ld-linux[a-z0-9-]*\.so\.\d|ld-musl-.*)\Z")


def link_library(objects: Mapping[str, bytes], target: Target) -> bytes:
    """``model.so`` for ``target`` from ELF objects by name, one of which defines ``ingot_this_module``.

    Equal objects give equal bytes. The result exports :data:`PUBLIC_SYMBOLS` only and needs libc and pthread only.

    Raises:
        IngotError: COMPILER_FAULT, with the linker's message, for undefined or duplicate symbols.
    """
    with tempfile.TemporaryDirectory(prefix="ingot-link-") as name:
        directory = Path(name)
        inputs = write_objects(objects, directory)
        write_exports(directory)
        runtime = [str(path) for path in runtime_objects(target)]
        link((*inputs, *runtime), "model.so", link_flags(target), target, directory)
        library = (directory / "model.so").read_bytes()
    _check_imports(library)
    return library


@contextmanager
def guarded_memory() -> Iterator[None]:
    """Libraries that are linked inside take memory between guard pages and fill it with the byte ``INGOT_POISON``: for tests."""
    token = _GUARDED.set(True)
    try:
        yield
    finally:
        _GUARDED.reset(token)


def write_objects(objects: Mapping[str, bytes], directory: Path) -> list[str]:
    """Write the objects in the order of their names; file names do not depend on them. Returns the file names."""
    files = []
    for index, name in enumerate(sorted(objects)):
        files.append(f"{index:06d}.o")
        (directory / files[-1]).write_bytes(objects[name])
    return files


def runtime_objects(target: Target, sources: Sequence[str] = RUNTIME_SOURCES, *, static: bool = False) -> list[Path]:
    """The compiled C runtime for ``target``, from the cache or compiled now."""
    arguments = (*zig_target(target, static=static), *_COMPILE, *(("-DINGOT_GUARDED",) if _GUARDED.get() else ()))
    key = hashlib.sha256("\0".join((*arguments, _sources_digest())).encode()).hexdigest()[:32]
    folder = cache_directory() / "native" / key
    paths = [folder / f"{Path(source).stem}.o" for source in sources]
    missing = [str(NATIVE / source) for source, path in zip(sources, paths, strict=True) if not path.exists()]
    if missing:
        with tempfile.TemporaryDirectory(prefix="ingot-native-") as name:
            for source in missing:
                compiled = Path(name) / f"{Path(source).stem}.o"
                run_zig(["cc", *arguments, "-c", source, "-o", compiled.name], Path(name))
                write_atomically(folder / compiled.name, compiled)
    return paths


@cache
def _sources_digest() -> str:
    """Digest of every C file and of the version of the C compiler."""
    digest = hashlib.sha256(importlib.metadata.version("ziglang").encode())
    for path in sorted(NATIVE.glob("*.[ch]")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def link_flags(target: Target) -> tuple[str, ...]:
    """What makes a library of objects; they refer to the file of :func:`write_exports`.

    Kernel names stay for profilers, but on 32-bit ARM zig's own helpers bring a megabyte of debug information.
    """
    return (*_LINK, "-Wl,--strip-all") if target.architecture == "armv7" else _LINK


def write_exports(directory: Path) -> None:
    """The version script that hides everything but :data:`PUBLIC_SYMBOLS`."""
    names = " ".join(f"{name};" for name in PUBLIC_SYMBOLS)
    (directory / "exports.map").write_text(f"{{ global: {names} local: *; }};\n")


def _check_imports(library: bytes) -> None:
    facts = read_shared_library(library)
    foreign = [name for name in facts.needed if not _ALLOWED_LIBRARIES.match(name)]
    if foreign:
        raise IngotError(
            ErrorCode.COMPILER_FAULT,
            "generated code calls into a library that a device may lack",
            field="linker",
            expected="libc and pthread only",
            received=f"{', '.join(foreign)} among the imports {', '.join(facts.imports)}"[:600],
            remedy="Report this with the model and the target.",
        )
