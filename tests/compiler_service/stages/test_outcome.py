"""What a stage's process leaves behind and says, when hostile code wrote it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from compiler_service.stages.checked import MOST_ISSUE_CHARACTERS, issues, read_check
from compiler_service.stages.local import _warn
from compiler_service.stages.messages import Lines
from compiler_service.stages.outcome import MOST_RESULT_BYTES, StageError, read_compiled, read_result
from shared_ir.artifact.exchange import write_artifact
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.pb.ingot.compiler.v1 import compiler_pb2 as pb
from tests.services.artifacts import toy_artifact


def link_to_a_key(work: Path) -> None:
    (work / "artifact").mkdir()
    (work / "artifact" / "weights.bin").symlink_to("/etc/passwd")


def result_is_a_link(work: Path) -> None:
    (work / "result.json").unlink()
    (work / "result.json").symlink_to("/etc/passwd")


def fifo(work: Path) -> None:
    (work / "result.json").unlink()
    os.mkfifo(work / "result.json")


def folder_is_a_link(work: Path) -> None:
    (work / "artifact").symlink_to("/etc")


def too_long(work: Path) -> None:
    os.truncate(work / "result.json", MOST_RESULT_BYTES + 1)


def nothing(work: Path) -> None:
    (work / "result.json").unlink()


def writes(text: str) -> Callable[[Path], None]:
    def write(work: Path) -> None:
        (work / "result.json").write_text(text)

    return write


@pytest.mark.parametrize(
    "leave",
    [
        link_to_a_key,
        result_is_a_link,
        fifo,
        folder_is_a_link,
        too_long,
        nothing,
        writes("[1]"),
        writes("null"),
        writes("7"),
        writes("{"),
        writes("[" * 100_000),
        writes('{"error": 1}'),
        writes('{"error": {}}'),
        writes('{"error": {"code": "NO_SUCH_CODE", "message": "x"}}'),
    ],
)
def test_what_no_stage_leaves_is_a_fault_of_the_compiler(tmp_path: Path, leave: Callable[[Path], None]) -> None:
    (tmp_path / "result.json").write_text("{}")
    leave(tmp_path)
    with pytest.raises(IngotError) as caught:
        read_result(tmp_path)
    assert caught.value.code is ErrorCode.COMPILER_FAULT
    assert "root" not in str(caught.value)


@pytest.mark.parametrize("manifest", [None, "{", "[]", "{}", '{"name": 1}'])
def test_an_artifact_that_makes_no_sense_is_a_fault_of_the_compiler(tmp_path: Path, manifest: str | None) -> None:
    if manifest is not None:
        (tmp_path / "manifest.json").write_text(manifest)
    with pytest.raises(IngotError) as caught:
        read_compiled(tmp_path, 1 << 30)
    assert caught.value.code in (ErrorCode.COMPILER_FAULT, ErrorCode.ARTIFACT_CORRUPT)


def test_answers_and_errors_come_through(tmp_path: Path) -> None:
    (tmp_path / "result.json").write_text(json.dumps({"report": {"issues": []}}))
    assert read_result(tmp_path) == {"report": {"issues": []}}
    error = IngotError(ErrorCode.EXTERNAL_DATA, "it is not there", field="w.bin", expected="a file", remedy="Copy it.")
    (tmp_path / "result.json").write_text(json.dumps({"error": error.to_dict()}))
    with pytest.raises(IngotError) as caught:
        read_result(tmp_path)
    assert caught.value.to_dict() == error.to_dict()


ODD_COUNTS: tuple[Any, ...] = (-1, 1 << 31, 1 << 63, 10**400, True, None, 0.5, float("nan"), float("inf"), [], {})


@pytest.mark.parametrize(
    "line",
    [
        b'{"stage": 1, "done": 0, "total": 1, "message": ""}',
        b'{"stage": "s", "done": "many", "total": 1, "message": ""}',
        b'{"stage": "s", "done": 0, "total": 1}',
        b'{"log": "forged"}',
        *(
            json.dumps({"stage": "s", "done": 1, "total": 2, "message": "m", field: value}).encode()
            for field in ("done", "total")
            for value in ODD_COUNTS
        ),
        b'{"stage": "%s", "done": 1, "total": 2, "message": "m"}' % (b"s" * 101),
        b"[" * 3000,
        b"\xff\xfe",
    ],
)
def test_reports_that_make_no_sense_are_dropped(line: bytes) -> None:
    heard: list[Mapping[str, Any]] = []
    lines = Lines(heard.append)
    lines.progress(line + b'\n{"stage": "s", "done": 1, "total": 2, "message": "m", "more": 1}\n')
    assert heard == [{"stage": "s", "done": 1, "total": 2, "message": "m"}]


def test_texts_of_reports_are_bounded_and_can_be_sent_on() -> None:
    heard: list[Mapping[str, Any]] = []
    odd = "\\ud800\\u0000\\u001b[2J" + "x" * 3000
    Lines(heard.append).progress(b'{"stage": "\\udfff", "done": 1, "total": 2, "message": "%s"}\n' % odd.encode())
    (report,) = heard
    assert len(report["message"]) < 1100
    sent = pb.Progress(**report, eta_seconds=1.0)
    assert sent.message.startswith("\\ud800\\x00\\x1b")


def test_texts_of_errors_are_bounded(tmp_path: Path) -> None:
    """Everyone who lists jobs gets them."""
    error = {"code": "INVALID_MODEL"} | dict.fromkeys(("message", "node", "remedy"), "�" + "x" * 100000)
    (tmp_path / "result.json").write_text(json.dumps({"error": error}))
    with pytest.raises(StageError) as caught:
        read_result(tmp_path)
    assert len(json.dumps(caught.value.to_dict())) < 20_000
    caught.value.message.encode()


REPORT: dict[str, Any] = {"opsets": {"": 17}, "operators": {"Add": 2}, "inputs": {"x": "float32[n]"}, "outputs": {}}
ISSUE: dict[str, str] = {"code": "INVALID_MODEL", "message": "it is none", "blame": "user"}


NO_ISSUES: tuple[Any, ...] = (7, [7], ["INVALID_MODEL"], [{}], [{"code": "NONE"}])
NO_COUNTS: tuple[Any, ...] = (None, [], 7, {"x": 0.5}, {"x": True}, {"x": 1 << 63}, {"x": []})


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"report": None},
        {"report": REPORT},
        *({"report": REPORT | {"issues": found}} for found in NO_ISSUES),
        *({"report": REPORT | {"issues": [], name: found}} for name in REPORT for found in NO_COUNTS),
    ],
)
def test_a_report_that_makes_no_sense_is_a_fault_of_the_compiler(answer: Mapping[str, Any]) -> None:
    with pytest.raises(IngotError) as caught:
        read_check(answer)
    assert caught.value.code is ErrorCode.COMPILER_FAULT


def test_a_report_comes_through() -> None:
    report = REPORT | {"issues": [ISSUE]}
    assert read_check({"report": report | {"foreign": 1}}) == report
    assert [type(issue) for issue in issues(report)] == [StageError]


def test_of_issues_without_end_the_first_are_kept() -> None:
    found = read_check({"report": REPORT | {"issues": [ISSUE | {"message": "m" * 100_000}] * 1000}})["issues"]
    texts = [issue["message"] for issue in found]
    assert texts[0].startswith("mmm")
    assert MOST_ISSUE_CHARACTERS / 2 < sum(map(len, texts)) <= MOST_ISSUE_CHARACTERS


@pytest.mark.parametrize("said", [7, None, "text", [7], [[]], [[[], "text"]], [["UserWarning", 7]], {"a": "b"}])
def test_warnings_that_make_no_sense_are_dropped(said: Any, recwarn: pytest.WarningsRecorder) -> None:
    _warn(said)
    assert not recwarn.list


@pytest.mark.parametrize("name", ["model.so", "plan.json", "report.json", "attachments/0.data"])
def test_what_a_stage_left_is_not_read_beyond_bounds(tmp_path: Path, name: str) -> None:
    """A file that holds nothing has any size, and takes no disk: who reads it would need the memory."""
    write_artifact(tmp_path / "artifact", replace(toy_artifact(), attachments={"bundle": b"x", "other": b"y"}))
    assert set(read_compiled(tmp_path / "artifact", 64 << 20).attachments) == {"bundle", "other"}
    os.truncate(tmp_path / "artifact" / name, 65 << 20)
    with pytest.raises(IngotError, match="bytes") as caught:
        read_compiled(tmp_path / "artifact", 64 << 20)
    assert caught.value.code is ErrorCode.COMPILER_FAULT


def test_what_a_stage_left_is_bounded_as_a_whole(tmp_path: Path) -> None:
    write_artifact(tmp_path / "artifact", replace(toy_artifact(), attachments={str(n): b"x" for n in range(9)}))
    for number in range(9):
        os.truncate(tmp_path / "artifact" / "attachments" / f"{number}.data", 8 << 20)
    with pytest.raises(IngotError, match="bytes") as caught:
        read_compiled(tmp_path / "artifact", 64 << 20)
    assert caught.value.code is ErrorCode.COMPILER_FAULT


def test_documents_that_a_stage_left_are_no_gigabytes(tmp_path: Path) -> None:
    write_artifact(tmp_path / "artifact", toy_artifact())
    os.truncate(tmp_path / "artifact" / "plan.json", 1 << 40)
    with pytest.raises(IngotError, match=str(512 << 20)):
        read_compiled(tmp_path / "artifact", 1 << 50)
