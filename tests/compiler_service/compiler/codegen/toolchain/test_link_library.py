"""What a linked library exports, needs and contains."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import pytest

from compiler_service.compiler.codegen.toolchain.elf import read_shared_library
from compiler_service.compiler.codegen.toolchain.link import NATIVE, PUBLIC_SYMBOLS, link_library
from compiler_service.compiler.codegen.toolchain.zig import min_glibc, run_zig, zig_target
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.machine.target import parse_target
from tests.native_models import KERNELS, NativeModel, build_model, compile_c

TARGETS = ["llvm -mtriple=x86_64-linux-gnu -mcpu=x86-64-v3", "raspberry-pi/4b", "raspberry-pi/2b", "riscv64/generic"]
MACHINES = {"x86_64": 62, "aarch64": 183, "armv7": 40, "riscv64": 243}  # e_machine of the ELF header


@pytest.fixture(scope="module")
def model() -> NativeModel:
    return build_model()


def test_public_symbols_are_the_functions_of_the_header() -> None:
    header = (NATIVE / "ingot.h").read_text()
    declared = re.findall(r"^[a-z].*?\b(ingot_\w+)\(", re.sub(r"/\*.*?\*/", "", header, flags=re.DOTALL), re.MULTILINE)
    assert sorted(PUBLIC_SYMBOLS) == sorted(set(declared) - {"ingot_task"})


@pytest.mark.parametrize("target_text", TARGETS)
def test_exports_imports_and_glibc(target_text: str) -> None:
    model = build_model(target_text)
    library = link_library(model.objects, model.target)
    facts = read_shared_library(library)
    assert facts.exports == PUBLIC_SYMBOLS
    assert all(re.match(r"(libc|libpthread|ld-linux)", name) for name in facts.needed)
    assert struct.unpack_from("<H", library, 18)[0] == MACHINES[model.target.architecture]
    newest = max(tuple(map(int, v.removeprefix("GLIBC_").split("."))) for v in facts.versions if v[6:7].isdigit())
    assert newest <= tuple(map(int, min_glibc(model.target).split(".")))


def test_equal_objects_give_equal_bytes(model: NativeModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = link_library(model.objects, model.target)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert link_library(dict(reversed(model.objects.items())), model.target) == first
    for word in (str(tmp_path), str(NATIVE), "/home", "/root", "/tmp"):
        assert word.encode() not in first


def test_runtime_is_compiled_once_per_target(
    model: NativeModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link_library(model.objects, model.target)
    monkeypatch.setattr(
        "compiler_service.compiler.codegen.toolchain.link.NATIVE", tmp_path
    )  # sources gone: only the cache can serve
    assert link_library(model.objects, model.target)


def test_undefined_symbol_is_named(model: NativeModel) -> None:
    broken = dict(model.objects, kernels=compile_c(KERNELS.replace("k_pairs", "k_other"), model.target))
    with pytest.raises(IngotError, match="undefined hidden symbol: k_pairs") as caught:
        link_library(broken, model.target)
    assert caught.value.code is ErrorCode.COMPILER_FAULT


def test_math_library_is_refused(model: NativeModel) -> None:
    source = "double sin(double); double x_call(double a) { return sin(a); }"
    objects = {**model.objects, "math": compile_c(source, model.target)}
    kernels = KERNELS.replace("float *y = b[1]; (void)scratch;", "float *y = b[1]; (void)scratch; y[0] = x_call(y[0]);")
    objects["kernels"] = compile_c("double x_call(double);" + kernels, model.target)
    with pytest.raises(IngotError, match=r"libm\.so\.6.*sin") as caught:
        link_library(objects, model.target)
    assert caught.value.expected == "libc and pthread only"


@pytest.mark.parametrize(
    ("text", "static", "expected", "glibc"),
    [
        ("llvm -mtriple=x86_64-linux-gnu -mcpu=x86-64", False, "x86_64-linux-gnu.2.17", "2.17"),
        ("llvm -mtriple=x86_64-unknown-linux-gnu -mcpu=x86-64", True, "x86_64-linux-musl", "2.17"),
        ("llvm -mtriple=aarch64-linux-musl -mcpu=cortex-a72", False, "aarch64-linux-musl", ""),
        ("raspberry-pi/2b", False, "arm-linux-gnueabihf.2.17", "2.17"),
        ("raspberry-pi/2b", True, "arm-linux-musleabihf", "2.17"),
        ("llvm -mtriple=armv7-linux-gnueabi", False, "arm-linux-gnueabi.2.17", "2.17"),
        ("llvm -mtriple=armv7-linux-gnueabi", True, "arm-linux-musleabi", "2.17"),
        ("llvm -mtriple=armv7-linux-musleabi", False, "arm-linux-musleabi", ""),
        ("riscv64/generic", False, "riscv64-linux-gnu.2.27", "2.27"),
    ],
)
def test_linker_target(text: str, static: bool, expected: str, glibc: str) -> None:
    target = parse_target(text)
    assert zig_target(target, static=static)[1] == expected
    assert min_glibc(target) == glibc


def test_linux_only() -> None:
    with pytest.raises(IngotError, match="Linux") as caught:
        zig_target(parse_target("llvm -mtriple=aarch64-apple-darwin -mcpu=apple-m1"))
    assert caught.value.code is ErrorCode.INVALID_TARGET


def test_unwritable_cache_says_which_setting_mends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("INGOT_CACHE_DIR", str(tmp_path / "file"))
    with pytest.raises(IngotError, match="INGOT_CACHE_DIR") as caught:
        run_zig(["version"], tmp_path)
    assert caught.value.code is ErrorCode.UNAVAILABLE
