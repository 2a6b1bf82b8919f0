"""What is asked of the service meanwhile, and what has to come of it."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import ingot
from ingot.client import Client
from ingot.records import Job
from shared_ir.errors import Blame, ErrorCode, IngotError

_WIDTH, _TARGET = 16, "x86-64-v3"
_PASSING = (ErrorCode.UNAVAILABLE, ErrorCode.RESOURCE_EXHAUSTED, ErrorCode.DEADLINE_EXCEEDED, ErrorCode.INTERNAL)
"""What a call may be refused with while servers, Redis or the store are away."""


@dataclass(frozen=True)
class Order:
    """A model to compile under ``name``; ``blamed`` when its user is at fault, else ``answer`` is what it computes."""

    name: str
    model: bytes
    code: ErrorCode | None = None
    answer: Callable[[np.ndarray], np.ndarray] | None = None


def orders(seed: int) -> Iterator[Order]:
    """Without end; one in six is wrong, and one in three was there before."""
    draw = random.Random(seed)
    for number in range(1 << 30):
        kind = draw.random()
        if kind < 0.04:
            yield Order(f"bytes{number}", draw.randbytes(500), ErrorCode.INVALID_MODEL)
        elif kind < 0.08:
            yield Order(f"undefined{number}", _undefined_value(number), ErrorCode.INVALID_MODEL)
        elif kind < 0.16:
            yield Order(f"unknown{number}", _unknown_operator(number), ErrorCode.UNSUPPORTED_OPERATOR)
        else:
            which = draw.randrange(number // 2 + 1) if kind < 0.5 else number
            yield _dense(which)


def _dense(number: int) -> Order:
    weights = np.random.default_rng(number).standard_normal((_WIDTH, _WIDTH)).astype(np.float32)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["m"]), helper.make_node("Relu", ["m"], ["y"])]
    model = _model(nodes, [numpy_helper.from_array(weights, "w")])
    return Order(f"dense{number}", model, None, lambda x: np.maximum(x @ weights, 0))


def _unknown_operator(number: int) -> bytes:
    return _model([helper.make_node("Frobnicate", ["x"], ["y"], name=f"node{number}")], [])


def _undefined_value(number: int) -> bytes:
    """No upload tells this model from a right one: a job has to."""
    return _model([helper.make_node("Relu", [f"nothing{number}"], ["y"])], [])


def _model(nodes: Sequence[onnx.NodeProto], weights: Sequence[TensorProto]) -> bytes:
    value = helper.make_tensor_value_info
    inputs = [value("x", TensorProto.FLOAT, ["n", _WIDTH])]
    outputs = [value("y", TensorProto.FLOAT, ["n", _WIDTH])]
    graph = helper.make_graph(nodes, "g", inputs, outputs, weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(model.SerializeToString())


@dataclass
class Ordered:
    """Jobs that the service has taken, by id, and what went wrong with any."""

    jobs: dict[str, Order] = field(default_factory=dict)
    answered: dict[str, Job] = field(default_factory=dict)
    """Those that had finished when they were ordered: of them Redis alone knows, and their version (``docs/compiler-service.md``)."""
    ended: set[str] = field(default_factory=set)
    succeeded: set[str] = field(default_factory=set)
    """Names of models."""
    faults: list[str] = field(default_factory=list)
    codes: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    refused_rightly: int = 0
    """Models that were refused while they were uploaded, for what is wrong with them."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def submit(self, client: Client, order: Order, most_seconds: float = 60.0) -> None:
        """Until it is taken: a refusal for want of something that comes back is no fault."""
        end = time.monotonic() + most_seconds
        while True:
            try:
                job = client.compile(order.model, order.name, targets=[_TARGET])
                with self._lock:
                    self.jobs[job.id] = order
                    if job.is_finished:
                        self.answered[job.id] = job
                return
            except IngotError as error:
                with self._lock:
                    self.refused[error.code] += 1
                    if error.code is order.code and error.blame is Blame.USER:
                        self.refused_rightly += 1
                        return
                    if error.code not in _PASSING:
                        self.faults.append(f"{order.name} was refused: {error.code}: {error}")
                        return
                    if time.monotonic() > end:
                        self.faults.append(f"{order.name} was not taken in {most_seconds:g} s: {error}")
                        return
                time.sleep(0.3)

    def look(self, client: Client) -> int:
        """Note which jobs have ended; how many have not."""
        for job in [*self.jobs.keys() - self.ended]:
            try:
                found = client.job(job)
            except IngotError as error:
                if error.code is not ErrorCode.NOT_FOUND:
                    continue
                if job not in self.answered:
                    self.faults.append(f"job {job} of {self.jobs[job].name} is lost")
                    self.ended.add(job)
                    continue
                found = self.answered[job]
            if found.state in ("SUCCEEDED", "FAILED", "CANCELLED"):
                self.ended.add(job)
                self._judge(self.jobs[job], found.state, found.error)
        return len(self.jobs) - len(self.ended)

    def _judge(self, order: Order, state: str, error: IngotError | None) -> None:
        self.codes[error.code if error else state] += 1
        if error is None:
            self.succeeded.add(order.name)
        if order.code is not None:
            if error is None or error.code is not order.code or error.blame is not Blame.USER:
                self.faults.append(f"{order.name}: expected {order.code}, received {error or state}")
        elif error is not None:
            self.faults.append(f"{order.name} has failed: {error.code} ({error.blame}): {error}")

    def check_models(self, client: Client, folder: Path, keys: Path) -> int:
        """Of every model there is one version, and it computes what it should; how many models. ``keys`` has the trust."""
        made = {order.name: order for order in self.jobs.values() if order.name in self.succeeded}
        x = np.random.default_rng(0).standard_normal((3, _WIDTH)).astype(np.float32)
        for name, order in made.items():
            versions = client.versions(name)
            if len(versions) != 1:
                self.faults.append(f"{name} has {len(versions)} versions")
            if order.answer is None:
                continue
            client.download(name, folder / name)
            with ingot.load(folder / name, threads=1, home=keys) as model:
                (found,) = model.run({"x": x}).values()
            if not np.allclose(found, order.answer(x), rtol=1e-4, atol=1e-5):
                self.faults.append(f"{name} computes something else")
        return len(made)
