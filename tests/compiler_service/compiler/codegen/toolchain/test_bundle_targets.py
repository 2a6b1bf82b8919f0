"""Bundled models run where nothing is installed: static programs under qemu, and a library with its weights inside."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from compiler_service.compiler.codegen.toolchain.bundle import link_bundle
from runtime_service.loading.loader import load_model
from tests.native_growing import GROWING_KERNELS, GROWING_SYMBOLS, growing_plan
from tests.native_models import NativeModel, build_model, toy_feeds

HOST = "llvm -mtriple=x86_64-linux-gnu -mcpu=x86-64"


def program_of(model: NativeModel, folder: Path) -> Path:
    program = folder / "model"
    program.write_bytes(link_bundle(model.objects, model.weights, model.target, kind="executable"))
    program.chmod(0o755)
    return program


def run(emulator: list[str], program: Path, *arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*emulator, str(program), *arguments], cwd=folder, capture_output=True, text=True, timeout=120
    )


@pytest.mark.slow  # the first build for a machine builds its C library
@pytest.mark.parametrize(
    ("target", "emulator"),
    [
        (HOST, ""),
        ("raspberry-pi/4b", "qemu-aarch64-static"),
        ("raspberry-pi/2b", "qemu-arm-static"),
        ("riscv64/generic", "qemu-riscv64-static"),
    ],
)
def test_static_program_equals_the_host(target: str, emulator: str, tmp_path: Path) -> None:
    found = [shutil.which(emulator) or ""] if emulator else []
    if found == [""]:
        pytest.skip(f"{emulator} is not installed (Debian package qemu-user-static)")
    program, feeds = program_of(build_model(target), tmp_path), toy_feeds(7)
    for name, array in feeds.items():
        array.tofile(tmp_path / f"{name}.bin")
    done = run(found, program, "--threads", "2", "x.bin", "r.bin", "sum.bin", "pairs.bin", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    with load_model(build_model(HOST).artifact(), threads=1) as model:
        for name, expected in model.run(feeds).items():
            received = np.fromfile(tmp_path / f"{name}.bin", np.float32).reshape(expected.shape)
            np.testing.assert_allclose(received, expected, rtol=1e-6, atol=1e-6)  # fma or not


@pytest.mark.parametrize(
    ("target", "emulator"),
    [
        (HOST, ""),
        ("raspberry-pi/4b", "qemu-aarch64-static"),
        pytest.param("raspberry-pi/2b", "qemu-arm-static", marks=pytest.mark.slow),
    ],
)
def test_static_program_with_an_output_that_the_run_sizes(target: str, emulator: str, tmp_path: Path) -> None:
    found = [shutil.which(emulator) or ""] if emulator else []
    if found == [""]:
        pytest.skip(f"{emulator} is not installed (Debian package qemu-user-static)")
    built = build_model(target, growing_plan(), GROWING_KERNELS, GROWING_SYMBOLS)
    program = program_of(NativeModel(built.plan, built.target, built.objects, b""), tmp_path)
    x = np.arange(20, dtype=np.float32)
    x.tofile(tmp_path / "x.bin")
    np.array(9).tofile(tmp_path / "m.bin")
    np.array(True).tofile(tmp_path / "p.bin")
    files = ("x.bin", "m.bin", "p.bin", "rows.bin", "last.bin")
    done = run(found, program, "--threads", "2", "--repeat", "3", *files, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    rows = np.fromfile(tmp_path / "rows.bin", np.float32).reshape(9, 20)
    np.testing.assert_array_equal(rows, 2 * x + np.cumsum(np.arange(9))[:, None])
    np.testing.assert_array_equal(np.fromfile(tmp_path / "last.bin", np.float32), rows[-1])


def test_program_explains_itself(tmp_path: Path) -> None:
    program = program_of(build_model(HOST), tmp_path)
    toy_feeds(4)["x"].tofile(tmp_path / "x.bin")
    toy_feeds(3)["r"].tofile(tmp_path / "r.bin")
    (tmp_path / "short.bin").write_bytes(b"12345")
    info = run([], program, "--info", folder=tmp_path).stdout
    assert "input x: float32[batch, 12]" in info
    assert "output pairs: float32[(batch + 1) // 2, 5]" in info
    outputs = ("s.bin", "p.bin")
    refusals: list[tuple[tuple[str, ...], str]] = [
        (("x.bin",), "expected 2 input and 2 output files, received 1 files"),
        (("none.bin", "r.bin", *outputs), "input file none.bin: cannot be read"),
        (("short.bin", "r.bin", *outputs), "expected 0 elements of 4 bytes, received a file of 5 bytes"),
        (("x.bin", "r.bin", *outputs), "input 'r' axis 0 (batch): expected 4, received 3"),
        (("--shape", "x=4", "x.bin", "r.bin", *outputs), "one extent per axis"),
        (("--shape", "x=5,12", "x.bin", "r.bin", *outputs), "expected 60 elements of 4 bytes, received a file of 192"),
        (("--wrong", "1"), "option --wrong: is unknown"),
        (("--threads",), "option --threads: wants a value"),
        (("--threads", "-3", "x.bin", "r.bin", *outputs), "threads: expected 0 to 1024, received -3"),
    ]
    for arguments, message in refusals:
        done = run([], program, *arguments, folder=tmp_path)
        assert done.returncode == 2
        assert message in done.stderr
    assert not (tmp_path / "s.bin").exists()


def test_repeat_prints_times(tmp_path: Path) -> None:
    program = program_of(build_model(HOST), tmp_path)
    for name, array in toy_feeds(4).items():
        array.tofile(tmp_path / f"{name}.bin")
    done = run([], program, "--repeat", "3", "x.bin", "r.bin", "s.bin", "p.bin", folder=tmp_path)
    assert "median" in done.stdout
    assert "3 runs" in done.stdout


def test_shared_bundle_needs_no_weights(tmp_path: Path) -> None:
    model = build_model(HOST)
    (tmp_path / "weights.bin").write_bytes(model.weights)
    from_file = link_bundle(model.objects, tmp_path / "weights.bin", model.target)
    assert from_file == link_bundle(model.objects, model.weights, model.target)
    (tmp_path / "libtoy.so").write_bytes(from_file)
    library: Any = ctypes.CDLL(str(tmp_path / "libtoy.so"))
    pointer = ctypes.c_void_p()
    assert library.ingot_create(None, ctypes.byref(pointer)) == 0
    library.ingot_destroy(pointer)
