"""What batching in the service costs: ``python -m bench.batching MODEL.onnx --clients 8 16 32``.

Clients ask a server for one row each, over gRPC, and each asks again when it has its answer. Beside it the bare executor computes batches
of the size that came about, with as many threads. Both are measured in rows for each CPU second of their processes; the mean
batch is rows for each execution, from the server's own metrics. Server and executor take turns.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from prometheus_client.parser import text_string_to_metric_families

import ingot
from bench.inputs import InputSpec, make_inputs, read_inputs
from bench.load.requests import GRPC, MODEL
from bench.machine import describe_machine
from bench.report import markdown_table
from bench.servers.peers import start_of_layout
from bench.servers.processes import ServerProcess
from ingot.endpoint import Endpoint

_ROWS, _EXECUTIONS = "ingot_inference_rows_total", "ingot_inference_executions_total"


@dataclass(frozen=True)
class Turn:
    """Rows for each CPU second, rows a second, and rows for each execution."""

    per_cpu: float
    rate: float
    batch: float


def ask(address: str, feeds: dict[str, np.ndarray], end: threading.Event) -> None:
    """One request after another, of one row."""
    endpoint = Endpoint(address)
    while not end.is_set():
        endpoint.infer(MODEL, feeds)
    endpoint.close()


def served(server: ServerProcess, metrics: str, feeds: dict[str, np.ndarray], clients: int, seconds: float) -> Turn:
    end = threading.Event()
    threads = [
        threading.Thread(target=ask, args=(server.address(GRPC), feeds, end), daemon=True) for _ in range(clients)
    ]
    with server.turn():
        for thread in threads:
            thread.start()
        time.sleep(min(2.0, seconds / 2))
        before, cpu, start = counts(metrics), server.cpu_seconds(), time.monotonic()
        time.sleep(seconds)
        after, cpu, lasted = counts(metrics), server.cpu_seconds() - cpu, time.monotonic() - start
        end.set()
        for thread in threads:
            thread.join()
    rows, executions = (after[name] - before[name] for name in (_ROWS, _EXECUTIONS))
    return Turn(rows / cpu, rows / lasted, rows / executions)


def counts(metrics: str) -> dict[str, float]:
    with urllib.request.urlopen(f"http://{metrics}/metrics", timeout=10) as answer:
        families = text_string_to_metric_families(answer.read().decode())
        return {s.name: s.value for family in families for s in family.samples if s.name in (_ROWS, _EXECUTIONS)}


def bare(model: ingot.Model, feeds: dict[str, np.ndarray], batch: int, seconds: float) -> Turn:
    """The executor alone, on ``batch`` rows at once."""
    whole = {name: np.repeat(array, batch, axis=0) for name, array in feeds.items()}
    for _ in range(3):
        model.run(whole)
    runs, cpu, start = 0, time.process_time(), time.monotonic()
    while time.monotonic() - start < seconds:
        model.run(whole)
        runs += 1
    lasted, cpu = time.monotonic() - start, time.process_time() - cpu
    return Turn(runs * batch / cpu, runs * batch / lasted, batch)


def one_row(specs: Sequence[InputSpec]) -> dict[str, np.ndarray]:
    """Of every input; a first dim that is a number already is what the model was exported with."""
    shapes = {spec.name: (1, *(dim if isinstance(dim, int) else 1 for dim in spec.shape[1:])) for spec in specs}
    return make_inputs(specs, shapes)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.batching", description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--clients", type=int, nargs="+", default=(8, 16, 32))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10.0, help="length of a turn")
    options = parser.parse_args(arguments)
    print("\n".join(describe_machine().lines()), file=sys.stderr)
    feeds = one_row(read_inputs(options.model))
    batched = {name: ("n", *array.shape[1:]) for name, array in feeds.items()}
    rows = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ingot-bench-")))
        ingot.compile(str(options.model), shapes=batched).save(folder / "layout", home=folder / "home")
        model = stack.enter_context(ingot.load(folder / "layout", home=folder / "home"))
        start, metrics = start_of_layout(folder)
        server = ServerProcess(start)
        stack.callback(server.stop)
        server.pause()
        for clients in options.clients:
            ours, alone = [], []
            for _ in range(options.rounds):
                ours.append(served(server, metrics, feeds, clients, options.seconds))
                alone.append(bare(model, feeds, round(ours[-1].batch), options.seconds))
            rows.append(cells(clients, ours, alone))
    header = ("clients", "mean batch", "images / CPU s", "bare", "part", "images / s")
    print(markdown_table(header, rows))
    return 0


def cells(clients: int, ours: Sequence[Turn], alone: Sequence[Turn]) -> tuple[str, ...]:
    """Medians; the part is that of pairs."""
    part = statistics.median(a.per_cpu / b.per_cpu for a, b in zip(ours, alone, strict=True))
    found = {name: statistics.median(getattr(turn, name) for turn in ours) for name in ("batch", "per_cpu", "rate")}
    against = statistics.median(turn.per_cpu for turn in alone)
    return (
        str(clients),
        f"{found['batch']:.1f}",
        f"{found['per_cpu']:.1f}",
        f"{against:.1f}",
        f"{part:.3f}",
        f"{found['rate']:.1f}",
    )


if __name__ == "__main__":
    raise SystemExit(main())
