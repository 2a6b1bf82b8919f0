"""The process of one engine: ``python -m bench.worker ENGINE``.

One JSON object per line comes in, one goes out::

    {"do": "load", "model": PATH, "shapes": {NAME: [...]}, "dynamic": false, "threads": 1}  ->  facts of the engine
    {"do": "run", "inputs": NPZ, "outputs": NPZ}                                            ->  {}
    {"do": "time", "seconds": 0.2, "least": 3}                          ->  {"times": [seconds, ...], "preempted": N}

An answer ``{"error": TEXT}`` says that the engine could not do it. Arrays travel through npz files, by name.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import resource
import signal
import sys
import time
from pathlib import Path
from typing import Any

from bench.arrays import read_arrays, write_arrays
from bench.engines.engine import Engine, LoadRequest

_PR_SET_PDEATHSIG = 1


def main(name: str) -> None:
    die_with_parent()
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # engines print as they please
    engine: Engine | None = None
    for line in sys.stdin:
        command = json.loads(line)
        try:
            engine = engine or make_engine(name)
            answer = handle(engine, command)
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=replies, flush=True)


def make_engine(name: str) -> Engine:
    """NOTE: imported here, so that a process holds the libraries of its own engine only."""
    match name:
        case "ingot":
            from bench.engines.ingot_engine import IngotEngine

            return IngotEngine()
        case "onnxruntime":
            from bench.engines.onnxruntime_engine import OnnxRuntimeEngine

            return OnnxRuntimeEngine()
        case "openvino":
            from bench.engines.openvino_engine import OpenVinoEngine

            return OpenVinoEngine()
        case "openvino-default":
            from bench.engines.openvino_engine import OpenVinoEngine

            return OpenVinoEngine(precision=None)
        case "reference":
            from bench.engines.reference_engine import ReferenceEngine

            return ReferenceEngine()
    raise ValueError(f"there is no engine {name!r}")


def handle(engine: Engine, command: dict[str, Any]) -> dict[str, Any]:
    match command:
        case {"do": "load", "model": model, "shapes": shapes, "dynamic": dynamic, "threads": threads}:
            request = LoadRequest(Path(model), {k: tuple(v) for k, v in shapes.items()}, dynamic, threads)
            return engine.load(request)
        case {"do": "run", "inputs": inputs, "outputs": outputs}:
            engine.prepare(read_arrays(Path(inputs)))
            write_arrays(Path(outputs), engine.outputs())
            return {}
        case {"do": "time", "seconds": seconds, "least": least}:
            return time_runs(engine, seconds, least)
    raise ValueError(f"not a command: {command}")


def time_runs(engine: Engine, seconds: float, least: int) -> dict[str, Any]:
    """Time runs for ``seconds``, and ``least`` of them at any rate, after one to bring caches and clocks up."""
    engine.run()
    times: list[float] = []
    gc.collect()
    gc.disable()
    preempted = resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw
    end = time.perf_counter() + seconds
    start = 0.0
    while len(times) < least or start < end:
        start = time.perf_counter()
        engine.run()
        times.append(time.perf_counter() - start)
    preempted = resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw - preempted
    gc.enable()
    return {"times": times, "preempted": preempted}


def die_with_parent() -> None:
    """A benchmark that is killed must not leave stopped processes behind."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    main(sys.argv[1])
