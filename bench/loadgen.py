"""MLCommons' LoadGen in front of a server: ``python -m bench.loadgen``.

Its four scenarios, with the identity of FP32[1, 16], so that what is left is the service: SingleStream (one request after another),
MultiStream (eight together), Offline (all at once), Server (at random moments, so many a second). These are no results of MLPerf: the
model, the times and the rates are not those of its rules, and nobody has reviewed them.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlperf_loadgen

from bench.load.requests import GRPC, KINDS
from bench.load.under_test import SAMPLES, ServerUnderTest
from bench.machine import describe_machine
from bench.report import markdown_table
from bench.servers.peers import INGOT, PREPARE
from bench.servers.processes import ServerFailed
from bench.serving import start

SCENARIOS = ("SingleStream", "MultiStream", "Offline", "Server")
"""In this order: how many requests a second there may be is told by those before."""
_TOGETHER = 8
_SHARE = 0.5
"""Of what Offline reached, for Server, unless a rate is given."""
_LEAST_QUERIES = 64
_LATENCY = re.compile(r"^\s*([0-9.]+) percentile latency \(ns\)\s*:\s*(\d+)", re.MULTILINE)
_RATE = re.compile(
    r"^(?:QPS w/o loadgen overhead|Samples per second|Completed samples per second)\s*:\s*([0-9.]+)", re.MULTILINE
)


@dataclass(frozen=True)
class Outcome:
    """``rate`` in requests a second, ``latencies`` in milliseconds by percentile; Offline has none."""

    scenario: str
    rate: float
    latencies: dict[str, float]

    def cells(self) -> tuple[str, ...]:
        return (
            self.scenario,
            f"{self.rate:.0f}",
            *(_number(self.latencies.get(key)) for key in ("50.00", "90.00", "99.00")),
        )


def run_scenario(scenario: str, server: ServerUnderTest, seconds: float, rate: float, logs: Path) -> Outcome:
    """``rate`` is what is expected in Offline, and asked for in Server."""
    wanted: Any = mlperf_loadgen.TestSettings()
    wanted.scenario = getattr(mlperf_loadgen.TestScenario, scenario)
    wanted.mode = mlperf_loadgen.TestMode.PerformanceOnly
    wanted.min_duration_ms = int(seconds * 1000)
    wanted.min_query_count = _LEAST_QUERIES
    wanted.multi_stream_samples_per_query = _TOGETHER
    wanted.offline_expected_qps = wanted.server_target_qps = max(rate, 1.0)
    wanted.server_target_latency_ns = 10_000_000
    output: Any = mlperf_loadgen.LogOutputSettings()
    output.outdir, output.copy_summary_to_stdout = str(logs), False
    log: Any = mlperf_loadgen.LogSettings()
    log.log_output, log.enable_trace = output, False
    issue = mlperf_loadgen.ConstructSUT(
        lambda samples: server.issue([(sample.id, sample.index) for sample in samples]), lambda: None
    )
    library = mlperf_loadgen.ConstructQSL(SAMPLES, SAMPLES, lambda numbers: None, lambda numbers: None)
    try:
        mlperf_loadgen.StartTestWithLogSettings(issue, library, wanted, log)
    finally:
        mlperf_loadgen.DestroyQSL(library)
        mlperf_loadgen.DestroySUT(issue)
    return outcome(scenario, (logs / "mlperf_log_summary.txt").read_text())


def outcome(scenario: str, summary: str) -> Outcome:
    """What LoadGen's summary says.

    Raises:
        ValueError: no rate is in it.
    """
    told = {percentile: int(value) / 1e6 for percentile, value in _LATENCY.findall(summary)}
    latencies = {} if scenario == "Offline" else told
    if (found := _RATE.search(summary)) is not None:
        return Outcome(scenario, float(found[1]), latencies)
    if (mean := re.search(r"^Mean latency \(ns\)\s*:\s*(\d+)", summary, re.MULTILINE)) is not None:
        return Outcome(scenario, _TOGETHER * 1e9 / int(mean[1]), latencies)
    raise ValueError(f"LoadGen's summary has no rate: {summary[:500]}")


def complete(identity: int) -> None:
    mlperf_loadgen.QuerySamplesComplete([mlperf_loadgen.QuerySampleResponse(identity, 0, 0)])


def run_all(kind: str, address: str, connections: int, seconds: float, rate: float) -> tuple[list[Outcome], list[str]]:
    """All scenarios one after the other, and what was answered wrongly."""
    server = ServerUnderTest(kind, address, connections, complete)
    found: list[Outcome] = []
    try:
        for scenario in SCENARIOS:
            asked = found[-1].rate if scenario == "Offline" else (rate or _SHARE * found[-1].rate) if found else 1.0
            with tempfile.TemporaryDirectory(prefix="ingot-loadgen-") as logs:
                found.append(run_scenario(scenario, server, seconds, asked, Path(logs)))
    finally:
        server.close()
    return found, server.wrong


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status 1 when a request is answered wrongly, or the server does not start."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.loadgen", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--server", choices=tuple(PREPARE), default=INGOT)
    parser.add_argument("--kind", choices=KINDS, default=GRPC)
    parser.add_argument("--seconds", type=float, default=60.0, help="of each scenario, at least")
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--rate", type=float, default=0.0, help="of Server; by default half of what Offline reached")
    parser.add_argument("--environments", type=Path, default=Path(__file__).parents[1] / "build" / "serving")
    given = parser.parse_args(arguments)
    for line in describe_machine().lines():
        print(line)
    try:
        with ExitStack() as stack:
            (process,) = start(stack, [given.server], given.environments.absolute())
            if given.kind not in process.kinds:
                raise ServerFailed(f"it does not answer {given.kind}")
            with process.turn():
                address = process.address(given.kind)
                found, wrong = run_all(given.kind, address, given.connections, given.seconds, given.rate)
    except ServerFailed as error:
        print(f"{given.server}: {error}", file=sys.stderr)
        return 1
    print(f"{given.server} {process.version}, {given.kind}, {given.connections} connections; not results of MLPerf")
    print(markdown_table(("scenario", "req/s", "p50 ms", "p90 ms", "p99 ms"), [each.cells() for each in found]))
    print(*wrong[:10], sep="\n", end="\n" if wrong else "")
    return int(bool(wrong))


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


if __name__ == "__main__":
    raise SystemExit(main())
