"""What ``ingot tokens`` shows of a file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ingot.cli.main import main


def test_a_file_that_is_not_there_is_no_empty_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tokens", "list", "--file", str(tmp_path / "none.json")]) == 1
    told = capsys.readouterr()
    assert told.out == ""
    assert "none.json" in told.err
    assert "No such file" in told.err


def test_a_home_without_tokens_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("INGOT_HOME", str(tmp_path))
    assert main(["tokens", "list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"tokens": [], "namespaces": {}}


def test_the_list_has_what_namespaces_may_hold(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = ["--file", str(tmp_path / "tokens.json")]
    assert main(["tokens", "new", "ci", "--scope", "read", "--namespace", "vision", *file]) == 0
    assert main(["tokens", "quota", "vision", "--max-jobs", "20", "--max-bytes", "0", *file]) == 0
    assert main(["tokens", "quota", "audio", "--max-running-stages", "4", *file]) == 0  # a namespace without a token
    capsys.readouterr()
    assert main(["tokens", "list", "--json", *file]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [token["id"] for token in listed["tokens"]] == ["ci"]
    assert listed["namespaces"] == {"vision": {"bytes": 0, "jobs": 20}, "audio": {"running_stages": 4}}
    assert main(["tokens", "list", *file]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["namespace", "bytes", "jobs", "running", "stages"] in lines
    assert ["vision", "20"] in lines
    assert ["audio", "4"] in lines
