"""The benchmark of serving: its clients, its page, and itself in short."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bench.load.client import Window, Work, connected, run
from bench.load.connections import WrongAnswer
from bench.load.requests import GRPC, JSON, KINDS, MODEL, question
from bench.load.window import Turn
from bench.servers.processes import ServerFailed, ServerProcess, Start
from bench.serving import main, parse_case, summarize
from bench.serving_page import STORED, ServingReport, kept, replaced
from runtime_service.server import RuntimeServer
from tests.runtime_service.toy_models import ToyModel, ToySource, running_server, scale_model


@contextmanager
def serving(make: Callable[[], ToyModel]) -> Iterator[RuntimeServer]:
    source = ToySource()
    source.publish(MODEL, 1, make, "stable")
    with running_server(source, models=MODEL) as server:
        yield server


def ask(server: RuntimeServer, kind: str, seconds: float = 0.3) -> list[float]:
    work = Work(kind, server.addresses["grpc" if kind == GRPC else "http"], 3)
    now = time.monotonic()
    connections = connected(work)
    try:
        return run(connections, question(kind), Window(now, now + seconds))
    finally:
        for connection in connections:
            connection.socket.close()


@pytest.mark.services
@pytest.mark.parametrize("kind", KINDS)
def test_clients_ask_and_look_at_the_answers(kind: str) -> None:
    with serving(lambda: scale_model(1.0, width=16)) as server:
        latencies = ask(server, kind)
        assert len(latencies) > 3
        assert all(10 < value < 5e6 for value in latencies)
    with serving(lambda: scale_model(2.0, width=16)) as server, pytest.raises(WrongAnswer):
        ask(server, kind)
    with serving(lambda: scale_model(1.0, width=4)) as server, pytest.raises(WrongAnswer):
        ask(server, kind)  # an error is none of the answers


def test_medians_and_spreads_over_rounds() -> None:
    turns = [Turn(100.0, 50.0, 1.0, 2.0), Turn(300.0, 70.0, 3.0, 9.0), Turn(200.0, 60.0, 2.0, 4.0)]
    found = summarize(JSON, 4, "ingot", turns)
    assert found.cells() == (JSON, "4", "ingot", "200 ±25%", "60 ±8%", "2.00 ±25%", "4.00 ±44%")


def test_the_section_of_the_page_is_replaced_and_kept(tmp_path: Path) -> None:
    measured = summarize(JSON, 4, "ingot", [Turn(100.0, 50.0, 1.0, 2.0)])
    report = ServingReport(("CPU: one",), {"ingot": "1"}, 5, 2.0, (measured,))
    page = "# Results\n\nText.\n\n## Machine\n\n- here\n"
    written = replaced(page, report)
    assert written.startswith(page)
    assert "| http json | 4 | ingot | 100 ±0% | 50 ±0% | 1.00 ±0% | 2.00 ±0% |" in written
    assert replaced(written, report) == written
    assert kept(page, tmp_path) == page
    (tmp_path / STORED).write_text(json.dumps(report.to_dict()))
    assert kept(page, tmp_path) == written


def test_cases_are_kinds_and_counts() -> None:
    assert parse_case("http json:4") == (JSON, 4)
    for text in ("http:4", "grpc", "grpc:0", "grpc:x"):
        with pytest.raises(argparse.ArgumentTypeError):
            parse_case(text)


def test_a_server_that_ends_is_told_with_its_last_words(tmp_path: Path) -> None:
    start = Start("odd", ["sh", "-c", "echo no such model; exit 3"], tmp_path, {}, {}, "127.0.0.1:1")
    with pytest.raises(ServerFailed, match="no such model"):
        ServerProcess(start)


@pytest.mark.slow
@pytest.mark.services
def test_the_whole_benchmark_in_short(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--servers", "ingot", "--rounds", "1", "--seconds", "0.3", "--warm", "0.1", "--out"]
    assert main([*options, str(tmp_path / "PAGE.md"), "--cases", *(f"{kind}:2" for kind in KINDS)]) == 0
    stored = ServingReport.from_dict(json.loads((tmp_path / "results" / STORED).read_text()))
    assert [row.kind for row in stored.measured] == list(KINDS)
    assert all(row.rate.median > 0 and row.cpu.median > 0 for row in stored.measured)
    assert "ingot" in capsys.readouterr().out
