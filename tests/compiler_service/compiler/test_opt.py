"""``python -m compiler_service.compiler.opt``: the passes on a text file."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from compiler_service.compiler.graph_passes.algebra.simplify_algebra import SimplifyAlgebra
from compiler_service.compiler.graph_passes.fusion.fuse import Fuse
from compiler_service.compiler.opt import main, parse_passes
from shared_ir.errors import IngotError
from shared_ir.graph.text import array_digest, parse_graph, parse_module

TEXT = """
# two negations
graph main(%x: float32[batch, 4]) -> (%y) {
  %a: float32[batch, 4] = Neg(%x)
  %b: float32[batch, 4] = Neg(%a)
  %y: float32[batch, 4] = Relu(%b)
}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "graph.txt"
    path.write_text(TEXT)
    return path


def test_named_passes(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["-p", "simplify-algebra", str(file)]) == 0
    assert [n.op for n in parse_graph(capsys.readouterr().out).nodes] == ["Relu"]


def test_the_default_pipeline_and_its_levels(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main([str(file)])
    assert len(parse_graph(capsys.readouterr().out).nodes) == 1
    main(["-O", "0", str(file)])
    assert len(parse_graph(capsys.readouterr().out).nodes) == 3


def test_printing_between_goes_to_standard_error(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["-p", "simplify-algebra,eliminate-dead-code", "--print-between", "--time", str(file)])
    noted = capsys.readouterr().err
    assert "# 01 simplify-algebra\ngraph main" in noted
    assert "# 02 eliminate-dead-code: nothing changed" in noted
    assert "ms  simplify-algebra" in noted


def test_a_module_stays_a_module(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text("module {opset=17}" + TEXT)
    main(["-p", "simplify-algebra", str(file)])
    assert parse_module(capsys.readouterr().out).opset == 17


def test_options_of_passes() -> None:
    found = parse_passes("simplify-algebra{approximate=false}, fuse{prologues=true,most_nodes=8}")
    assert found == (SimplifyAlgebra(approximate=False), Fuse(prologues=True, most_nodes=8))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("fold", "there is no such pass"),
        ("fuse{speed=9}", "pass fuse has no such option"),
        ("fuse{most_nodes=many}", "fuse.most_nodes is no number"),
        ("fuse{merge=yes}", "fuse.merge is no truth value"),
        ("fuse}", "a list of passes is malformed"),
    ],
)
def test_wrong_passes_are_refused(text: str, message: str) -> None:
    with pytest.raises(IngotError, match=message):
        parse_passes(text)


def test_constants_come_from_a_file_or_are_made_up(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    weight = np.arange(100, dtype=np.float32)
    digest = array_digest(weight)
    file.write_text(
        f"graph main(%x: float32[100]) -> (%y) {{\n const %w: float32[100] = {digest}\n %y: float32[100] = Add(%x, %w)\n}}"
    )
    np.savez(tmp_path / "weights.npz", **{digest: weight})
    assert main(["-p", "fuse", str(file)]) == 1
    assert digest in capsys.readouterr().err
    assert main(["-p", "fuse", "--constants", str(tmp_path / "weights.npz"), str(file)]) == 0
    assert digest in capsys.readouterr().out
    assert main(["-p", "fuse", "--invent-constants", str(file)]) == 0


def test_from_the_shell() -> None:
    command = [sys.executable, "-m", "compiler_service.compiler.opt", "-p", "fuse", "-"]
    done = subprocess.run(command, input="graph nonsense", capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "does not parse" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_missing_file_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["no/such/file.txt"]) == 1
    assert "no/such/file.txt" in capsys.readouterr().err
