"""Candidates and the program that loads them, for every architecture."""

from __future__ import annotations

import pytest

from compiler_service.compiler.codegen.toolchain.candidate import _SOURCES, link_candidate
from compiler_service.compiler.codegen.toolchain.elf import read_shared_library
from compiler_service.compiler.codegen.toolchain.link import runtime_objects
from compiler_service.compiler.codegen.toolchain.zig import compile_c
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.machine.target import PRESETS

TARGETS = ["x86-64-v3", "raspberry-pi/4b", "armv7/generic", "riscv64/generic"]


@pytest.mark.parametrize("name", TARGETS)
def test_the_program_compiles_for_every_architecture(name: str) -> None:
    for path in runtime_objects(PRESETS[name][0], _SOURCES, static=True):
        assert path.read_bytes()[:4] == b"\x7fELF"


@pytest.mark.parametrize("name", TARGETS)
def test_a_library_exports_its_kernel_alone(name: str) -> None:
    target = PRESETS[name][0]
    code = compile_c("int other(void) { return 1; }\nint k(void) { return other(); }\n", target)
    library = link_candidate(code, "k", target)
    assert read_shared_library(library).exports == ("k",)
    assert link_candidate(code, "k", target) == library


def test_what_nobody_defines_is_an_error() -> None:
    target = PRESETS["x86-64-v3"][0]
    code = compile_c("int nowhere(void);\nint k(void) { return nowhere(); }\n", target)
    with pytest.raises(IngotError, match="nowhere") as caught:
        link_candidate(code, "k", target)
    assert caught.value.code is ErrorCode.COMPILER_FAULT
