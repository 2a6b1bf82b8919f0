"""What a file imports by name is there, also in tests and tools; the types of all of them are checked."""

from __future__ import annotations

import ast
import re
import tomllib
from functools import cache

from tests.house.test_imports import OURS, ROOT, modules

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


def test_imported_names_exist() -> None:
    missing = []
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in (*OURS, "tests", "bench"):
                names = defined(str(node.module))
                absent = [a.name for a in node.names if names is not None and a.name not in names]
                missing += [f"{path.relative_to(ROOT)}: {node.module}.{name}" for name in absent]
    assert not missing


NOT_OURS = {"build", "dist"}
"""Folders that tools write copies into."""


def test_types_of_every_folder_are_checked() -> None:
    """Also before a commit: a test that calls what has changed is found where it is changed."""
    held = {f.name for f in ROOT.iterdir() if f.is_dir() and f.name[0] != "." and any(f.rglob("*.py"))} - NOT_OURS
    checked = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mypy"]["files"]
    assert held - set(checked) == set()
    assert f"files: ^({'|'.join(checked)})/" in (ROOT / ".pre-commit-config.yaml").read_text()


REFERENCE = re.compile(r":(?:mod|func|class|data|meth|attr):`~?([\w.]+)`")


def test_names_that_docstrings_refer_to_exist() -> None:
    """Those that are written out from the package on."""
    missing = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in [*modules(), *FILES]
        for name in REFERENCE.findall(path.read_text())
        if name.partition(".")[0] in (*OURS, "bench") and not exists(name)
    ]
    assert not missing


def exists(name: str) -> bool:
    """Whether ``name`` is a module, or something that the longest module in it has."""
    parts = name.split(".")
    for size in range(len(parts), 0, -1):
        path = ROOT.joinpath(*parts[:size])
        if path.is_dir() or path.with_suffix(".py").exists():
            names = defined(".".join(parts[:size]))
            return names is None or set(parts[size:]) <= names
    return False
