"""``python -m compiler_service.compiler.opt``: the passes on a text file."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from compiler_service.compiler.graph_passes.pipelines import default_pipeline
from compiler_service.compiler.loop_ir.passes import LOOP_PASSES
from compiler_service.compiler.loop_ir.passes import run as run_passes
from compiler_service.compiler.loop_ir.passes.vectorize import vectorize
from compiler_service.compiler.loop_ir.text import print_function
from compiler_service.compiler.opt import main
from compiler_service.compiler.options import CompileOptions
from shared_ir.graph.text import array_digest, parse_graph, parse_graphs, parse_module
from shared_ir.machine.target import parse_target
from tests.compiler_service.compiler.loop_ir.loop_programs import guarded_scale

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


def test_every_graph_of_a_module_goes_through_the_passes(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    loops = "function scale(x: float32[n], out y: float32[n]; n: int64)\nfor task t in 0..n:\n    y[t] = x[t] * 2.0\n"
    header, other = 'module {opset=17, strings=("a",)}', TEXT.replace("main", "other")
    file.write_text(f"{header}{TEXT}{other}{loops}")
    assert main(["-p", "simplify-algebra", str(file)]) == 0
    module, graphs, end = parse_graphs(printed := capsys.readouterr().out)
    assert (module.opset, module.strings) == (17, ("a",))
    assert [(g.name, [n.op for n in g.nodes]) for g in graphs] == [("main", ["Relu"]), ("other", ["Relu"])]
    assert printed[end:] == loops
    file.write_text(f"{header}{TEXT}{other}nonsense")
    assert main(["-p", "simplify-algebra", str(file)]) == 1


@pytest.mark.parametrize(
    "usage",
    [
        ["-p", "tile-batch{costs=1}"],
        ["-p", "separate-taps,choose-layout,fuse"],
        ["-p", "fold"],
        ["-p", "fuse", "--target", "host"],
        ["-p", "fuse", "-O", "3"],
        ["--target", "raspberry-pi/99"],
    ],
    ids=" ".join,
)
def test_wrong_usage_is_said_in_one_sentence(usage: list[str], file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*usage, str(file)]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "Report the model" not in said


def test_the_pipeline_of_a_target_is_printed_and_runs_when_given_back(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for options in (["--target", "amd/zen4"], ["-O", "1", "--target", "raspberry-pi/5"], []):
        assert main([*options, "--print-pipeline"]) == 0
        printed = capsys.readouterr().out.strip()
        assert main([*options, str(file)]) == 0
        wanted = capsys.readouterr().out
        assert main(["-p", printed, str(file)]) == 0
        assert capsys.readouterr().out == wanted


def test_the_pipeline_of_a_target_is_the_one_that_compiles_for_it(capsys: pytest.CaptureFixture[str]) -> None:
    target = parse_target("amd/zen4")
    for flags, options in (([], CompileOptions()), (["--no-winograd"], CompileOptions(winograd=False))):
        assert main(["--target", "amd/zen4", *flags, "--print-pipeline"]) == 0
        wanted = default_pipeline(3, target, filters=options.allows("winograd"))
        assert capsys.readouterr().out.strip() == str(wanted)


def test_there_must_be_something_to_run_on(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["-p", "fuse"]) == 2
    assert "FILE" in capsys.readouterr().err


# -- loop IR


@pytest.fixture
def loops(tmp_path: Path) -> Path:
    path = tmp_path / "loops.txt"
    path.write_text(f"# lowered\n{print_function(guarded_scale())}\n")
    return path


def test_all_passes_of_loops(loops: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(loops)]) == 0
    assert capsys.readouterr().out == print_function(run_passes(guarded_scale())) + "\n"


def test_named_passes_of_loops(loops: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["-p", "skip, vectorize", "--print-between", "--time", str(loops)]) == 0
    found = capsys.readouterr()
    assert found.out == print_function(vectorize(guarded_scale())) + "\n"
    assert "# 01 skip: nothing changed\n# 02 vectorize\nfunction scale" in found.err
    assert "ms  vectorize" in found.err


def test_the_passes_of_loops_are_printed(loops: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--print-pipeline", str(loops)]) == 0
    printed = capsys.readouterr().out.strip()
    assert printed.split(",") == [item.name for item in LOOP_PASSES]
    assert main(["-p", printed, "--print-pipeline"]) == 0
    assert capsys.readouterr().out.strip() == printed


def test_an_order_that_passes_of_loops_do_not_admit(loops: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["-p", "flatten,skip", str(loops)]) == 2
    said = capsys.readouterr().err
    assert "pass 'skip' must not find flat and comes behind pass 'flatten', which gives it" in said
    assert main(["-p", "flatten,skip", "--print-pipeline"]) == 2
    assert "'flatten'" in capsys.readouterr().err


@pytest.mark.parametrize("usage", [["-p", "fuse"], ["-p", "skip{x=1}"], ["-p", ""], ["--target", "host"], ["-O", "1"]])
def test_wrong_usage_for_loops(usage: list[str], loops: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*usage, str(loops)]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize(
    "text", ["function f(", "function f(out y: float32[4])\nfor task t in 0..4:\n    y[t + 0.5] = 1.0"]
)
def test_loops_that_do_not_parse_or_are_malformed(text: str, loops: Path, capsys: pytest.CaptureFixture[str]) -> None:
    loops.write_text(text)
    assert main([str(loops)]) == 1
    assert "line" in capsys.readouterr().err


# -- files


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"PK\x03\x04", b"no archive"])
def test_constants_that_cannot_be_read(
    content: bytes, file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "weights.npz").write_bytes(content)
    assert main(["--constants", str(tmp_path / "weights.npz"), str(file)]) == 1
    assert "weights.npz" in capsys.readouterr().err
    file.write_bytes(b"\xff\xfe\x00")
    assert main([str(file)]) == 1
    assert "graph.txt is no text" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("dtype", "status"),
    [("bfloat16[64, 2]", 0), ("float8e4m3fn[100]", 0), ("float33[4]", 1), ("float32[99999999999, 99999]", 1)],
)
def test_made_up_constants_of_any_type(dtype: str, status: int, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    digest = f"sha256:{'0' * 64}"
    file.write_text(f"graph main() -> (%y) {{\n const %w: {dtype} = {digest}\n %y: {dtype} = Identity(%w)\n}}")
    assert main(["-p", "eliminate-dead-code", "--invent-constants", str(file)]) == status
    assert "Traceback" not in capsys.readouterr().err


def test_constants_come_from_a_file_or_are_made_up(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    weight = np.arange(100, dtype=np.float32)
    digest = array_digest(weight)
    file.write_text(
        f"graph main(%x: float32[100]) -> (%y) {{\n const %w: float32[100] = {digest}\n %y: float32[100] = Add(%x, %w)\n}}"
    )
    np.savez(tmp_path / "weights.npz", allow_pickle=False, **{digest: weight})
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


def test_a_graph_from_behind_fusion_is_refused_where_a_pass_must_not_find_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fused = tmp_path / "fused.txt"
    assert main(["-p", "eliminate-dead-code,fuse", str(write(tmp_path, TEXT))]) == 0
    fused.write_text(capsys.readouterr().out)
    assert main([str(fused)]) == 1
    assert "must not find grouped" in capsys.readouterr().err
    assert main(["-p", "eliminate-dead-code", str(fused)]) == 0


def write(folder: Path, text: str) -> Path:
    path = folder / "plain.txt"
    path.write_text(text)
    return path


@pytest.mark.parametrize("terms", [200, 400, 3000])
def test_long_sums_of_a_loop_function(terms: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = f"function f(x: float32[n], out y: float32[n]; n: int64)\nfor task i in 0..n:\n    y[i] = {' + '.join(['x[i]'] * terms)}\n"
    status = main([str(write(tmp_path, text))])
    said = capsys.readouterr()
    assert status == (0 if terms == 200 else 1), said.err
    assert terms == 200 or "line 3" in said.err


def test_results_that_cannot_be_written(file: Path) -> None:
    command = [sys.executable, "-m", "compiler_service.compiler.opt", str(file)]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (1, "cannot write the result: No space left on device\n")


def test_the_text_is_utf_8_whatever_the_locale(tmp_path: Path) -> None:
    path = tmp_path / "graph.txt"
    path.write_text('graph main(%"eté é": float32[2]) -> (%"eté é") {\n}\n', encoding="utf-8")
    plain = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    for given in (str(path), "-"):
        command = [sys.executable, "-m", "compiler_service.compiler.opt", "-p", "fold-shapes", given]
        done = subprocess.run(
            command, input=path.read_bytes(), capture_output=True, timeout=100, env=plain, check=False
        )
        assert done.returncode == 0, done.stderr
        assert b"%" in done.stdout


@pytest.mark.parametrize("dims", ["3 3", "9" * 5000, "9" * 400, "٣"])
def test_constants_of_no_shape_are_not_made_up(dims: str, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(
        f"graph main(%x: float32[3]) -> (%x) {{\n  const %w: float32[{dims}] = sha256:{'0' * 64}\n}}\n", "utf-8"
    )
    assert main(["--invent-constants", "-p", "fold-shapes", str(file)]) == 1
    assert "line 2, column" in capsys.readouterr().err


@pytest.mark.parametrize(
    "node",
    [
        "%y: float32[3, 1, 2, 5], %h: float32[1, 2, 5] = RNN(%x, %w, %r) {hidden_size=5}",
        "%y: float32[3, 1, 2, 5] = GRU(%x, %w, %r) {hidden_size=5}",
        "%y: float32[3, 2, 4] = Nonsense(%x)",
    ],
    ids=["RNN", "GRU", "Nonsense"],
)
def test_operators_that_are_still_to_be_expanded_are_not_fused(
    node: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gates = 3 if "GRU" in node else 1
    text = f"""
    graph main(%x: float32[3, 2, 4], %w: float32[1, {5 * gates}, 4], %r: float32[1, {5 * gates}, 5]) -> (%y) {{
      {node}
    }}
    """
    assert main(["-p", "fuse", str(write(tmp_path, text))]) == 1
    assert "pass 'fuse' needs operators-expanded" in capsys.readouterr().err
