"""Models tuned on this machine, for seconds: what is found, what a compilation takes from it, and what a kill costs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import ingot
from compiler_service.compiler.codegen.toolchain.host import host_target
from compiler_service.compiler.program.kernels import TuningRecordWarning
from compiler_service.compiler.tune.measuring.trial import OutcomeKind
from compiler_service.compiler.tune.records.book import RecordBook
from compiler_service.compiler.tune.records.journal import Journal
from compiler_service.compiler.tune.records.lines import read_lines
from compiler_service.compiler.tune.records.record import TrialRecord
from ingot.pairs import Comparison
from ingot.tuning import TuningResult
from shared_ir.errors import ErrorCode, IngotError


def small_model() -> onnx.ModelProto:
    """A convolution, a depthwise one, a product and a softmax."""
    rng = np.random.default_rng(1)

    def weight(name: str, *shape: int) -> onnx.TensorProto:
        return onnx.numpy_helper.from_array(rng.uniform(-1, 1, shape).astype(np.float32), name)

    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "d"], ["c"], kernel_shape=[3, 3], pads=[1, 1, 1, 1], group=24),
        helper.make_node("GlobalAveragePool", ["c"], ["g"]),
        helper.make_node("Flatten", ["g"], ["f"]),
        helper.make_node("MatMul", ["f", "m"], ["l"]),
        helper.make_node("Softmax", ["l"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 16, 28, 28])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 40])],
        [weight("w", 24, 16, 3, 3), weight("d", 24, 1, 3, 3), weight("m", 24, 40)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "small.onnx"
    path.write_bytes(small_model().SerializeToString())
    return path


@pytest.fixture(scope="module")
def tuned(model: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, TuningResult]:
    """Records of some seconds, and what was said of them."""
    records = tmp_path_factory.mktemp("tuned") / "records.jsonl"
    return records, ingot.tune(model, seconds=8, records=records)


def on_record(path: Path) -> tuple[TrialRecord, ...]:
    return read_lines(path.read_bytes())[0]


def test_candidates_are_measured_and_checked(tuned: tuple[Path, TuningResult]) -> None:
    path, result = tuned
    trials = [r for r in on_record(path) if not r.confirmed and not r.settled]
    assert result.trials == len(trials) > 0
    assert {r.outcome for r in trials} <= {OutcomeKind.MEASURED, OutcomeKind.REFUSED}, [r.label for r in trials]
    measured = [r for r in trials if r.outcome is OutcomeKind.MEASURED]
    assert all(r.output and r.default_seconds > 0 and r.target == str(host_target()) for r in measured)
    assert {r.workload for r in on_record(path) if r.settled} == {r.workload for r in on_record(path)}


def test_a_second_run_measures_nothing_of_what_the_first_has_tuned(
    model: Path, tuned: tuple[Path, TuningResult], tmp_path: Path
) -> None:
    """It begins with what there was no time for."""
    path, first = tuned
    known, more = on_record(path), tmp_path / "more.jsonl"
    more.write_bytes(path.read_bytes())
    again = ingot.tune(model, seconds=8, records=more)
    new = on_record(more)[len(known) :]
    assert not {r.workload for r in new if not r.settled} & {r.workload for r in known}
    assert again.trials == sum(not r.confirmed and not r.settled for r in new)
    assert {t.label for t in again.tasks} >= {t.label for t in first.tasks}


def test_what_other_models_gained_is_neither_told_nor_given_up(
    model: Path, tuned: tuple[Path, TuningResult], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One file has the records of all models; this one is slower as a whole, whatever is dropped."""
    path, first = tuned
    own = next(r for r in on_record(path) if r.settled)
    foreign = replace(own, workload="f" * 64, label="foreign", confirmed=True, seconds=1e-3, default_seconds=2e-3)
    shared = tmp_path / "shared.jsonl"
    Journal(shared).append([*on_record(path), foreign])
    monkeypatch.setattr("ingot.tuning.compare_artifacts", lambda *_: Comparison(1.0, 2.0, 0.0))
    result = ingot.tune(model, seconds=8, records=shared)
    assert {t.label for t in result.tasks} >= {t.label for t in first.tasks}
    assert "foreign" not in {t.label for t in result.tasks}
    assert all(t.seconds == t.default_seconds for t in result.tasks), "all gains of the model were given up"
    assert RecordBook(on_record(shared), host_target()).best(foreign.workload, foreign.methods) == foreign


