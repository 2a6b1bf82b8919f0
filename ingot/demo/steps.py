"""The steps of the demo, each of which raises when what it shows does not hold."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from tritonclient.utils import InferenceServerException

from ingot.cli.output import Output
from ingot.cli.progress import ProgressBars
from ingot.client import Client
from ingot.demo.latency import onnxruntime_session
from ingot.endpoint import Array
from ingot.home import Addresses
from ingot.records import Job

TOLERANCE = 1e-4
"""Largest absolute difference to ONNX Runtime."""
CACHE_HIT_SECONDS = 0.1
_SUBMISSIONS = 3
"""Whatever else the machine does, one of them is not held up."""
READY_SECONDS = 30.0


class DemoError(Exception):
    """Something that the demo promises does not hold."""


@dataclass(frozen=True)
class DemoModel:
    """A model, the shapes to infer at, and the one that latency is measured at (the first)."""

    name: str
    path: Path
    shapes: tuple[tuple[int, ...], ...]


def compile_model(client: Client, model: DemoModel, output: Output) -> Job:
    """Upload in chunks, compile, watch, publish version 1 as ``stable``."""
    with ProgressBars(output) as bars:
        source = client.upload(model.path, progress=bars.upload)
        job = client.compile(source, model.name, labels=["stable"])
        for event in client.watch(job.id):
            bars.event(event)
    job = client.job(job.id)
    if job.error is not None:
        raise job.error
    require(job.version == 1 and not job.cache_hit, f"{model.name}: expected a fresh version 1, got {job}")
    require(client.labels(model.name) == {"stable": 1}, f"{model.name}: the label does not point at version 1")
    return job


def submit_again(client: Client, model: DemoModel) -> float:
    """Seconds that the same submission takes now, the quickest of a few: each must be a cache hit."""
    source = client.upload(model.path)
    took = []
    for _ in range(_SUBMISSIONS):
        start = time.perf_counter()
        job = client.compile(source, model.name, labels=["stable"])
        took.append(time.perf_counter() - start)
        require(job.cache_hit and job.is_finished and job.version == 1, f"{model.name}: not a cache hit")
    seconds = min(took)
    require(seconds < CACHE_HIT_SECONDS, f"{model.name}: the cache hit took {seconds * 1e3:.0f} ms")
    return seconds


def wait_ready(addresses: Addresses, models: Sequence[DemoModel]) -> float:
    """Seconds until the runtime service serves version 1 of every model."""
    start = time.monotonic()
    client = triton_grpc.InferenceServerClient(addresses.grpc)
    while not all(_is_ready(client, model.name) for model in models):
        require(time.monotonic() - start < READY_SECONDS, "the runtime service did not load the models")
        time.sleep(0.05)
    require(client.is_server_ready(), "the runtime service has its models but is not ready")
    client.close()
    return time.monotonic() - start


def _is_ready(client: Any, name: str) -> bool:
    try:
        return bool(client.is_model_ready(name, "1"))
    except InferenceServerException as error:
        if error.status() == "StatusCode.NOT_FOUND":  # the runtime has not looked at the store again yet
            return False
        raise


def compare(addresses: Addresses, model: DemoModel) -> list[tuple[str, tuple[int, ...], float]]:
    """Protocol, shape and largest absolute difference to ONNX Runtime, of the same input."""
    session = onnxruntime_session(str(model.path))
    name, random, found = session.get_inputs()[0].name, np.random.default_rng(0), []
    for shape in model.shapes:
        array = random.standard_normal(shape).astype(np.float32)
        expected = {o.name: r for o, r in zip(session.get_outputs(), session.run(None, {name: array}), strict=True)}
        for protocol, infer in (("gRPC", infer_grpc), ("HTTP", infer_http)):
            answers = infer(addresses, model.name, name, array, list(expected))
            error = max(float(np.abs(answers[key] - expected[key]).max()) for key in expected)
            require(error <= TOLERANCE, f"{model.name} at {shape} over {protocol}: differs by {error}")
            found.append((protocol, shape, error))
    return found


def infer_grpc(addresses: Addresses, model: str, name: str, array: Array, outputs: Sequence[str]) -> dict[str, Array]:
    return _infer(triton_grpc, addresses.grpc, model, name, array, outputs)


def infer_http(addresses: Addresses, model: str, name: str, array: Array, outputs: Sequence[str]) -> dict[str, Array]:
    return _infer(triton_http, addresses.http, model, name, array, outputs)


def _infer(library: Any, address: str, model: str, name: str, array: Array, outputs: Sequence[str]) -> dict[str, Array]:
    client = library.InferenceServerClient(address)
    tensor = library.InferInput(name, list(array.shape), "FP32")
    tensor.set_data_from_numpy(array)
    answer = client.infer(model, [tensor])
    client.close()
    return {output: answer.as_numpy(output) for output in outputs}


def layout_bytes(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


def require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise DemoError(otherwise)
