"""What people see: stages in their order, what fits a screen, and what was not verified."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from compiler_service.jobs.records import JobStage
from ingot.artifact import save_artifacts
from ingot.cli.commands.compile import show_job
from ingot.cli.commands.jobs import show
from ingot.cli.main import main
from ingot.cli.output import Output, PrintableConsole
from ingot.records import STAGES, Job, OutputFigures, TargetJob, Verification, in_order
from shared_ir.artifact.value import CompiledArtifact
from shared_ir.dtype import DType
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.expr.dim import symbol
from shared_ir.plan.program import SymbolSource, TensorSpec
from tests.ingot.cli.recorder import DONE, FakeClient, record, run
from tests.ingot.small_models import classifier
from tests.services.artifacts import toy_artifact

VERIFIED = Verification(
    "verified", "", "onnxruntime 1.31.1", {"n": 2}, 1e-3, (OutputFigures("scores", 2e-6, 3e-7),), 1e-3, 1.4e-3, 1.4
)
EMULATED = replace(VERIFIED, seconds=0.0, ratio=0.0, emulator="qemu-arm 7.2.22")
FOREIGN = Verification("not run", "this machine cannot run code for aarch64-linux-gnu")


def target(name: str, verification: Verification | None) -> TargetJob:
    return TargetJob(name, "SUCCEEDED", "verify", 1, 1, "ab" * 32, False, None, verification)


def job(*targets: TargetJob) -> Job:
    seconds = in_order({"verify": 3.0, "publish": 5.0, "build": 2.0, "rehearse": 9.0, "ingest": 1.0})
    return Job("1", "net", "SUCCEEDED", "", targets, {}, (), 1.0, 1.0, 9.0, False, 1, None, seconds)


def test_stages_are_those_of_the_service_in_their_order() -> None:
    assert tuple(stage.value for stage in JobStage) == STAGES
    assert list(job().stage_seconds) == ["ingest", "build", "verify", "publish", "rehearse"]


def test_what_never_ran_is_not_said_to_be_verified(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    emulated = target("raspberry-pi/2b", EMULATED)
    show_job(
        job(target("x86-64-v3", VERIFIED), target("raspberry-pi/4b", FOREIGN), emulated, target("old", None)), Output()
    )
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    start = lines.index("target           answers") + 1
    assert [line.split(maxsplit=1) for line in lines[start : start + 4]] == [
        ["x86-64-v3", "within 3.0e-07 of onnxruntime 1.31.1, 1.40 times as fast"],
        ["raspberry-pi/4b", "not verified: this machine cannot run code for aarch64-linux-gnu"],
        ["raspberry-pi/2b", "within 3.0e-07 of onnxruntime 1.31.1, under qemu-arm 7.2.22"],
        ["old", "unknown"],
    ]
    figures, _ = (line for line in lines if "scores" in line)
    assert figures.split() == ["x86-64-v3", "scores", "2.00e-06", "3.00e-07", "1e-03"]


def test_a_job_fits_a_terminal_of_80_columns_and_folds_no_figure() -> None:
    names = ("scores", "/model/layers.11/attention/self/output/dense/MatMul_output_0")
    figures = replace(VERIFIED, outputs=tuple(OutputFigures(name, 2e-6, 3e-7) for name in names))
    text = "llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72 -mattr=+neon -l2=1048576 -cores=4"
    shown = io.StringIO()
    terminal = PrintableConsole(file=shown, force_terminal=True, width=80, color_system=None)
    targets = (target("x86-64-v3", figures), target("raspberry-pi/4b", FOREIGN), target("raspberry-pi/2b", EMULATED))
    for each in (job(*targets), job(*targets, target(text, FOREIGN))):
        show_job(each, Output(out=terminal))
    lines = [line.rstrip() for line in shown.getvalue().splitlines()]
    assert max(map(len, lines)) <= 80
    for line in (
        "x86-64-v3        succeeded         abababababababab",
        "x86-64-v3        within 3.0e-07 of onnxruntime 1.31.1, 1.40 times as fast",
        "raspberry-pi/2b  within 3.0e-07 of onnxruntime 1.31.1, under qemu-arm 7.2.22",
    ):
        assert line in lines, shown.getvalue()
    assert ["raspberry-pi/2b", "scores", "2.00e-06", "3.00e-07", "1e-03"] in [line.split() for line in lines]


def test_the_time_that_is_left_is_told_where_it_is_known(capsys: Any) -> None:
    waits = replace(job(target("host", None)), state="RUNNING", finished=0.0)
    show(waits, Output())
    assert capsys.readouterr().out.splitlines()[-1] == "time left: unknown"
    show(replace(waits, eta_seconds=41.7, deadline=1e9), Output())
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("time left: about 42 s of work, without waiting for a worker; it fails at 2001-09-")
    show(replace(waits, state="CANCELLED", eta_seconds=None), Output())
    assert "time left" not in capsys.readouterr().out


def test_a_log_has_a_line_for_each_of_its_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    record(tmp_path, monkeypatch)
    assert main(["jobs", "1", "--log"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert line.endswith(" INFO host build: began")
    assert main(["jobs", "1", "--log", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["stage"] == "build"


def test_a_stage_is_asked_for_beside_the_log_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = run(record(tmp_path, monkeypatch), "jobs", "1", "--stage", "build")
    assert found.status == 2
    assert "--stage means nothing for one job without --log" in found.errors


@pytest.mark.parametrize("target", ["host", "hsot"])
def test_a_log_without_lines_is_that_of_a_target_of_the_job(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    own = record(tmp_path, monkeypatch)
    monkeypatch.setattr(FakeClient, "log", lambda *_: (), raising=False)
    found = run(own, "jobs", "1", "--log", "--target", target)
    assert found.status == (0 if target == "host" else 1)
    assert ("the job has no such target" in found.errors) is (target == "hsot")


@pytest.mark.parametrize("state", ["SUCCEEDED", "FAILED", "CANCELLED"])
def test_who_cancels_what_had_finished_is_told(state: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    own = record(tmp_path, monkeypatch)
    monkeypatch.setattr(FakeClient, "cancel", lambda *_: replace(DONE, state=state), raising=False)
    found = run(own, "jobs", "1", "--cancel")
    assert found.status == 0
    assert ("nothing was cancelled" in found.errors) is (state != "CANCELLED")


@pytest.mark.parametrize(
    "order", [("--set-label", "a=1", "--delete-label", "b"), ("--delete-label", "a", "--delete-label", "b")]
)
def test_an_error_says_what_was_done_before_it(
    order: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def delete_label(_: FakeClient, model: str, label: str, etag: str) -> None:
        if label == "b":
            raise IngotError(ErrorCode.NOT_FOUND, f"model {model!r} has no label {label!r}")

    monkeypatch.chdir(tmp_path)
    own = record(tmp_path, monkeypatch)
    monkeypatch.setattr(FakeClient, "delete_label", delete_label, raising=False)
    found = run(own, "models", "net", *order)
    done = "set to 1" if order[0] == "--set-label" else "deleted"
    assert found.status == 1
    assert f"has no label 'b'; before that label 'a' was {done}" in found.errors
    assert "before that" not in run(own, "models", "net", *order[2:]).errors


@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize(
    "error",
    [KeyboardInterrupt(), SystemExit(143), IngotError(ErrorCode.PERMISSION_DENIED, "the token may not do this")],
)
def test_who_stops_waiting_for_a_job_learns_its_id(
    error: BaseException, as_json: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def watch(*_: Any) -> Any:
        raise error

    monkeypatch.chdir(tmp_path)
    own = record(tmp_path, monkeypatch)
    monkeypatch.setattr(FakeClient, "watch", watch, raising=False)
    (tmp_path / "net.onnx").write_bytes(b"a model")
    found = run(own, "compile", "net.onnx", *(["--json"] if as_json else []))
    assert found.status in (1, 130, 143)
    if as_json and not isinstance(error, IngotError):
        assert json.loads(found.printed)["id"] == DONE.id
        return
    assert f"job {DONE.id} " in found.errors
    assert "goes on" in found.errors


@pytest.mark.parametrize("words", [("compile", "net.onnx"), ("jobs", "1", "--watch")])
def test_who_has_followed_a_job_asks_how_it_ended_until_he_is_told(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A service that starts again at that very moment ends no command."""

    def away(*_: Any) -> Any:
        raise IngotError(ErrorCode.UNAVAILABLE, "the service starts again")

    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.onnx").write_bytes(b"a model")
    own = record(tmp_path, monkeypatch)
    monkeypatch.setattr(FakeClient, "job", away, raising=False)  # which asks once
    assert run(own, *words).status == 0


