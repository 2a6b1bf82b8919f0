"""The program that times candidates, under sanitizers: its plan, its answers, and plans that are none."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from compiler_service.compiler.codegen.toolchain.link import NATIVE
from compiler_service.compiler.codegen.toolchain.zig import cache_directory, zig_executable

WARNINGS = ("-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic")
SOURCES = ("measure.c", "load_elf.c", "memory.c", "float_mode.c")
SANITIZERS = ["", *(pytest.param(s, marks=pytest.mark.slow) for s in ("address", "undefined"))]
CANDIDATE = """
#include <stdint.h>
void *memset(void *, int, unsigned long);
void add(void *const *b, const int64_t *s, int64_t begin, int64_t end, void *scratch, const volatile int32_t *stop) {
  const int32_t *x = b[0]; int32_t *y = b[1];
  memset(scratch, (int)*stop, 64);
  for (int64_t i = begin; i < end; i++) y[i] += x[i] + (int32_t)s[0];
}
"""
LACKING, BROKEN = 3, 4


def compiler(sanitizer: str) -> list[str]:
    gcc = shutil.which("gcc")
    if gcc:
        return [gcc]
    if sanitizer == "address":
        pytest.skip("no gcc on this machine, and zig has no address sanitizer")
    return [str(zig_executable()), "cc", "-Wno-c11-extensions"]


def build(command: list[str]) -> None:
    kept = str(cache_directory() / "zig")
    environment = {"PATH": "/usr/bin:/bin", "ZIG_GLOBAL_CACHE_DIR": kept, "ZIG_LOCAL_CACHE_DIR": kept}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def program(folder: Path, sanitizer: str) -> Path:
    found = folder / "measure"
    checks = [f"-fsanitize={sanitizer}", "-fno-sanitize-recover=all"] if sanitizer else []
    sources = [str(NATIVE / name) for name in SOURCES]
    build([*compiler(sanitizer), *WARNINGS, "-g", "-O1", f"-I{NATIVE}", *checks, *sources, "-o", str(found)])
    return found


@pytest.fixture(scope="module", name="library")
def make_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("candidate")
    (folder / "candidate.c").write_text(CANDIDATE)
    own = ["-O1", "-fPIC", "-shared", "-nostdlib", "-fno-sanitize=all", "-Wl,--hash-style=both"]
    build([*compiler(""), *own, str(folder / "candidate.c"), "-o", str(folder / "candidate.so")])
    return folder / "candidate.so"


def row(*numbers: int) -> bytes:
    return struct.pack(f"<{len(numbers)}q", *numbers)


def run(measure: Path, library: Path, said: bytes, content: bytes) -> tuple[int, bytes, str]:
    """Exit status and what it wrote; descriptors 3 and 4 of ``said`` are the library and the content."""
    held = [os.open(library, os.O_RDONLY), os.memfd_create("content")]
    os.write(held[1], content)
    try:
        process = subprocess.Popen(
            [str(measure)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, pass_fds=held
        )
        for number, descriptor in zip((-3, -4), held, strict=True):
            said = said.replace(row(number), row(descriptor))
        answer, errors = process.communicate(said, timeout=60)
    finally:
        for descriptor in held:
            os.close(descriptor)
    return process.returncode, answer, errors.decode()


def plan(
    size: int = 16,
    content: int = -4,
    copies: int = 2,
    symbol: str = "add",
    library: int = 0,
    buffers: tuple[int, ...] = (0, 1),
) -> bytes:
    name = symbol.encode()
    pieces = [
        row(1, 0, 1, 2, 1),
        row(-3),
        row(size, content, copies, 0),
        row(16, -1, 1, 1),
        row(library, 4, 64, len(buffers), 1, len(name)),
        name,
        row(*buffers),
        row(10),
    ]
    return b"".join(pieces)


CONTENT = struct.pack("<4i", 1, 2, 3, 4)


@pytest.mark.parametrize("sanitizer", SANITIZERS)
def test_a_candidate_is_run_and_timed(tmp_path: Path, library: Path, sanitizer: str) -> None:
    said = plan() + row(1) + row(0) + row(1000) + row(0)
    status, answer, errors = run(program(tmp_path, sanitizer), library, said, CONTENT)
    assert (status, errors) == (0, "")
    assert struct.unpack("<2q", answer[:16]) == (1, 0)
    once, first, often, last = struct.unpack("<q16sq16s", answer[16:])
    assert once > 0
    assert often > 0
    assert struct.unpack("<4i", first) == (11, 12, 13, 14)
    assert struct.unpack("<4i", last) == (11011, 12012, 13013, 14014)


BROKEN_PLANS = [
    (plan(symbol="subtract"), "the library lacks the function subtract"),
    (plan(size=12), "another size"),
    (plan(size=-1), "out of range: a size"),
    (plan(copies=0), "out of range: copies"),
    (plan(copies=1 << 20), "out of range: copies"),
    (plan(buffers=(0, 2)), "out of range: a buffer"),
    (plan(buffers=(0, -1)), "out of range: a buffer"),
    (plan(content=1 << 20), "names no file"),
    (row(2, 0, 1, 2, 1), "another version"),
    (row(1, 0, 1, -2, 1), "out of range: buffers"),
    (row(1, 0, 1, 2, 0), "out of range: launches"),
    (row(1, 0, 0, 2, 1), "out of range: libraries"),
    (plan(library=1), "out of range: a library"),
    (plan()[:-4], ""),
    (b"", ""),
]


@pytest.mark.parametrize("sanitizer", SANITIZERS)
def test_plans_that_are_none(tmp_path: Path, library: Path, sanitizer: str) -> None:
    measure = program(tmp_path, sanitizer)
    for said, reason in BROKEN_PLANS:
        status, answer, errors = run(measure, library, said, CONTENT)
        assert (status, answer) == (BROKEN, b""), reason
        assert reason in errors


def test_a_file_that_is_no_library(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no library" * 100)
    status, answer, errors = run(program(tmp_path, ""), tmp_path / "text", plan(), CONTENT)
    assert (status, answer) == (BROKEN, b"")
    assert "is no ELF file" in errors


def test_a_plan_that_needs_more_memory_than_there_is(tmp_path: Path, library: Path) -> None:
    status, answer, errors = run(program(tmp_path, ""), library, plan(size=1 << 60, content=-1), CONTENT)
    assert (status, answer) == (LACKING, b"")
    assert "memory" in errors
