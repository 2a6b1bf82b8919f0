"""Runs an artifact once, in a process of its own: ``python -m runtime_service.loading.once DIRECTORY INPUTS.npz OUTPUTS.npz``.

The directory holds an unsigned artifact of this machine's own making (:mod:`shared_ir.artifact.exchange`). The answer is one JSON line:
``{"seconds": median of the timed runs}`` or ``{"error": {...}}``; the outputs that are tensors are written by position (``0``, ``1``,
...).
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path

import numpy as np

from runtime_service.arrays import Array
from runtime_service.loading.loader import load_model
from runtime_service.loading.model import Model
from shared_ir.artifact.exchange import read_artifact
from shared_ir.errors import IngotError
from shared_ir.storage.faults import told
from shared_ir.types import ValueKind


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m runtime_service.loading.once", description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("inputs", type=Path, help="arrays by position among the inputs that have no default")
    parser.add_argument("outputs", type=Path)
    parser.add_argument("--repeat", type=int, default=0, help="timed runs after the first")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    try:
        with load_model(read_artifact(arguments.directory), threads=arguments.threads) as model:
            print(json.dumps(run(model, arguments.inputs, arguments.outputs, arguments.repeat)))
    except IngotError as error:
        print(json.dumps({"error": error.to_dict()}))
        return 1
    return 0


def run(model: Model, inputs: Path, outputs: Path, repeat: int) -> dict[str, float]:
    with np.load(inputs, allow_pickle=False) as arrays:
        required = [spec for spec in model.inputs if not spec.is_optional]
        feeds = {spec.name: arrays[str(i)] for i, spec in enumerate(required)}
    results = model.run(feeds)
    tensors = {str(i): _plain(results[s.name]) for i, s in enumerate(model.outputs) if s.kind is ValueKind.TENSOR}
    with told("the outputs cannot be written", outputs):
        np.savez(outputs, allow_pickle=False, **tensors)
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        model.run(feeds)
        times.append(time.perf_counter() - start)
    return {"seconds": statistics.median(times) if times else 0.0}


def _plain(array: Array) -> Array:
    """Strings of bounded length, which a file can hold."""
    return array.astype(str) if array.dtype == object else array


if __name__ == "__main__":
    raise SystemExit(main())
