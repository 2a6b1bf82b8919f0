"""What the file system refuses is a sentence, and comes before the work."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ingot.artifact import save_artifacts
from ingot.upload import Upload
from shared_ir.artifact.signature import local_keys
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.storage.faults import file_error, require_file, require_writable
from tests.ingot.cli.recorder import Recorder, record, run
from tests.ingot.small_models import classifier
from tests.services.artifacts import toy_artifact
from tests.services.small_disk import small_disk

ROOT = Path(__file__).parents[3]
NOWHERE = "/proc/nowhere"
"""The kernel's own folder: nobody may make files in it, whoever he is."""


@pytest.fixture
def recorder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Recorder:
    monkeypatch.chdir(tmp_path)
    Path("net.onnx").write_bytes(classifier().SerializeToString())
    Path("file").touch()
    Path("empty").mkdir()
    local_keys(Path("home"))
    local_keys(Path("service"))
    save_artifacts([toy_artifact("net")], "folder", "a", "home")
    return record(tmp_path / "home", monkeypatch)


WRITING = (
    "compile net.onnx --local --out {}",
    "compile net.onnx --out {}",
    "compile net.onnx --local --home {}",
    "models net --out {}",
    "run folder --save {}",
    "infer net --save {}",
    "trust --fingerprint sha256:00 --home {}",
)


@pytest.mark.parametrize("place", [NOWHERE, NOWHERE + "/below", "file", "file/below", "x" * 300])
@pytest.mark.parametrize("words", WRITING)
def test_a_place_that_cannot_be_written_is_said_before_the_work(recorder: Recorder, words: str, place: str) -> None:
    told = run(recorder, *words.format(place).split())
    assert (told.status, told.printed) == (1, "")
    assert told.errors.startswith("error: ")
    assert told.errors.count("\n") == 1
    assert place.split("/")[0] in told.errors
    assert {call[0] for call in told.calls} <= {"'Client'", "'Endpoint'"}, "somebody was asked first"
    asked = run(recorder, *words.format(place).split(), "--json")
    assert json.loads(asked.errors)["error"]["field"]


READING = ("compile {} --local", "compile {}", "check {}", "check {} --local", "inspect {}", "inspect {} --graph")


@pytest.mark.parametrize("place", ["missing.onnx", "file/below", "/proc/self/mem/below", "x" * 300])
@pytest.mark.parametrize("words", READING)
def test_a_model_that_is_not_there_is_said_before_the_work(
    recorder: Recorder, words: str, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()  # what reads the file is the real thing
    monkeypatch.setenv("INGOT_HOME", str(recorder.home))
    monkeypatch.chdir(recorder.home.parent)
    told = run(recorder, *words.format(place).split())
    assert (told.status, told.printed) == (1, "")
    assert told.errors.startswith("error: ")
    assert "Traceback" not in told.errors
    assert "fault of ingot" not in told.errors


@pytest.mark.parametrize("words", ["compile empty --local", "compile empty", "check empty"])
def test_a_folder_is_no_model(recorder: Recorder, words: str) -> None:
    told = run(recorder, *words.split())
    assert (told.status, told.printed, told.calls) == (1, "", ())
    assert "a folder is no model file" in told.errors


@pytest.mark.parametrize("words", ["inspect empty", "inspect file/below", "run empty", "run missing", "profile file"])
def test_folders_without_models_are_said(recorder: Recorder, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setenv("INGOT_HOME", str(recorder.home))
    monkeypatch.chdir(recorder.home.parent)
    told = run(recorder, *words.split())
    assert (told.status, told.printed) == (1, "")
    assert told.errors.startswith("error: ")


def command(script: str, *words: str, home: Path) -> subprocess.CompletedProcess[str]:
    """A process of its own, behind a line of shell."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("INGOT_")}
    return subprocess.run(
        ["sh", "-c", script, "sh", sys.executable, "-m", "ingot", *words],
        env=environment | {"PYTHONPATH": str(ROOT), "INGOT_HOME": str(home)},
        cwd=home.parent,
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize("words", ["compile net.onnx --local --out out", "up --free-ports --home up"])
def test_a_limit_on_files_is_said_before_the_work(recorder: Recorder, words: str) -> None:
    """The kernel refuses the first byte; who has set the limit can raise it, so that it is no matter of the service."""
    done = command('ulimit -f 0; "$@"', *words.split(), home=recorder.home)
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    assert "cannot be written: file too large" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("words", ["compile net.onnx --local --out disk/out", "up --free-ports --home disk/up"])
def test_a_full_disk_is_said_before_the_work(recorder: Recorder, words: str) -> None:
    with small_disk(recorder.home.parent / "disk", 4096) as disk:
        if disk is None:
            pytest.skip("nothing may be mounted here")
        (disk / "all").write_bytes(bytes(4096))
        done = command('"$@"', *words.split(), home=recorder.home)
    assert done.returncode == 3
    assert "cannot be written: no space left on device" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_full_disk_behind_the_output_is_said(recorder: Recorder) -> None:
    done = command('"$@" >/dev/full', "trust", "--list", home=recorder.home)
    assert done.returncode == 3
    assert "no space left on device" in done.stderr
    assert done.stderr.count("\n") == 1


def test_codes_tell_what_is_missing_full_and_forbidden() -> None:
    for number, code in (
        (errno.ENOENT, ErrorCode.NOT_FOUND),
        (errno.ENOSPC, ErrorCode.DISK_FULL),
        (errno.EDQUOT, ErrorCode.DISK_FULL),
        (errno.EIO, ErrorCode.UNAVAILABLE),
        (errno.EACCES, ErrorCode.INVALID_ARGUMENT),
        (errno.EROFS, ErrorCode.INVALID_ARGUMENT),
    ):
        error = file_error(OSError(number, os.strerror(number), "/a/b"))
        assert (error.code, error.field) == (code, "/a/b")
        assert os.strerror(number).lower() in error.message


def test_asking_whether_a_folder_can_be_written_leaves_nothing(tmp_path: Path) -> None:
    require_writable(tmp_path / "a" / "b", "it")
    require_writable(tmp_path, "it")
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_cannot_be_read_any_more_ends_its_upload() -> None:
    with pytest.raises(IngotError, match="cannot be read"):
        Upload("mem", Path("/proc/self/mem")).sha256()
    with pytest.raises(IngotError):
        require_file(Path("/proc/self/mem/x"), "model file", "")
