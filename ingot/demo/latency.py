"""Latency of one model in a process of its own: ``python -m ingot.demo.latency ingot|onnxruntime MODEL 1x3x48x192``.

``MODEL`` is a folder with an artifact for Ingot, an ONNX file for ONNX Runtime; both run with one thread. Prints JSON:
``load_seconds``, ``median_seconds``, ``runs``.
"""

from __future__ import annotations

import importlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ingot.model import load

SECONDS = 0.7
"""How long to measure in one process, after a warm-up."""
ROUNDS = 3
"""Processes per engine, taken in turns: the one that was least disturbed by others on the machine counts."""
WARM_UP_RUNS = 5
MIN_RUNS = 7


@dataclass(frozen=True)
class Latency:
    """Times in seconds: to load, and the median of ``runs`` inferences."""

    load_seconds: float
    median_seconds: float
    runs: int


def measure_in_turns(folder: Path, model: Path, shape: tuple[int, ...], home: Path) -> tuple[Latency, Latency]:
    """Ingot (the artifact in ``folder``) and ONNX Runtime (``model``), the round with the lowest median of each."""
    rounds = [
        (measure_apart("ingot", folder, shape, home), measure_apart("onnxruntime", model, shape, home))
        for _ in range(ROUNDS)
    ]
    own, other = zip(*rounds, strict=True)
    return best(own), best(other)


def best(found: Sequence[Latency]) -> Latency:
    return min(found, key=lambda latency: latency.median_seconds)


def measure_apart(engine: str, model: Path, shape: tuple[int, ...], home: Path) -> Latency:
    """Measure in a new process, which has one thread to compute with."""
    command = [sys.executable, "-m", "ingot.demo.latency", engine, str(model), "x".join(map(str, shape))]
    environment = os.environ | {"INGOT_HOME": str(home), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
    return Latency(**json.loads(done.stdout))


def measure(prepare: Callable[[], Callable[[], Any]]) -> Latency:
    start = time.perf_counter()
    run = prepare()
    load_seconds = time.perf_counter() - start
    for _ in range(WARM_UP_RUNS):
        run()
    times: list[float] = []
    while len(times) < MIN_RUNS or sum(times) < SECONDS:
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return Latency(load_seconds, statistics.median(times), len(times))


def prepare_ingot(directory: str, array: Any) -> Callable[[], Any]:
    model = load(directory, threads=1)
    feeds = {model.inputs[0].name: array}
    return lambda: model.run(feeds)


def prepare_onnxruntime(path: str, array: Any) -> Callable[[], Any]:
    session = onnxruntime_session(path)
    feeds = {session.get_inputs()[0].name: array}
    return lambda: session.run(None, feeds)


def onnxruntime_session(path: str) -> Any:
    """With one thread, and silent."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def main(engine: str, model: str, shape: str) -> None:
    extents = tuple(int(extent) for extent in shape.split("x"))
    array = np.random.default_rng(0).standard_normal(extents).astype(np.float32)
    prepare = {"ingot": prepare_ingot, "onnxruntime": prepare_onnxruntime}[engine]
    importlib.import_module(
        "runtime_service.loading.loader" if engine == "ingot" else "onnxruntime"
    )  # not part of loading
    found = measure(lambda: prepare(model, array))
    print(json.dumps(found.__dict__))


if __name__ == "__main__":
    main(*sys.argv[1:])
