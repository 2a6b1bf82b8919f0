"""Every example runs to its end, which compares what it computes with numpy, and needs no more than its reader has."""

from __future__ import annotations

import ast
import runpy
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
ALONE = sorted(path for path in EXAMPLES.glob("*.py") if path.name != "serve_with_triton.py")
"""All but the one that talks to servers (``tests/packaging/test_other_extras.py``)."""
ALLOWED = {"ingot", "numpy", "onnx"}
SAID = {
    "cross_compile": ("riscv64/rvv       riscv64-linux-gnu", "-- run here, and right", "vfadd.vv"),
    "own_pass": ("%pow: float32[n, 64] = Mul(%sub, %sub)", "-- compiled with it, and right"),
    "own_operator": ("is not part of ONNX", "k0_matmul_com_example_scaledtanh_add", "largest difference to numpy"),
    "partition": ('ingot.Invoke(%x) {function="plain_c_0", codegen="plain_c"}', "k0_plain_c_0: by plain_c", "by Ingot"),
}
"""What some of them print, among other things."""


def test_there_are_examples() -> None:
    assert {path.stem for path in ALONE} >= {"cross_compile", "matmul", "own_pass", "softmax", "stencil", "vector_add"}


@pytest.mark.parametrize("path", ALONE, ids=lambda path: path.stem)
def test_an_example_imports_what_its_reader_has(path: Path) -> None:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        found |= {name.partition(".")[0] for name in names}
    assert found <= ALLOWED | sys.stdlib_module_names


@pytest.mark.slow
@pytest.mark.parametrize("path", ALONE, ids=lambda path: path.stem)
def test_an_example_runs(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(path), run_name="__main__")
    printed = capsys.readouterr().out
    assert printed
    for text in SAID.get(path.stem, ()):
        assert text in printed