def test_what_somebody_boasts_of_is_given_up_where_the_model_is_no_faster(
    model: Path, tuned: tuple[Path, TuningResult], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """He says nothing of whether the task is settled, and his clock is years ahead."""
    path, _ = tuned
    settled = [r for r in on_record(path) if r.settled]
    boasts = [replace(r, confirmed=True, settled=False, seconds=1e-9, default_seconds=1.0, time=9e10) for r in settled]
    shared = tmp_path / "shared.jsonl"
    Journal(shared).append([*on_record(path), *boasts])
    monkeypatch.setattr("ingot.tuning.compare_artifacts", lambda *_: Comparison(1.0, 2.0, 0.0))
    result = ingot.tune(model, seconds=4, records=shared)
    assert all(t.seconds == t.default_seconds for t in result.tasks)
    book = RecordBook(on_record(shared), host_target())
    assert not [r for r in settled if book.best(r.workload, r.methods)]


def test_a_pipe_is_not_waited_for(model: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(IngotError, match="the records are no file"):
        ingot.tune(model, seconds=4, records=tmp_path / "pipe")
    with pytest.raises(IngotError, match="the records are no file"):
        ingot.compile(model, records=tmp_path / "pipe")


def test_tuned_code_computes_the_same(model: Path, tuned: tuple[Path, TuningResult]) -> None:
    path, result = tuned
    plain, fast = ingot.compile(model), ingot.compile(model, records=path)
    x = np.random.default_rng(2).uniform(-1, 1, (1, 16, 28, 28)).astype(np.float32)
    one, other = (ingot.load(a).run({"x": x})["y"] for a in (plain, fast))
    np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)
    gained = [t for t in result.tasks if t.seconds < t.default_seconds]
    assert len(fast.report["tuned"]) == len(gained)
    assert all(t["seconds"] + t["spread"] < t["default_seconds"] - t["default_spread"] for t in fast.report["tuned"])
    assert (plain.manifest.key == fast.manifest.key) == (not gained)


@pytest.mark.parametrize("in_process", [True, False])
def test_a_record_that_fits_nothing_is_passed_over(
    model: Path, tuned: tuple[Path, TuningResult], tmp_path: Path, in_process: bool
) -> None:
    """Somebody else wrote it, with the right checksum."""
    path, _ = tuned
    foreign = [
        replace(r, schedules=(r.schedules[0][:1],), confirmed=True, seconds=1e-9, default_seconds=1.0, time=r.time + 9)
        for r in on_record(path)
        if r.settled and r.schedules
    ]
    edited = tmp_path / "edited.jsonl"
    Journal(edited).append(foreign)
    edited.write_bytes(edited.read_bytes() + b'{"version": 2, "torn')
    x = np.zeros((1, 16, 28, 28), np.float32)
    with pytest.warns(TuningRecordWarning):
        odd = ingot.compile(model, records=edited, in_process=in_process)
    expected, found = (ingot.load(a).run({"x": x})["y"] for a in (ingot.compile(model), odd))
    np.testing.assert_allclose(expected, found, rtol=1e-4, atol=1e-6)


def test_a_kill_costs_one_trial_at_most(model: Path, tmp_path: Path) -> None:
    """The command is killed again and again; what it had said to have measured is on record."""
    path = tmp_path / "records.jsonl"
    command = [sys.executable, "-m", "ingot", "tune", str(model), "--seconds", "60", "--records", str(path)]
    tried = 0
    for seconds in (0.5, 1.0, 2.0):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        limit = time.monotonic() + 60
        while time.monotonic() < limit and (not path.exists() or len(on_record(path)) <= tried):
            time.sleep(0.05)
        time.sleep(seconds)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        time.sleep(0.5)  # its child ends with it
        records = on_record(path)
        assert len(records) > tried
        candidates = [(r.workload, r.candidate) for r in records if not r.confirmed and not r.settled]
        assert len(set(candidates)) == len(candidates), "a trial was done twice"
        tried = len(records)
    assert read_lines(path.read_bytes())[1].count <= 3  # a line that a kill has torn


@pytest.mark.parametrize("seconds", ["slow", 0, -1, True, float("nan"), 1e9])
def test_an_effort_that_is_none_is_refused(model: Path, seconds: float | str) -> None:
    with pytest.raises(IngotError) as caught:
        ingot.tune(model, seconds=seconds)
    assert caught.value.code is ErrorCode.INVALID_ARGUMENT
    assert caught.value.field == "seconds"


def test_another_machine_cannot_be_measured_here(model: Path, tmp_path: Path) -> None:
    with pytest.raises(IngotError) as caught:
        ingot.tune(model, "llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72", records=tmp_path / "r.jsonl")
    assert caught.value.code is ErrorCode.INVALID_ARGUMENT
    assert "cannot run code for the target" in caught.value.message


def test_nothing_is_added_to_a_file_of_something_else(model: Path, tmp_path: Path) -> None:
    other = tmp_path / "notes.txt"
    other.write_text("buy milk\n")
    with pytest.raises(IngotError, match="holds no records") as caught:
        ingot.tune(model, seconds=5, records=other)
    assert caught.value.field == str(other)
    assert other.read_text() == "buy milk\n"
