"""``ingot top`` before a real server: what it shows, what fits, and what becomes of it when the server goes away and comes back."""

from __future__ import annotations

import io
import json
import threading
from argparse import Namespace
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ingot import Endpoint
from ingot.cli.commands import top
from ingot.cli.main import main
from ingot.cli.output import Output, PrintableConsole
from ingot.scrapes import Row, View
from runtime_service.server import RuntimeServer
from tests.runtime_service.toy_models import ToySource, running_server, scale_model

pytestmark = pytest.mark.services
X = {"x": np.ones((3, 4), np.float32)}


@pytest.fixture
def server() -> Iterator[RuntimeServer]:
    source = ToySource()
    source.publish("scale", 1, scale_model, "stable")
    source.publish("other", 1, scale_model, "stable")
    with running_server(source, models="scale,other") as running:
        yield running


def pauses(monkeypatch: pytest.MonkeyPatch, *steps: Callable[[], Any]) -> None:
    """One second passes with each step; Ctrl-C ends the last."""
    left, now = list(steps), [0.0]

    def sleep(seconds: float) -> None:
        if not left:
            raise KeyboardInterrupt
        left.pop(0)()
        now[0] += 1.0

    monkeypatch.setattr(top, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=sleep))


def infers(server: RuntimeServer, count: int) -> Callable[[], None]:
    def infer() -> None:
        endpoint = Endpoint(server.addresses["grpc"])
        for _ in range(count):
            endpoint.infer("scale", X)
        endpoint.close()

    return infer


def test_one_look_as_json(
    server: RuntimeServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pauses(monkeypatch, infers(server, 20))
    assert main(["top", "--once", "--json", "--address", server.addresses["metrics"]]) == 0
    seen = json.loads(capsys.readouterr().out)
    assert (seen["ready"], seen["requests_per_second"], seen["interval_seconds"]) == (True, 20.0, 1.0)
    first, second = seen["rows"]
    assert (first["model"], first["requests_per_second"], first["rows_per_execution"]) == ("scale", 20.0, 3.0)
    assert 0 < first["p50_seconds"] <= first["p99_seconds"] < 5
    assert (first["pending"], first["weights_bytes"]) == (0, 1000)
    assert (second["model"], second["requests_per_second"], second["p50_seconds"]) == ("other", 0.0, None)
    pauses(monkeypatch, lambda: None)
    assert main(["top", "--once", "--json", "--sort=name", "--limit=1", "--address", server.addresses["http"]]) == 0
    assert [row["model"] for row in json.loads(capsys.readouterr().out)["rows"]] == ["other"]


def test_looks_go_on_while_the_server_is_away_and_when_it_is_back(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source = ToySource()
    source.publish("scale", 1, scale_model, "stable")
    with running_server(source, models="scale") as first:
        address = first.addresses["http"]
        again: list[Any] = []

        def come_back() -> None:
            again.append(running_server(source, models="scale", http_address=address))
            again[0].__enter__()

        steps = (infers(first, 5), lambda: first.drain(threading.Event()), lambda: None, come_back, lambda: None)
        pauses(monkeypatch, *steps)
        try:
            assert main(["top", "--json", "--address", address]) == 0
        finally:
            again[0].__exit__(None, None, None)
    looks = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [look.get("requests_per_second", "away") for look in looks[:4]] == [None, 5.0, "away", "away"]
    assert looks[2]["error"]["code"] == "UNAVAILABLE"
    assert all(look["ready"] for look in looks[4:])
    assert len(looks) == 6


def test_a_server_that_is_not_there_and_one_of_another_kind_are_errors(
    server: RuntimeServer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["top", "--address", "127.0.0.1:9"]) == 3
    assert "cannot be reached" in capsys.readouterr().err
    assert main(["top", "--address", server.addresses["grpc"]]) == 3
    assert capsys.readouterr().err.startswith("error: ")


def many(count: int) -> View:
    rows = [
        Row(
            f"model_with_a_long_name_{n}\x1b[31m",
            "12",
            "ready",
            12345.6 / (n + 1),
            0.04,
            8.7e-4,
            4.9,
            63.9,
            512,
            1.5,
            7 << 30,
        )
        for n in range(count)
    ]
    broken = [Row("broken", str(n), "failed", 0.0, 0.0, None, None, None, 0, 0.0, 0) for n in range(30)]
    return View(True, 256, 123 << 30, 2.0, 98765.4, {"": 3.0, "scale": 0.5}, (*rows, *broken))


def test_a_screen_is_80_columns_wide_and_as_high_as_the_terminal() -> None:
    shown = io.StringIO()
    console = PrintableConsole(file=shown, force_terminal=True, width=80, height=24, color_system=None)
    endpoint, seen = SimpleNamespace(address="runtime.example.com:8000"), many(100)
    most = top._most(Namespace(limit=None), seen, console.height)
    console.print(top._screen(endpoint, seen, most))  # type: ignore[arg-type]
    lines = [line.rstrip() for line in shown.getvalue().splitlines()]
    assert max(map(len, lines)) <= 80
    assert len(lines) == 23
    assert top._most(Namespace(limit=3), seen, console.height) == 3
    assert top._most(Namespace(limit=300), seen, console.height) == most
    assert top._most(Namespace(limit=300), seen, None) == 300
    assert lines[0] == "runtime.example.com:8000: ready, 98765 req/s, 256 in flight, 132.1 GB of memory"
    assert lines[2].split() == ["model", "version", "req/s", "err/s", "p50", "p99", "batch", "queue", "weights"]
    assert lines[3].startswith("model_with_a_long_name_")
    assert lines[3].split()[1:] == ["12", "12346", "0.0", "870", "us", "4.90", "s", "63.9", "512", "7.5", "GB"]
    assert "\x1b" not in shown.getvalue()
    assert "... and 83 more" in lines
    assert any(line.startswith("failed: broken, broken 1") for line in lines)
    assert "refused: models not served here 3.0/s, scale 0.5/s" in lines


def test_a_terminal_is_drawn_anew_and_given_back(server: RuntimeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = io.StringIO()
    console = PrintableConsole(file=shown, force_terminal=True, width=80, height=24, color_system=None)
    pauses(monkeypatch, infers(server, 2))
    arguments = Namespace(interval=1.0, sort="rate", limit=None, once=False)
    monkeypatch.setattr(top, "make_endpoint", lambda _: Endpoint(server.addresses["http"], "http"))
    assert top.run(arguments, Output(out=console)) == 0
    text = shown.getvalue()
    assert text.count("\x1b[?1049h") == text.count("\x1b[?1049l") == 1
    assert "looking" in text
    assert "2.0 req/s" in text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "-"),
        (0.0, "0 us"),
        (8.7e-7, "0.87 us"),
        (4.21e-3, "4.21 ms"),
        (0.0999, "99.9 ms"),
        (0.99951, "1.00 s"),
        (5.0, "> 5 s"),
    ],
)
def test_times_have_three_digits(seconds: float | None, text: str) -> None:
    assert top._time(seconds) == text
