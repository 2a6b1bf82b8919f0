"""The plot of a tuner's trials: what is missing for it is said before anything is measured."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from compiler_service.compiler.codegen.toolchain.host import host_target
from compiler_service.compiler.tune.records.lines import write_lines
from ingot.cli.main import main
from ingot.tuning import TuningResult
from ingot.tuning_plot import plot_trials
from tests.compiler_service.compiler.tune.records.trials import OTHER, trial, workload
from tests.ingot.small_models import classifier


def test_without_matplotlib_nothing_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    model, records = tmp_path / "net.onnx", tmp_path / "records.jsonl"
    model.write_bytes(classifier().SerializeToString())
    status = main(["tune", str(model), "--seconds", "1", "--records", str(records), "--plot", str(tmp_path / "p.png")])
    assert status != 0
    assert "pip install 'ingot-ml[tune]'" in capsys.readouterr().err
    assert not records.exists()


def drawn(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The names of the lines of each plot that is written from now on."""
    figure = pytest.importorskip("matplotlib.figure").Figure
    found, save = list[list[str]](), figure.savefig

    def noted(own: Any, *given: Any, **named: Any) -> None:
        found.append(own.axes[0].get_legend_handles_labels()[1])
        save(own, *given, **named)

    monkeypatch.setattr(figure, "savefig", noted)
    return found


@pytest.mark.filterwarnings("error")
def test_where_nothing_was_tried_the_plot_is_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And its folder is made."""
    found = drawn(monkeypatch)
    records = tmp_path / "records.jsonl"
    records.write_bytes(write_lines([trial(workload(64), target=str(host_target()), label="another model's")]))
    plot_trials(TuningResult((), 0, 0.0, records), host_target(), tmp_path / "new" / "plot.PNG")
    assert (tmp_path / "new" / "plot.PNG").read_bytes().startswith(b"\x89PNG")
    assert found == [[]]


def test_tasks_of_the_model_alone_are_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found, records, own = drawn(monkeypatch), tmp_path / "records.jsonl", workload(64)
    others = [
        trial(workload(n), label="other", target=str(host_target()), default_seconds=float(n), seconds=1.0)
        for n in range(100, 120)
    ]
    mine = trial(own, label="mine", target=str(host_target()))
    aliens = [replace(mine, methods=("else",)), replace(mine, compiler="old"), replace(mine, target=str(OTHER))]
    records.write_bytes(write_lines([*others, mine, *(replace(r, label="alien") for r in aliens)]))
    result = TuningResult((), 0, 0.0, records, workloads=(own.digest,), methods=mine.methods)
    plot_trials(result, host_target(), tmp_path / "plot.png")
    ((label,),) = found
    assert label.startswith("mine")


@pytest.mark.parametrize("name", ["plot.svg", "plot", "png", "plot.png.pdf"])
def test_a_plot_under_a_name_of_something_else_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    model, records = tmp_path / "net.onnx", tmp_path / "records.jsonl"
    model.write_bytes(classifier().SerializeToString())
    assert main(["tune", str(model), "--records", str(records), "--plot", str(tmp_path / name)]) == 1
    assert "ends in .png" in capsys.readouterr().err
    assert not records.exists()
    assert not (tmp_path / name).exists()


@pytest.mark.parametrize("plot", [".", "file/plot.png"])
def test_where_no_plot_can_be_written_nothing_is_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], plot: str
) -> None:
    pytest.importorskip("matplotlib")
    model, records = tmp_path / "net.onnx", tmp_path / "records.jsonl"
    model.write_bytes(classifier().SerializeToString())
    (tmp_path / "file").touch()
    status = main(["tune", str(model), "--seconds", "1", "--records", str(records), "--plot", str(tmp_path / plot)])
    assert status == 1
    assert "the plot cannot be written" in capsys.readouterr().err
    assert not records.exists()
