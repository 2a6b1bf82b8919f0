"""What is said of a run of a tuner: of its own tasks alone, whatever else the file of records holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

import ingot
from compiler_service.compiler.codegen.toolchain.host import host_target
from compiler_service.compiler.tune.records.book import RecordBook
from compiler_service.compiler.tune.records.journal import Journal
from compiler_service.compiler.tune.records.lines import read_lines, write_lines
from compiler_service.compiler.tune.records.record import TrialRecord
from ingot.cli.main import main
from ingot.pairs import Comparison
from tests.compiler_service.compiler.tune.test_tuned_models import small_model

ALL, LESS = ("strassen", "winograd"), ("strassen",)
"""Methods of a run, and of one with ``winograd=False``."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "small.onnx"
    path.write_bytes(small_model().SerializeToString())
    return path


@pytest.fixture(scope="module")
def settled(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Sequence[TrialRecord]:
    """What some seconds have come to, of each task that was begun."""
    records = tmp_path_factory.mktemp("tuned") / "records.jsonl"
    ingot.tune(model, seconds=6, records=records)
    return [r for r in read_lines(records.read_bytes())[0] if r.settled]


def under(records: Sequence[TrialRecord], methods: tuple[str, ...], **fields: object) -> list[TrialRecord]:
    return [replace(r, methods=methods, **fields) for r in records]  # type: ignore[arg-type]


def test_runs_with_other_methods_are_told_apart(model: Path, settled: Sequence[TrialRecord], tmp_path: Path) -> None:
    """The same workloads are other tasks where less may be used, and nobody has tuned them so."""
    records = tmp_path / "records.jsonl"
    others = under(settled, ALL), under(settled, ("winograd",)), under(settled, (), settled=False)
    records.write_bytes(write_lines(r for own in others for r in own))
    result = ingot.tune(model, seconds=6, records=records, winograd=False)
    own = [r for r in read_lines(records.read_bytes())[0] if r.methods == LESS]
    assert result.methods == LESS
    assert len(result.tasks) == result.settled == len({r.workload for r in own if r.settled}) > 0
    assert len(result.tasks) + result.left == len(result.workloads)
    assert result.trials == sum(not r.confirmed and not r.settled for r in own)


def test_what_other_methods_gained_is_not_given_up(
    model: Path, settled: Sequence[TrialRecord], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model is slower as a whole with the gains of this run: those of the other one stand."""
    gain = {"confirmed": True, "seconds": 1e-3, "default_seconds": 2e-3}
    gained, own = under(settled, ALL, **gain), under(settled, LESS, **gain)
    records = tmp_path / "records.jsonl"
    records.write_bytes(write_lines([*gained, *own]))
    monkeypatch.setattr("ingot.tuning.compare_artifacts", lambda *_: Comparison(1.0, 2.0, 0.0))
    monkeypatch.setattr("ingot.tuning._Run._measure", lambda *_: {r.workload for r in settled})  # all is settled
    result = ingot.tune(model, seconds=4, records=records, winograd=False)
    assert (len(result.tasks), result.dropped) == (len(own), len(own))
    book = RecordBook(read_lines(records.read_bytes())[0], host_target())
    assert [book.best(r.workload, ALL) for r in gained] == gained
    assert not [r for r in own if book.best(r.workload, LESS)]


def test_trials_of_others_are_not_counted(model: Path, settled: Sequence[TrialRecord], tmp_path: Path) -> None:
    """Somebody else tunes another model meanwhile, and this one with other methods."""
    records = tmp_path / "records.jsonl"
    foreign = [replace(settled[0], workload="f" * 64, settled=False), *under(settled, (), settled=False)]
    added: list[TrialRecord] = []

    def progress(stage: str, done: int, total: int, message: str) -> None:
        if not added:
            added.extend(foreign)
            Journal(records).append(foreign)

    result = ingot.tune(model, seconds=4, records=records, progress=progress)
    found = [r for r in read_lines(records.read_bytes())[0] if r not in foreign]
    assert added
    assert result.trials == sum(not r.confirmed and not r.settled for r in found)


def one_node(path: Path, operator: str) -> Path:
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 4]) for name in "xy"]
    graph = helper.make_graph([helper.make_node(operator, ["x"], ["y"])], "one", ends[:1], ends[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


@pytest.mark.parametrize("operator", ["Relu", "Identity"])
def test_a_model_with_nothing_to_try_is_not_said_to_be_tuned_before(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], operator: str
) -> None:
    words = ["tune", str(one_node(tmp_path / "one.onnx", operator)), "--seconds", "3", "--records", str(tmp_path / "r")]
    assert main(words) == 0
    said = capsys.readouterr().err
    assert "nothing to try" in said
    assert "earlier runs" not in said


def test_a_model_that_was_tuned_before_is_said_to_be(
    model: Path,
    settled: Sequence[TrialRecord],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    records = tmp_path / "records.jsonl"
    records.write_bytes(write_lines(settled))
    monkeypatch.setattr("ingot.tuning._Run._measure", lambda *_: {r.workload for r in settled})  # all is settled
    assert main(["tune", str(model), "--records", str(records)]) == 0
    assert "earlier runs have tuned every task; --again" in capsys.readouterr().err
