"""``docs/python-api.md`` is what the docstrings say, and every public name has types and a docstring, with the errors that it raises."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.docstring_markdown import markdown
from scripts.document_api import PAGE, page
from scripts.public_members import class_of, constructor, lineage, members
from scripts.public_names import MODULES, Definition, Signature, is_class, public_names, signature_of
from scripts.public_types import exports, made_by_users, named_types

ROOT = Path(__file__).parents[2]
SHOWN = sorted({*exports(), *named_types()}, key=lambda each: (each.module, each.name))
"""Every name of the page, what signatures name included."""
_RAISING = ("refuse", "misfit", "_refused", "_misfit")
"""Functions that make or raise an error for whoever calls them."""


def test_the_page_is_current() -> None:
    assert page() == PAGE.read_text(), "run: make api"


def test_the_page_is_the_same_whatever_the_order_of_sets() -> None:
    script = "import sys; from scripts.document_api import page; sys.stdout.write(page())"
    environment = {"PYTHONHASHSEED": "7", "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == PAGE.read_text()


def test_what_is_exported_is_there() -> None:
    modules = set(MODULES)
    lost = [str(p) for m in MODULES for p in public_names(m) if p.definition is None and str(p) not in modules]
    assert lost == []
    assert len(exports()) > 120


def functions_of(found: Definition) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef, str]]:
    """Name, text and docstring of the functions that are called when a public name is used."""
    if isinstance(found.node, ast.FunctionDef):
        yield found.name, found.node, found.docstring
    if not is_class(found):
        return
    told = {m.name: m.docstring for m in members(found)} | dict.fromkeys(("__init__", "__post_init__"), found.docstring)
    for each in lineage(found):
        for node in class_of(each).body:
            if isinstance(node, ast.FunctionDef) and node.name in told:
                yield f"{found.name}.{node.name}", node, told[node.name]


@pytest.mark.parametrize("found", SHOWN, ids=lambda d: f"{d.module}.{d.name}")
def test_a_name_has_types_and_a_docstring(found: Definition) -> None:
    assert list(faults(found)) == []


def faults(found: Definition) -> Iterator[str]:
    """What a public name lacks."""
    if not found.docstring:
        yield f"{found.name}: no docstring"
    if not is_class(found):
        yield from (f"{found.name}: no type" for signature in found.signatures if not signature.is_typed)
        return
    called = constructor(found)
    if called is not None and not called.is_typed:
        yield f"{found.name}: no type in the constructor"
    seen = made_by_users(found) or Signature((), "")
    in_constructor = {p.name for p in seen.parameters}
    for member in members(found):
        if not member.is_typed:
            yield f"{found.name}.{member.name}: no type"
        if not member.docstring and member.kind != "value" and (member.name not in in_constructor):
            yield f"{found.name}.{member.name}: no docstring"


@pytest.mark.parametrize("found", SHOWN, ids=lambda d: f"{d.module}.{d.name}")
def test_errors_that_a_function_raises_are_told(found: Definition) -> None:
    silent = [name for name, node, text in functions_of(found) if raises(node) and "aises" not in text]
    assert silent == []


def raises(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether its text raises an error of ours, or calls what does."""
    for each in ast.walk(node):
        match each:
            case ast.Raise(exc=ast.Call(func=ast.Name(id="IngotError"))):
                return True
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if name in _RAISING:
                return True
    return False


# -- of the checks themselves


def written(text: str) -> Definition:
    node = ast.parse(text).body[0]
    return Definition("ingot.te.loops", getattr(node, "name", ""), node)


def test_what_a_name_lacks_is_found() -> None:
    assert list(faults(written("def f(x: int) -> int:\n    'Twice ``x``.'"))) == []
    assert list(faults(written("def f(x) -> int: ..."))) == ["f: no docstring", "f: no type"]
    assert list(faults(written("class C:\n    'A thing.'\n    def f(self, x: int): ...\n    def _g(self): ..."))) == [
        "C.f: no type",
        "C.f: no docstring",
    ]
    assert list(
        faults(written("class C:\n    'A thing.'\n    def __init__(self, x: int) -> None:\n        self.y = x"))
    ) == [
        "C.y: no type",
        "C.y: no docstring",
    ]
    told = 'class C:\n    """A thing.\n\n    Attributes:\n        x: a number.\n    """\n'
    assert list(faults(written(f"{told}    def __init__(self, x: int) -> None:\n        self.x = x"))) == []


def test_an_error_that_is_not_told_is_found() -> None:
    for text, expected in {
        "def f() -> None:\n    raise IngotError(1, 'x')": True,
        "def f() -> None:\n    refuse('a', 'b', 'c')": True,
        "def f() -> None:\n    raise AttributeError": False,
    }.items():
        node = ast.parse(text).body[0]
        assert isinstance(node, ast.FunctionDef)
        assert raises(node) is expected


def test_signatures_are_written_as_they_are_called() -> None:
    node = ast.parse("def f(self, a: int, /, b: str = 'x', *c: int, d: bool = False, **e: int) -> 'None': ...").body[0]
    assert isinstance(node, ast.FunctionDef)
    text = '(a: int, /, b: str = "x", *c: int, d: bool = False, **e: int) -> None'
    assert str(signature_of(node, is_bound=True)) == text


def test_docstrings_become_markdown() -> None:
    text = """One :class:`Line` of ``x``,
and 2 * 3::

    f(x)

before: ``a``
after:  ``b;
c``

Args:
    x: a number
        of two lines.
    y: another.

Raises:
    IngotError: NOT_FOUND.
"""
    assert markdown(text).split("\n\n") == [
        "One `Line` of `x`, and 2 \\* 3:",
        "```python\nf(x)\n```",
        "- before: `a`\n- after: `b; c`",
        "* `x`: a number of two lines.\n* `y`: another.",
        "Raises `IngotError`: NOT_FOUND.",
    ]
