"""The plot of a tuner's trials: what is missing for it is said before anything is measured."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from compiler_service.compiler.codegen.toolchain.host import host_target
from ingot.cli.main import main
from ingot.tuning_plot import plot_trials
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


def test_the_folder_of_a_plot_is_made(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    records = tmp_path / "records.jsonl"
    records.touch()
    plot_trials(records, host_target(), tmp_path / "new" / "plot.png")
    assert (tmp_path / "new" / "plot.png").read_bytes().startswith(b"\x89PNG")


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
