"""What ``docs/ir.md`` shows runs, and its table is that of the passes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from compiler_service.compiler.graph_passes.pipelines import PASSES
from ingot import target

PAGE = (Path(__file__).parents[3] / "docs" / "ir.md").read_text()
ROW = re.compile(r"^\| `(\w+)`[^|]*\| (\d) \|[^|]*\|[^|]*\| ([^|]*)\| ([^|]*)\|$", re.MULTILINE)


@pytest.fixture(autouse=True)
def _no_presets() -> Iterator[None]:
    yield
    target._own.clear()


def test_the_examples_run() -> None:
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        exec(block, names)
    printed = str(names["module"])
    assert printed.startswith("module {opset=0}\ngraph main(%x: float32[n]) -> (%y) {")
    shown = re.findall(r"```\n(module.*?)    \.\.\.\n```", PAGE, re.DOTALL)
    assert [printed.startswith(text) for text in shown] == [True]


def test_the_table_is_that_of_the_passes() -> None:
    rows = {name: (int(level), facts(needs), facts(gives)) for name, level, needs, gives in ROW.findall(PAGE)}
    assert rows == {p.__name__: (p.level, set(map(str, p.needs)), set(map(str, p.gives))) for p in PASSES.values()}


def facts(cell: str) -> set[str]:
    return {fact.strip() for fact in cell.split(",") if fact.strip()}