def huge() -> CompiledArtifact:
    """A model of many inputs and outputs, whose arena is a formula of pages."""
    names = [f"size_of_something_{number}" for number in range(40)]
    sizes = [symbol(name) for name in names]
    arena: Any = 64
    for first, second in pairwise(sizes):
        arena = arena + (first * second + 15) // 16 * 64 + (first + second + 3) // 4 * (second + 7)
    inputs = tuple(TensorSpec(f"x{n}", DType.FLOAT32, (size, arena)) for n, size in enumerate(sizes))
    symbols = tuple(SymbolSource(name, number, 0) for number, name in enumerate(names))
    artifact = toy_artifact("net")
    parts = {"inputs": inputs, "outputs": inputs, "symbols": symbols, "buffers": (), "arena_size": arena}
    return replace(artifact, plan=replace(artifact.plan, **parts))


def test_inspect_fits_a_screen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("INGOT_HOME", str(tmp_path / "home"))
    save_artifacts([huge()], tmp_path / "folder")
    assert main(["inspect", str(tmp_path / "folder")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 240
    assert any(line.startswith("arena") and " bytes at " in line for line in lines)
    assert main(["inspect", str(tmp_path / "folder"), "--json"]) == 0
    whole = json.loads(capsys.readouterr().out)[0]
    assert len(whole["arena"]) > 2000
    assert len(whole["inputs"]) == 40


def test_the_arena_is_in_bytes_at_the_sizes_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("INGOT_HOME", str(tmp_path / "home"))
    plan = replace(toy_artifact("net").plan, arena_size=symbol("batch") * 100 + 24)
    report = {"verification": {"state": "verified", "oracle": "onnxruntime 1", "sizes": {"batch": 2}, "outputs": []}}
    save_artifacts([replace(toy_artifact("net"), plan=plan, report=report)], tmp_path / "folder")
    for sizes, told in (([], "224 bytes at batch=2"), (["--size", "batch=8"], "824 bytes at batch=8")):
        assert main(["inspect", str(tmp_path / "folder"), *sizes]) == 0
        assert told in capsys.readouterr().out
    assert main(["inspect", str(tmp_path / "folder"), "--size", "rows=8"]) == 1
    assert capsys.readouterr().err.startswith("error: no dim of the inputs is called 'rows'")


def test_what_was_compiled_without_a_service_says_so() -> None:
    assert not Verification.from_report({"stages": {}}).is_verified
    assert "without a service" in Verification.from_report({}).reason
    known = Verification.from_report({"verification": {**vars(VERIFIED), "outputs": [vars(VERIFIED.outputs[0])]}})
    assert known == VERIFIED
    newer = Verification.from_report({"verification": {"state": "verified", "signed_by": "somebody"}})
    assert newer.is_verified


@pytest.mark.parametrize(("label", "version"), [("stable", 1), ("stable", 2), ("", 0)])
def test_a_version_is_not_said_to_lack_the_label_that_it_has(
    label: str, version: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = record(tmp_path / "home", monkeypatch)
    monkeypatch.chdir(tmp_path)
    Path("net.onnx").write_bytes(classifier().SerializeToString())
    monkeypatch.setattr(FakeClient, "labels", lambda *_: {label: version} if label else {}, raising=False)
    told = run(recorder, "compile", "net.onnx")
    assert told.status == 0
    assert ("No label points at it yet" in told.errors) == (version != 1)
