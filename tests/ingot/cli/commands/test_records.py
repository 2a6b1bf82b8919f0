"""``ingot records``: what is shown, kept, brought in and written out."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from compiler_service.compiler.options import MOST_TUNING_SECONDS
from compiler_service.compiler.tune.measuring.trial import OutcomeKind
from compiler_service.compiler.tune.records.lines import read_lines, write_lines
from compiler_service.compiler.tune.records.record import TrialRecord
from ingot.cli.main import main
from ingot.cli.values import tuning_seconds
from ingot.tuning import EFFORTS, MOST_SECONDS
from tests.compiler_service.compiler.tune.records.trials import OTHER, trial, workload

BEST = trial(confirmed=True, label="Conv+Relu", seconds=5e-4)
KNOWN = (
    BEST,
    trial(label="Conv+Relu", rule="other", seconds=3e-3, time=2.0),
    trial(label="Conv+Relu", rule="third", outcome=OutcomeKind.CRASHED, seconds=0.0, default_seconds=0.0),
    trial(workload(64), label="Softmax", confirmed=True, compiler="old"),
    trial(target=str(OTHER), label="Add"),
)


@pytest.fixture(autouse=True, name="file")
def fixture_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("INGOT_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "home" / "records.jsonl"
    path.parent.mkdir()
    path.write_bytes(write_lines(KNOWN))
    return path


def ask(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    capsys.readouterr()
    assert main(["records", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    capsys.readouterr()
    assert main(["records", *arguments]) == 1
    return capsys.readouterr().err


def of(path: Path) -> set[bytes]:
    return {write_lines([record]) for record in read_lines(path.read_bytes())[0]}


def lines(*records: TrialRecord) -> set[bytes]:
    return {write_lines([record]) for record in records}


def test_trials_are_listed_the_newest_first(capsys: pytest.CaptureFixture[str]) -> None:
    found = ask(capsys, "list")["records"]
    assert len(found) == len(KNOWN)
    assert found[0]["rule"] == "other"
    assert {r["label"] for r in ask(capsys, "list", "--label", "Conv")["records"]} == {"Conv+Relu"}
    assert [r["label"] for r in ask(capsys, "list", "--target", str(OTHER))["records"]] == ["Add"]
    assert [r["label"] for r in ask(capsys, "list", "--target", "aws/graviton3")["records"]] == ["Add"]
    assert main(["records", "list"]) == 0
    shown = capsys.readouterr().out
    assert "confirmed" in shown
    assert "4.00x" in shown
    assert "crashed" in shown
    assert "neoverse-v1" in shown


def test_the_best_are_shown_with_their_gain(capsys: pytest.CaptureFixture[str]) -> None:
    found = ask(capsys, "best")["records"]
    assert [(r["label"], r["used"]) for r in found] == [("Conv+Relu", True), ("Softmax", False)]
    assert main(["records", "best", "--label", "Conv"]) == 0
    shown = capsys.readouterr().out
    assert "4.00x" in shown
    assert "Softmax" not in shown


def test_pruning_keeps_what_is_worth_most(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_bytes(file.read_bytes() + b"rubbish\n")
    assert ask(capsys, "prune", "--keep", "1") == {"kept": 3, "dropped": 2, "unreadable": 1}
    assert of(file) == lines(BEST, KNOWN[3], KNOWN[4])
    assert ask(capsys, "prune", "--this-compiler") == {"kept": 2, "dropped": 1, "unreadable": 0}
    assert ask(capsys, "prune") == {"kept": 2, "dropped": 0, "unreadable": 0}


def test_records_of_others_are_brought_in_once(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = trial(machine="another machine")
    Path("given").write_bytes(
        write_lines([other, BEST]) + b'{"version":1}\n' + b"\xff\xfe\n" + write_lines([other])[:80]
    )
    assert ask(capsys, "import", "given") == {"read": 2, "new": 1, "unreadable": 3}
    assert ask(capsys, "import", "given") == {"read": 2, "new": 0, "unreadable": 3}
    assert of(file) == lines(*KNOWN, other)
    assert main(["records", "import", "given"]) == 0
    told = capsys.readouterr()
    assert "2 records were read, 0 of them new" in told.out
    assert "version 1" in told.err
    assert ask(capsys, "import", "given", "--file", "fresh/records.jsonl")["new"] == 2


def test_records_are_written_out(capsys: pytest.CaptureFixture[str]) -> None:
    assert ask(capsys, "export", "out.jsonl")["records"] == len(KNOWN)
    assert of(Path("out.jsonl")) == lines(*KNOWN)
    assert ask(capsys, "export", "out.jsonl", "--target", str(OTHER)) == {"file": "out.jsonl", "records": 1}
    assert of(Path("out.jsonl")) == lines(KNOWN[4])


def test_an_installation_that_has_tuned_nothing_has_no_records(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.unlink()
    assert ask(capsys, "list") == {"records": []}
    assert ask(capsys, "prune") == {"kept": 0, "dropped": 0, "unreadable": 0}
    assert not file.exists()
    assert main(["records", "best"]) == 0
    assert "No records" in capsys.readouterr().out


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    capsys.readouterr()
    assert main(["records", *arguments]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("choice", [["--label", "Gelu"], ["--target", "raspberry-pi/4b"]])
@pytest.mark.parametrize("command", ["list", "best"])
def test_where_no_record_matches_there_are_others(
    capsys: pytest.CaptureFixture[str], command: str, choice: list[str]
) -> None:
    assert shown(capsys, command, *choice).startswith("No record matches")
    assert ask(capsys, command, *choice) == {"records": []}


def test_where_nothing_was_gained_something_was_tried(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_bytes(write_lines(KNOWN[1:3]))
    assert shown(capsys, "best").startswith("No schedule is faster")
    assert shown(capsys, "best", "--label", "Gelu").startswith("No record matches")
    file.write_bytes(b"")
    for command in ("list", "best"):
        assert shown(capsys, command, "--label", "Conv").startswith("No records: ")


@pytest.mark.parametrize("content", [b"dear diary\n", b"\x80\x03" * 9, b'{"version":1}\n\n', b"\x7fELF\n\n\x00\n"])
def test_a_file_without_any_record_brings_none_in(
    file: Path, capsys: pytest.CaptureFixture[str], content: bytes
) -> None:
    Path("given").write_bytes(content)
    assert "holds no records" in refused(capsys, "import", "given")
    assert of(file) == lines(*KNOWN)
    assert "holds no records" in refused(capsys, "import", "given", "--file", "fresh/records.jsonl")
    assert not Path("fresh").exists()
    Path("empty").touch()
    assert ask(capsys, "import", "empty") == {"read": 0, "new": 0, "unreadable": 0}


@pytest.mark.parametrize("command", [["list"], ["best"], ["export", "out"], ["import"]])
def test_a_file_that_is_named_must_be_there(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    given = [*command, "missing"] if command == ["import"] else [*command, "--file", "missing"]
    assert "missing" in refused(capsys, *given)


@pytest.mark.parametrize("command", [["prune"], ["import", "home/records.jsonl"]])
def test_a_file_of_something_else_is_left_as_it_is(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    Path("notes.txt").write_text("dear diary\n")
    assert "holds no records" in refused(capsys, *command, "--file", "notes.txt")
    assert Path("notes.txt").read_text() == "dear diary\n"


def test_an_unknown_target_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert "aws/gravitron3" in refused(capsys, "list", "--target", "aws/gravitron3")


def test_efforts_are_seconds() -> None:
    assert {name: tuning_seconds(name) for name in EFFORTS} == {"quick": 60, "normal": 300, "thorough": 1800}
    assert (tuning_seconds("Quick"), tuning_seconds("0"), tuning_seconds("86400")) == (60, 0, 86400)
    assert MOST_SECONDS == MOST_TUNING_SECONDS


@pytest.mark.parametrize("command", [["list"], ["best"], ["prune"], ["import", "home/records.jsonl"]])
def test_a_pipe_or_a_device_holds_no_records(
    capsys: pytest.CaptureFixture[str], file: Path, command: list[str]
) -> None:
    """Nobody waits for a pipe, and nobody reads a device without an end."""
    os.mkfifo("pipe")
    for other in ("pipe", "/dev/zero", "/dev/null"):
        assert "a pipe or a device" in refused(capsys, *command, "--file", other)
        assert "a pipe or a device" in refused(capsys, "import", other)
    assert of(file) == lines(*KNOWN)


def test_a_link_stands_for_the_records_that_it_points_to(capsys: pytest.CaptureFixture[str], file: Path) -> None:
    Path("link").symlink_to(file)
    Path("new").symlink_to("elsewhere")
    Path("circle").symlink_to("circle")
    assert ask(capsys, "prune", "--file", "link", "--this-compiler")["dropped"] == 1
    assert Path("link").is_symlink()
    assert len(of(file)) == len(KNOWN) - 1
    assert ask(capsys, "import", str(file), "--file", "new")["new"] == len(KNOWN) - 1
    assert of(Path("elsewhere")) == of(file)
    assert "links in a circle" in refused(capsys, "list", "--file", "circle")
