"""What a model, a client or a service writes is never obeyed by the terminal of who reads it."""

from __future__ import annotations

import ast
import io
import json
import logging
from pathlib import Path

import pytest
from onnx import TensorProto, helper

from ingot.cli import output as output_module
from ingot.cli.main import main
from ingot.cli.output import Output, PrintableConsole
from ingot.cli.progress import ProgressBars
from ingot.records import JobEvent, LogLine, Progress
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.printable import printable, printable_json
from shared_ir.service_kit.telemetry.log import JsonFormatter, TextFormatter

HOSTILE = "a\x1b[2J\x1b]0;owned\x07\r\x9b2J\u202e\x00\udc80[/red]"
"""Clears the screen, names the window, writes over its line, in two encodings of the first; turns what follows round."""


def without_controls(text: str) -> bool:
    return text.replace("\n", "").isprintable()


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Every name in it is hostile; its operator is unknown."""
    monkeypatch.setenv("INGOT_HOME", str(tmp_path / "home"))
    name = HOSTILE.replace("\udc80", "").replace("\x00", "")
    value = helper.make_tensor_value_info(name, TensorProto.FLOAT, [name, 2])
    result = helper.make_tensor_value_info(f"{name}y", TensorProto.FLOAT, [name, 2])
    node = helper.make_node(name, [name], [f"{name}y"], name=name)
    graph = helper.make_graph([node], name, [value], [result])
    (tmp_path / "odd.onnx").write_bytes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)]).SerializeToString()
    )
    return tmp_path / "odd.onnx"


@pytest.mark.parametrize(
    "command",
    [
        ("inspect",),
        ("inspect", "--graph"),
        ("check", "--local"),
        ("compile", "--local", "--out", "out"),
        ("compile", "--local", "--in-process", "--out", "out"),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("json", [(), ("--json",)], ids=["words", "json"])
def test_names_of_a_model(
    model: Path, command: tuple[str, ...], json: tuple[str, ...], capfd: pytest.CaptureFixture[str]
) -> None:
    main([command[0], str(model), *command[1:], *json])
    said = capfd.readouterr()
    assert "[2J" in said.out + said.err
    assert without_controls(said.out)
    assert without_controls(said.err)


def test_what_commands_print(capsys: pytest.CaptureFixture[str]) -> None:
    for as_json in (False, True):
        output = Output(as_json)
        output.say(HOSTILE)
        output.note(HOSTILE)
        output.table((HOSTILE,), [(HOSTILE,)], HOSTILE)
        output.document({HOSTILE: HOSTILE})
        output.line(HOSTILE)
        output.error(IngotError(ErrorCode.INTERNAL, HOSTILE, node=HOSTILE, remedy=HOSTILE))
    said = capsys.readouterr()
    assert without_controls(said.out)
    assert without_controls(said.err)


def test_bars_and_log_lines_of_jobs() -> None:
    """On a terminal, where rich itself moves the cursor."""
    terminal = io.StringIO()
    output = Output(err=PrintableConsole(file=terminal, force_terminal=True, width=500))
    with ProgressBars(output) as bars:
        bars.upload(HOSTILE, 1, 2)
        bars.stage(HOSTILE, 1, 2, HOSTILE)
        bars.event(JobEvent("1", 0.0, HOSTILE, progress=Progress(HOSTILE, 1, 2, 0.0, HOSTILE)))
        bars.event(JobEvent("2", 0.0, HOSTILE, log=LogLine("ERROR", HOSTILE)))
    said = terminal.getvalue()
    assert "\\x1b[2J" in said
    for obeyed in ("\x1b[2J", "\x1b]0;", "\x07", "\x9b", "\u202e", "\x00"):
        assert obeyed not in said


def test_errors_as_text() -> None:
    error = IngotError(ErrorCode.INVALID_MODEL, HOSTILE, expected=HOSTILE, received=HOSTILE, remedy=HOSTILE)
    assert str(error).isprintable()
    assert error.to_dict()["message"] == HOSTILE.replace("\udc80", "\\udc80")


def test_lines_of_a_log() -> None:
    record = logging.LogRecord("name", logging.INFO, "", 0, "%s", (HOSTILE,), None)
    for formatter in (TextFormatter(), JsonFormatter("p")):
        assert formatter.format(record).isprintable()


def test_what_is_printable_stays_as_it_is() -> None:
    assert printable("größe 量\t[x]\nrow") == "größe 量\t[x]\nrow"
    document = json.dumps({"größe": [HOSTILE, "\\x1b", 1.5]}, indent=2, ensure_ascii=False)
    assert json.loads(printable_json(document)) == json.loads(document)
    assert "größe" in printable_json(document)


def test_commands_print_by_their_output_alone() -> None:
    """Else a text could leave by another way. A question is asked in words of ours."""
    own = Path(output_module.__file__)
    found = [
        f"{path.name}:{node.lineno}"
        for path in own.parent.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in ("print", "Console", "write")
        if path != own and not (node.args and isinstance(node.args[0], ast.Constant))
    ]
    allowed = [name for name in found if name.startswith("progress.py")]  # the console of the output
    assert sorted(set(found) - set(allowed)) == []
