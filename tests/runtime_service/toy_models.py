"""Models and a store in memory, for tests of the service around the executors."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import Any

import numpy as np
from prometheus_client.parser import text_string_to_metric_families

from runtime_service.arrays import Array
from runtime_service.executors.resources import Resources
from runtime_service.executors.stop import Stop
from runtime_service.metrics import Metrics
from runtime_service.models.served import LoadedModel
from runtime_service.policies import PolicyCatalogue
from runtime_service.server import RuntimeServer
from runtime_service.settings import RuntimeSettings
from shared_ir.dtype import DType
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.expr.dim import symbol
from shared_ir.plan.program import TensorSpec

Function = Callable[[Mapping[str, Array]], dict[str, Array]]
BATCH = symbol("batch")


@dataclass
class ToyModel:
    """A model in Python; ``gate`` blocks every run until it is set."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    function: Function
    gate: threading.Event = field(default_factory=threading.Event)
    runs: list[int] = field(default_factory=list)
    closed: bool = False
    batch: str = "batch"
    is_steady: bool = False
    weights_bytes: int = 1000

    def __post_init__(self) -> None:
        self.gate.set()

    def run(self, inputs: Mapping[str, Array], /, stop: Stop | None = None) -> dict[str, Array]:
        assert not self.closed, "a closed model was run"
        end = time.monotonic() + 10
        while not self.gate.wait(0.005) and time.monotonic() < end:
            if stop is not None:
                stop.check()
        first = next(iter(inputs.values()), None)
        self.runs.append(first.shape[0] if first is not None and first.ndim else 1)
        return self.function(inputs)

    def rest(self) -> bool:
        return True

    def close(self) -> None:
        assert not self.closed, "closed twice"
        self.closed = True


def scale_model(factor: float = 2.0, dtype: DType = DType.FLOAT32, width: Any = 4) -> ToyModel:
    """``y = factor * x`` for ``x`` of shape [batch, width]."""
    x, y = TensorSpec("x", dtype, (BATCH, width)), TensorSpec("y", dtype, (BATCH, width))
    return ToyModel((x,), (y,), lambda inputs: {"y": (inputs["x"] * factor).astype(inputs["x"].dtype)})


def sum_model() -> ToyModel:
    """Two inputs of different dtypes, two outputs: ``total = a + b``, ``rows = sum(a, axis 1)``."""
    width = symbol("width")
    return ToyModel(
        (TensorSpec("a", DType.FLOAT32, (BATCH, width)), TensorSpec("b", DType.INT64, (BATCH, width))),
        (TensorSpec("total", DType.FLOAT32, (BATCH, width)), TensorSpec("rows", DType.FLOAT32, (BATCH,))),
        lambda i: {"total": (i["a"] + i["b"]).astype(np.float32), "rows": i["a"].sum(1)},
    )


def mixing_model() -> ToyModel:
    """Has the shape of a batched model, but every row depends on all the others (a softmax over the first axis)."""
    spec = TensorSpec("x", DType.FLOAT32, (BATCH, 4))
    return ToyModel(
        (spec,),
        (replace(spec, name="y"),),
        lambda i: {"y": np.exp(i["x"]) / np.exp(i["x"]).sum(0, keepdims=True)},
        batch="",
    )


def inputless_model() -> ToyModel:
    """Takes nothing: ``y`` is [1, 2, 3]."""
    return ToyModel(
        (), (TensorSpec("y", DType.INT32, (3,)),), lambda _: {"y": np.arange(1, 4, dtype=np.int32)}, batch=""
    )


def fixed_model() -> ToyModel:
    """No symbolic dim at all: ``y = x + 1`` on [2, 3]."""
    x, y = TensorSpec("x", DType.INT32, (2, 3)), TensorSpec("y", DType.INT32, (2, 3))
    return ToyModel((x,), (y,), lambda i: {"y": i["x"] + np.int32(1)})


def typed_model(dtype: DType) -> ToyModel:
    """The identity on ``[batch, 2]`` tensors of any type."""
    spec = TensorSpec("x", dtype, (BATCH, 2))
    return ToyModel((spec,), (replace(spec, name="y"),), lambda i: {"y": i["x"]})


@dataclass
class ToySource:
    """A store: ``make[name][version]()`` builds a model or raises."""

    make: dict[str, dict[int, Callable[[], ToyModel]]] = field(default_factory=dict)
    marks: dict[str, dict[str, int]] = field(default_factory=dict)
    loaded: list[tuple[str, int, ToyModel]] = field(default_factory=list)
    down: bool = False

    def publish(self, name: str, version: int, make: Callable[[], ToyModel], *labels: str) -> None:
        self.make.setdefault(name, {})[version] = make
        self.marks.setdefault(name, {}).update(dict.fromkeys(labels, version))

    def changes(self, names: Collection[str] | None) -> frozenset[str]:
        """Whatever there is: nobody tells a toy."""
        self._check()
        return frozenset(self.make if names is None else names)

    def catalogue(self, name: str) -> PolicyCatalogue:
        self._check()
        if name not in self.make:
            raise IngotError(ErrorCode.NOT_FOUND, f"no model {name!r}")
        return PolicyCatalogue(tuple(sorted(self.make[name])), dict(self.marks[name]))

    def load(self, name: str, version: int, instances: int, resources: Resources) -> tuple[LoadedModel, ...]:
        self._check()
        models = tuple(self.make[name][version]() for _ in range(instances))
        self.loaded += [(name, version, model) for model in models]
        return models

    def trusted(self) -> frozenset[str]:
        return frozenset()

    def revoked(self, name: str, version: int) -> bool:
        return False

    def model(self, name: str, version: int) -> ToyModel:
        """The one that was loaded last."""
        return next(m for n, v, m in reversed(self.loaded) if (n, v) == (name, version))

    def _check(self) -> None:
        if self.down:
            raise IngotError(ErrorCode.UNAVAILABLE, "the store does not answer")


@contextmanager
def running_server(source: ToySource, wait: bool = True, **settings: Any) -> Iterator[RuntimeServer]:
    """A real server on free ports; ``wait`` until it is ready."""
    defaults: dict[str, Any] = {
        "grpc_address": "127.0.0.1:0",
        "http_address": "127.0.0.1:0",
        "metrics_address": "127.0.0.1:0",
        "poll_interval": 0.05,
        "drain_timeout": 5.0,
        "max_in_flight": 32,
    }
    server = RuntimeServer(RuntimeSettings(**defaults | settings), source)
    server.start()
    try:
        if wait:
            wait_until(server.dataplane.ready)
        yield server
    finally:
        server.drain(threading.Event())


def wait_until(condition: Callable[[], bool], timeout: float = 10.0) -> None:
    end = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < end, "the condition did not come true in time"
        time.sleep(0.005)


def tensor(module: ModuleType, name: str, array: np.ndarray, datatype: str) -> Any:
    """An input of a request in the words of ``module``, one of tritonclient's two."""
    made = module.InferInput(name, list(array.shape), datatype)
    made.set_data_from_numpy(array)
    return made


def sample(server: RuntimeServer, name: str, **labels: str) -> float | None:
    """The value of a metric now."""
    return sample_of(server.metrics, name, **labels)


def sample_of(metrics: Metrics, name: str, **labels: str) -> float | None:
    """As :func:`sample`."""
    families = text_string_to_metric_families(metrics.scrape()[0].decode())
    samples = (each for family in families for each in family.samples)
    return next((each.value for each in samples if each.name == name and each.labels == labels), None)
