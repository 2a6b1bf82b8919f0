"""What a file imports by name is there: also in tests and tools, which no type checker reads."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

from tests.house.test_imports import OURS, ROOT

BESIDE = ("tests", "bench", "scripts", "examples", "proto", "deploy")
FILES = sorted(path for folder in BESIDE for path in (ROOT / folder).rglob("*.py"))


@cache
def defined(module: str) -> frozenset[str] | None:
    """Names that ``module`` has, submodules included; None where that is not read off its text."""
    path = ROOT / module.replace(".", "/")
    file = path.with_suffix(".py")
    file = file if file.exists() else path / "__init__.py"
    if not file.exists() and not path.is_dir():
        return frozenset()
    inside = {p.stem for p in path.glob("*") if p.is_dir() or p.suffix == ".py"} if path.is_dir() else set()
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text() if file.exists() else "")):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                names.add(name)
            case ast.Name(id=name, ctx=ast.Store()):
                names.add(name)
            case ast.Import(names=found) | ast.ImportFrom(names=found):
                names |= {(alias.asname or alias.name).partition(".")[0] for alias in found}
    return None if "__getattr__" in names or "_pb2" in module else frozenset(names | inside)


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imported_names_exist(path: Path) -> None:
    missing = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in (*OURS, "tests", "bench"):
            names = defined(str(node.module))
            missing += [f"{node.module}.{a.name}" for a in node.names if names is not None and a.name not in names]
    assert not missing
