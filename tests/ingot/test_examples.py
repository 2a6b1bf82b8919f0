"""Examples run as they are, and need nothing but this project and what its models are made with."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OTHERS = {"serve_with_triton.py"}
"""What shows a client of another project."""
PUBLIC = {"ingot", "numpy", "onnx"}


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.py")), ids=lambda p: p.name)
def test_examples_import_what_is_public(path: Path) -> None:
    found = set[str]()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(str(node.module).partition(".")[0])
    assert path.name in OTHERS or found <= PUBLIC | set(sys.stdlib_module_names)


@pytest.mark.slow
def test_the_own_pass_runs() -> None:
    done = subprocess.run(
        [sys.executable, "examples/own_pass.py"],
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT), "PATH": ""},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "%pow: float32[n, 64] = Mul(%sub, %sub)" in done.stdout
    assert "-- compiled with it, and right" in done.stdout
