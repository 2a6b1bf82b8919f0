"""The version of the compiler follows from what code follows from, and from nothing else."""

from __future__ import annotations

import importlib.metadata
import shutil
from pathlib import Path

import pytest

from compiler_service.compiler.version import BACKENDS, COMPILER, SHARED, compiler_version, digest
from shared_ir.versions import VERSION
from tests.house.test_imports import LIBRARIES, ROOT, imports, modules, name_of, within

NO_CODE = {
    "artifact.signature",
    "artifact.signed",
    "device.order",
    "errors",
    "extras",
    "foreign_json",
    "printable",
    "regular_expressions",
    "storage.appended",
    "storage.faults",
    "storage.files",
}
"""Modules of shared_ir that the compiler imports and no artifact follows from: what it says, where it writes, who signs it."""


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    for package in ("compiler_service", "shared_ir"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def test_it_is_the_release_and_a_digest() -> None:
    installed = {name: importlib.metadata.version(name) for name in BACKENDS}
    assert compiler_version() == f"{VERSION}+{digest(ROOT, installed)}"


def test_another_version_of_what_makes_code_or_constants_changes_the_keys() -> None:
    given = dict.fromkeys(BACKENDS, "0.50.0")
    assert len({digest(ROOT, given), *(digest(ROOT, given | {name: "0.51.0"}) for name in given)}) == 1 + len(BACKENDS)


def test_every_package_that_the_compiler_computes_and_reads_with_counts() -> None:
    """But protobuf, whose form says what its bytes mean, an oracle, and what ranks candidates, whose order changes no code; the linker is
    started, not imported."""
    assert set(BACKENDS) == LIBRARIES - {"google", "lightgbm", "onnxruntime"} | {"ziglang"}


@pytest.mark.parametrize(
    "name", ["compiler_service/api/servicer.py", "compiler_service/worker/run.py", "shared_ir/storage/local.py"]
)
def test_a_comment_in_the_service_leaves_the_keys_alone(name: str, sources: Path) -> None:
    before = digest(sources, {})
    path = sources / name
    path.write_text(path.read_text() + "# a comment\n")
    assert digest(sources, {}) == before


@pytest.mark.parametrize(
    "name",
    [
        "compiler_service/compiler/schedule/rules/row.py",
        "compiler_service/compiler/codegen/native/runtime.c",
        "shared_ir/expr/simplify.py",
        "shared_ir/machine/target.py",
    ],
)
def test_a_comment_in_the_compiler_changes_them(name: str, sources: Path) -> None:
    before = digest(sources, {})
    path = sources / name
    path.write_text(path.read_text() + "// a comment\n")
    assert digest(sources, {}) != before


def test_everything_that_the_compiler_imports_counts() -> None:
    names = {name_of(path): path for path in modules()}
    compiler = ".".join(COMPILER.parts)
    seen: set[str] = set()
    pending = [name for name in names if within(name, (compiler,))]
    while pending:
        name = pending.pop()
        if name in seen or name not in names:
            continue
        seen.add(name)
        pending += [module for module, _, _ in imports(names[name])]
    counted = tuple(f"shared_ir.{entry.removesuffix('.py').replace('/', '.')}" for entry in SHARED)
    others = {name.removeprefix("shared_ir.") for name in seen if not within(name, (compiler, *counted))}
    assert others == NO_CODE
