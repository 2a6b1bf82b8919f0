"""The `ingot` command without any service, in this process."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ingot
from compiler_service.compiler.tune.measuring.trial import OutcomeKind
from compiler_service.compiler.tune.records.lines import read_lines, write_lines
from ingot.cli.main import main
from tests.ingot.small_models import classifier, expected_scores, scale, unsupported


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("INGOT_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "home"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "net.onnx").write_bytes(classifier().SerializeToString())
    return tmp_path / "net.onnx"


def ask(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    capsys.readouterr()
    assert main([*arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_compile_run_profile_inspect(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written = ask(capsys, "compile", str(path), "--local", "--out", "net.ingot")
    assert written["directory"] == "net.ingot"
    image = np.random.default_rng(0).standard_normal((2, 3, 7, 9)).astype(np.float32)
    np.save(tmp_path / "image.npy", image)
    run = ("net.ingot", "--input", "image=image.npy")
    assert ask(capsys, "run", *run, "--save", "out")["outputs"][0]["shape"] == [2, 5]
    scores = np.load(tmp_path / "out" / "scores.npy")
    np.testing.assert_allclose(scores, expected_scores(classifier(), image), rtol=1e-4, atol=1e-6)
    kernels = ask(capsys, "profile", *run, "--repeat", "2")["kernels"]
    assert all(row["seconds"] > 0 and row["bytes"] > 0 for row in kernels)
    assert any(row["flops"] > 0 for row in kernels)
    assert {row["rule"] for row in kernels} & {"contraction", "few columns", "window"}
    launches = ask(capsys, "profile", *run, "--launches", "--repeat", "2")["launches"]
    assert sum(row["calls"] for row in kernels) == len(launches)
    (facts,) = ask(capsys, "inspect", "net.ingot")
    assert facts["manifest"]["key"] == written["targets"][0]["key"]
    assert facts["inputs"][0]["name"] == "image"
    assert ask(capsys, "inspect", str(path))["operators"]["Conv"] == 1
    assert "Conv" in ask(capsys, "inspect", str(path), "--graph")["graph"]


@pytest.mark.slow
def test_tables_are_readable(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compile", str(path), "--local"]) == 0
    assert main(["profile", "net.ingot", "--input", "image=random:1x3x8x8"]) == 0
    printed = capsys.readouterr().out
    assert "GFLOP/s" in printed
    assert "GB/s" in printed
    assert "written to net.ingot" in printed


@pytest.mark.slow
def test_shapes_names_and_programs(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("--shape", "image=1,3,h,?", "--name", "mine", "--bundle")
    written = ask(capsys, "compile", str(path), "--local", *arguments, "--target", "host", "x86-64-v2")
    assert len(written["targets"]) == len(written["programs"]) == 2
    assert written["targets"][0]["options"]["shapes"] == {"image": [1, 3, "h", None]}
    (facts, _) = ask(capsys, "inspect", "mine.ingot")
    assert facts["inputs"][0]["type"] == "float32[1, 3, h, width]"
    info = subprocess.run([written["programs"][1], "--info"], capture_output=True, text=True, check=True).stdout
    assert "input image: float32[1, 3, h, width]" in info


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("qemu-aarch64-static") is None, reason="qemu-user-static is not installed")
def test_a_program_for_another_machine_gives_equal_answers(path: Path, tmp_path: Path) -> None:
    assert main(["compile", str(path), "--local", "--target", "raspberry-pi/4b", "--bundle", "--out", "pi"]) == 0
    (program,) = (tmp_path / "pi").glob("net.aarch64.*")
    image = np.random.default_rng(0).standard_normal((2, 3, 6, 6)).astype(np.float32)
    image.tofile(tmp_path / "image.bin")
    command = ["qemu-aarch64-static", str(program), "--shape", "image=2,3,6,6", "image.bin", "scores.bin"]
    subprocess.run(command, check=True, capture_output=True)
    scores = np.fromfile(tmp_path / "scores.bin", np.float32).reshape(2, 5)
    np.testing.assert_allclose(scores, expected_scores(classifier(), image), rtol=1e-4, atol=1e-6)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("skopeo") is None, reason="skopeo is not installed")
def test_other_tools_read_the_folder(path: Path) -> None:
    assert main(["compile", str(path), "--local", "--out", "net.ingot"]) == 0
    command = ["skopeo", "inspect", "--raw", "oci:net.ingot:latest"]
    index = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    assert index["schemaVersion"] == 2
    assert index["manifests"][0]["platform"]["os"] == "linux"


def test_check(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert ask(capsys, "check", str(path), "--local")["ok"] is True
    (tmp_path / "bad.onnx").write_bytes(unsupported().SerializeToString())
    assert main(["check", "bad.onnx", "--local"]) == 1
    assert "com.example" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["compile", "missing.onnx", "--local"], "NOT_FOUND", "missing.onnx"),
        (["compile", "net.onnx", "--local", "--target", "commodore-64"], "INVALID_TARGET", "commodore-64"),
        (["compile", "net.onnx", "--local", "--target", "host", "host"], "INVALID_ARGUMENT", "same"),
        (["compile", "net.onnx", "--local", "--shape", "other=1,2"], "INVALID_ARGUMENT", "image"),
        (["run", "nowhere"], "NOT_FOUND", "nowhere"),
        (["inspect", "."], "NOT_FOUND", "version"),
    ],
)
def test_mistakes_are_one_sentence(
    path: Path, arguments: list[str], code: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("error: ")
    assert told in printed.err
    assert main([*arguments, "--json"]) == 1
    assert json.loads(capsys.readouterr().err)["error"]["code"] == code


@pytest.mark.parametrize("json_too", [[], ["--json"]])
def test_wrong_usage_is_one_sentence(json_too: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["jobs", "--watch", *json_too])
    assert caught.value.code == 2
    error = capsys.readouterr().err
    assert "`ingot jobs` lists them" in error
    assert (json.loads(error)["error"]["code"] == "INVALID_ARGUMENT") if json_too else error.startswith("error: ")


@pytest.mark.slow
def test_inputs_of_a_run_are_checked(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compile", str(path), "--local", "--out", "net.ingot"]) == 0
    for given, told in (
        ([], "random:"),
        (["--input", "picture=random:1"], "picture"),
        (["--input", "image=missing.npy"], "missing.npy"),
        (["--input", "image=random:1x4x8x8"], "image"),
    ):
        capsys.readouterr()
        assert main(["run", "net.ingot", *given]) == 1
        assert told in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [[], ["bogus"], ["compile"], ["compile", "m", "--opt-level", "7"]])
def test_wrong_usage_is_status_2(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2


@pytest.mark.slow
def test_tuning_writes_records_that_the_next_compilation_uses(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "net.onnx").write_bytes(classifier(64).SerializeToString())
    untuned = ask(capsys, "compile", "net.onnx", "--local")["targets"][0]
    ask(capsys, "compile", "net.onnx", "--local", "--tune", "20")
    path = home / "records.jsonl"
    records, unreadable = read_lines(path.read_bytes())
    assert records
    assert not unreadable.count
    measured = next(r for r in records if r.outcome is OutcomeKind.MEASURED)
    faster = replace(measured, confirmed=True, default_seconds=2 * measured.seconds, time=1e10)
    path.write_bytes(path.read_bytes() + write_lines([faster]))
    again = ask(capsys, "compile", "net.onnx", "--local")["targets"][0]
    assert again["key"] != untuned["key"]
    assert "tuned" in again["report"]["rules"].values()
    assert main(["run", "net.ingot", "--input", "image=random:1x3x8x8"]) == 0


def test_inputs_of_fixed_shape_need_not_be_given(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "scale.onnx").write_bytes(scale().SerializeToString())
    assert main(["compile", "scale.onnx", "--local", "--shape", "x=2,4"]) == 0
    assert ask(capsys, "run", "scale.ingot", "--repeat", "3")["outputs"][0]["shape"] == [2, 4]


@pytest.mark.slow
@pytest.mark.parametrize("in_process", [False, True])
def test_who_gives_up_keeps_what_was_measured(tmp_path: Path, *, in_process: bool) -> None:
    records = tmp_path / "records.jsonl"

    def give_up(stage: str, done: int, total: int, message: str) -> None:
        if "trials" in message:
            raise KeyboardInterrupt

    model = classifier(64).SerializeToString()
    with pytest.raises(KeyboardInterrupt):
        ingot.compile(model, records=records, tune=60, progress=give_up, in_process=in_process)
    found, unreadable = read_lines(records.read_bytes())
    assert found
    assert not unreadable.count
