"""What the pages name exists: files, functions, modules, targets of make, links."""

from __future__ import annotations

import ast
import importlib.util
import re
import subprocess
from functools import cache
from pathlib import Path

import pytest

from tests.house.test_imports import ROOT, C

PAGES = sorted(
    path
    for pattern in ("*.md", "docs/**/*.md", "bench/README.md", "deploy/**/*.md", "examples/**/*.md")
    for path in ROOT.glob(pattern)
)
MAP = ROOT / "docs" / "architecture.md"
LONGEST_MAP = 120
"""Lines of the map, of a hundred characters on average: two pages."""

CODE = re.compile(r"`([^`\n]+)`")
FUNCTION = re.compile(r"([\w./]+\.(?:py|c|h))::([\w.]+(?:/\w+)*)")
"""A file and what it defines, ``file::function`` or several of a class or module, ``file::Class.first/second``."""
FILE = re.compile(r"[\w.-]+(?:/[\w.-]+)*\.(?:py|c|h|md|toml|yaml|sh|proto)")
FOLDER = re.compile(r"[\w.-]+(?:/[\w.-]+)*/")
LINK = re.compile(r"\]\(([^)\s]+)\)")
MADE = ("cache/", "logs/", "store/", "trust/", "plan.json", "report.json")
"""What lies in folders that a run makes."""


@cache
def tracked() -> tuple[str, ...]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True
    )
    files = listed.stdout.split("\n") if listed.returncode == 0 else []
    return tuple(f for f in files if f) or tuple(str(p.relative_to(ROOT)) for p in ROOT.rglob("*") if p.is_file())


def words(page: Path) -> list[str]:
    return CODE.findall(re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL))


def defined(path: Path) -> set[str]:
    """Names that a Python file defines at its top and in its classes, or that a C file has a function of."""
    text = path.read_text()
    if path.suffix != ".py":
        return set(re.findall(r"^\w[\w *]*?\b(\w+)\(", text, re.MULTILINE))
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    top = [node for node in ast.parse(text).body if isinstance(node, kinds)]
    inside = {f"{c.name}.{m.name}" for c in top if isinstance(c, ast.ClassDef) for m in c.body if isinstance(m, kinds)}
    return inside | {node.name for node in top}


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_functions_that_are_named_exist(page: Path) -> None:
    assert missing(page.read_text()) == []


def missing(text: str) -> list[str]:
    """What ``text`` names that no file, or more than one, has; a path may be told by its end."""
    found = []
    for path, names in FUNCTION.findall(text):
        files = [file for file in tracked() if f"/{file}".endswith(f"/{path}")]
        first, *others = names.split("/")
        before = first.rpartition(".")[0]
        for name in (first, *(f"{before}.{other}" if before else other for other in others)):
            if len(files) != 1 or name not in defined(ROOT / files[0]):
                found.append(f"{path}::{name}")
    return found


def test_functions_that_are_not_there_are_found() -> None:
    assert missing("`loop_ir/verify.py::verify`, `compiler/pipeline.py::check_model/tune_model`") == []
    assert missing("`worker/stages.py::StageWorker._ingest/_bake`") == ["worker/stages.py::StageWorker._bake"]
    assert missing("`loop_ir/verify.py::prove`, `verify.py::verify`") == [
        "loop_ir/verify.py::prove",
        "verify.py::verify",
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_files_and_folders_that_are_named_exist(page: Path) -> None:
    """A path may be told from any folder on: ``schedule/lower.py`` is the end of the path of a file."""
    ends = {f"/{file}" for file in tracked()}
    missing = []
    for word in words(page):
        if FILE.fullmatch(word) and word not in MADE and not any(end.endswith(f"/{word}") for end in ends):
            missing.append(word)
        if FOLDER.fullmatch(word) and word not in MADE and not any(f"/{word}" in end for end in ends):
            missing.append(word)
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    links = [link.partition("#") for link in LINK.findall(page.read_text()) if "://" not in link]
    assert [file for file, _, _ in links if not (page.parent / file).exists()] == []
    named = [(page.parent / file if file else page, anchor) for file, _, anchor in links if anchor]
    assert [f"{path.name}#{anchor}" for path, anchor in named if anchor not in anchors(path)] == []


def anchors(page: Path) -> set[str]:
    """What the headings of ``page`` are linked by."""
    titles = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_commands_that_are_named_exist(page: Path) -> None:
    text = page.read_text()
    ours = re.findall(r"python -m ((?:bench|compiler_service|runtime_service|shared_ir|ingot|tests)[\w.]*\w)", text)
    assert [name for name in ours if importlib.util.find_spec(name) is None] == []
    made = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"`make (\w+)`", text)) <= made


def test_the_map_names_every_room_of_the_compiler() -> None:
    text, root = MAP.read_text(), ROOT / C.replace(".", "/")
    rooms = [p.parent for p in root.glob("*/__init__.py")] + [p.parent for p in root.glob("*/*/__init__.py")]
    left_out = [str(r.relative_to(root)) for r in rooms if f"`{r.name}/`" not in text and f"`{r.name}`" not in text]
    assert sorted(left_out) == []


def test_the_map_is_two_pages() -> None:
    assert MAP.read_text().count("\n") <= LONGEST_MAP
    assert len(MAP.read_text()) <= LONGEST_MAP * 100
    for title in ("One upload", "One inference request"):
        part = MAP.read_text().split(f"## {title}\n")[1].split("\n## ")[0]
        assert len(re.findall(r"^\d+\. ", part, re.MULTILINE)) == 10


def test_every_page_of_design_is_listed() -> None:
    folder = ROOT / "docs" / "design"
    listed = set(LINK.findall((folder / "README.md").read_text()))
    assert {p.name for p in folder.glob("*.md")} - listed == {"README.md"}
