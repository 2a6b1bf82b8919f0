"""The settings tables of ``docs/operating.md``, out of the settings classes: ``python scripts/document_settings.py``."""

from __future__ import annotations

import ast
import dataclasses
import itertools
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from compiler_service.settings import CompilerSettings
from runtime_service.settings import RuntimeSettings
from runtime_service.settings import variable as runtime_variable
from shared_ir.storage.files import write_atomically

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "operating.md"


def documented(text: str) -> str:
    """``text`` with both tables written anew."""
    for name, table in (("compiler", compiler_table()), ("runtime", runtime_table())):
        begin, end = f"<!-- {name} settings -->", f"<!-- end of {name} settings -->"
        before, _, rest = text.partition(begin)
        _, _, after = rest.partition(end)
        text = f"{before}{begin}\n{table}{end}{after}"
    return text


def compiler_table() -> str:
    texts = grouped_attributes(CompilerSettings.__doc__ or "")
    return table({f"INGOT_{own.name.upper()}": (own, texts[own.name]) for own in dataclasses.fields(CompilerSettings)})


def runtime_table() -> str:
    texts = trailing_docstrings(ROOT / "runtime_service" / "settings.py", "RuntimeSettings")
    return table({runtime_variable(own.name): (own, texts[own.name]) for own in dataclasses.fields(RuntimeSettings)})


def table(rows: Mapping[str, tuple[Any, str]]) -> str:
    lines = ["| variable | default | meaning |", "|---|---|---|"]
    for name, (own, text) in rows.items():
        lines.append(
            f"| `{name}` | {default_text(own.default)} | {text.replace('``', '`').replace('|', chr(92) + '|')} |"
        )
    return "\n".join(lines) + "\n"


def default_text(value: Any) -> str:
    if isinstance(value, Path):
        return f"`~/{value.relative_to(Path.home())}`"
    if isinstance(value, bool):
        return f"`{int(value)}`"
    return f"`{value}`" if value != "" else ""


def grouped_attributes(docstring: str) -> dict[str, str]:
    """Name -> text of ``one, two: text`` in a docstring's ``Attributes`` section."""
    found: dict[str, str] = {}
    names: list[str] = []
    for line in docstring.partition("Attributes:")[2].splitlines():
        match = re.match(r"\s*((?:[a-z0-9_]+, )*[a-z0-9_]+): (.*)", line)
        if match:
            names = match[1].split(", ")
            found |= {name: match[2].strip() for name in names}
        elif line.strip():
            found |= {name: f"{found[name]} {line.strip()}" for name in names}
    return found


def trailing_docstrings(path: Path, class_name: str) -> dict[str, str]:
    """Field -> the string literal below it."""
    tree = ast.parse(path.read_text())
    body = next(node.body for node in tree.body if isinstance(node, ast.ClassDef) and node.name == class_name)
    found = {}
    for field, text in itertools.pairwise(body):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(text, ast.Expr):
            found[field.target.id] = " ".join(str(ast.literal_eval(text.value)).split())
    return found


if __name__ == "__main__":
    write_atomically(PAGE, documented(PAGE.read_text()).encode())
    sys.exit(0)
