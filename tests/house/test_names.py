"""What a file imports by name is there, also in tests and tools; types are checked; a class has its name to itself."""

from __future__ import annotations

import ast
import re
import tomllib
from collections import defaultdict
from collections.abc import Iterable
from functools import cache
from pathlib import Path

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


_PUBLIC = "what users hold is called as the field calls it, and holds the compiler's"
SHARED_NAMES: dict[str, str] = {
    "Instrument": f"{_PUBLIC}: it is told of modules, the other one of graphs",
    "Module": f"{_PUBLIC}: of several functions, the other one is a model's graph",
    "Pass": f"{_PUBLIC}: of modules, the other one of graphs",
    "PassContext": f"{_PUBLIC}: a context manager",
    "Target": f"{_PUBLIC}: the same value, which reads what only this machine can say",
}
"""Names that more than one class of the packages has, each with the reason; protobuf's stubs are not asked."""


def doubles(paths: Iterable[Path]) -> dict[str, list[str]]:
    """Class names that are defined more than once, with the places; what begins with an underscore is its module's own."""
    places: dict[str, list[str]] = defaultdict(list)
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(f"{path.relative_to(ROOT)}:{node.lineno}")
    return {name: found for name, found in places.items() if len(found) > 1}


def test_a_class_has_its_name_to_itself() -> None:
    """Two meanings are two names (``JobStage``, ``KernelStage``), and one meaning is one class."""
    found = doubles(modules())
    assert {name: places for name, places in found.items() if name not in SHARED_NAMES} == {}
    assert SHARED_NAMES.keys() <= found.keys(), "a row without a double"


def test_a_second_class_of_a_name_is_found() -> None:
    path = ROOT / "shared_ir" / "types.py"
    assert doubles([path, path])["ValueKind"] == [f"shared_ir/types.py:{line_of(path, 'class ValueKind')}"] * 2


def line_of(path: Path, text: str) -> int:
    return next(number for number, line in enumerate(path.read_text().splitlines(), 1) if line.startswith(text))


def test_private_classes_stay_in_their_module() -> None:
    """That is what lets two of them have one name."""
    classes = {
        path: {n.name for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.ClassDef)}
        for path in modules()
    }
    private = {name for names in classes.values() for name in names if name.startswith("_")}
    taken = [
        f"{path.relative_to(ROOT)}: {node.module}.{alias.name}"
        for path in classes
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(OURS)
        for alias in node.names
        if alias.name in private
    ]
    assert not taken
