"""A compiled model from C and from Rust: the programs of the examples, built as their first lines say, answer as Python does."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest

import ingot
from examples.c99_backend import small_network
from ingot.cli.main import main

EXAMPLES = Path(__file__).parents[2] / "examples"
FLAGS = ("-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic")


def output_of(command: Sequence[str | Path]) -> str:
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `ingot compile --bundle-library` writes for the small network."""
    folder = tmp_path_factory.mktemp("entry")
    onnx.save(small_network(), folder / "small.onnx")
    arguments = ("--name", "small", "--local", "--bundle-library", "--out", str(folder / "build"))
    assert main(["compile", str(folder / "small.onnx"), *arguments, "--home", str(folder / "home")]) == 0
    return folder / "build"


@pytest.fixture(scope="module")
def expected() -> list[float]:
    model = ingot.load(ingot.compile(small_network()), threads=1)
    (answer,) = model.run({"picture": np.ones((1, 3, 16, 16), np.float32)}).values()
    return [float(x) for x in answer.reshape(-1)[:4]]


def library(build: Path) -> Path:
    (found,) = build.glob("small.*.so")
    return found


def check(text: str, expected: Sequence[float]) -> None:
    answer = next(line for line in text.splitlines() if line.startswith("y: "))
    np.testing.assert_allclose([float(word) for word in answer.split()[1:5]], expected, rtol=1e-5)
    assert "kernels: k0_conv_relu" in text
    assert "input picture: type 1" in text


def test_from_c(build: Path, expected: list[float], tmp_path: Path) -> None:
    program = tmp_path / "run"
    rest = ("-I", build, EXAMPLES / "c" / "run.c", library(build), "-o", program, f"-Wl,-rpath,{build}")
    output_of(["gcc", *FLAGS, "-fsanitize=address,undefined", "-fno-sanitize-recover=all", *rest])
    check(output_of([program]), expected)


@pytest.fixture(scope="module")
def rust(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program in Rust."""
    source = tmp_path_factory.mktemp("rust")
    (source / "src").mkdir()
    for name in ("Cargo.toml", "src/main.rs", "src/ingot.rs"):
        (source / name).write_text((EXAMPLES / "rust" / name).read_text())
    output_of(["cargo", "build", "--quiet", "--offline", "--manifest-path", source / "Cargo.toml"])
    return source / "target" / "debug" / "ingot-run"


def test_from_rust(build: Path, rust: Path, expected: list[float]) -> None:
    check(output_of([rust, library(build)]), expected)


def test_rust_says_what_is_wrong(rust: Path, tmp_path: Path) -> None:
    (tmp_path / "text.so").write_text("no library")
    for path in (tmp_path / "text.so", tmp_path / "none.so"):
        done = subprocess.run([rust, path], capture_output=True, text=True, timeout=60)
        assert done.returncode == 1
        assert path.name in done.stderr
