"""What a request was made of is gone when it is over, however it ends: nobody counts what waits for a collection of garbage.

Once a request is over, its room is given to others. An error that is kept by what it was raised beside holds every frame that it came
through, and these hold the tensors.
"""

from __future__ import annotations

import gc
import http.client
import json
import logging
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any

import grpc
import numpy as np
import pytest

from runtime_service.arrays import Array
from runtime_service.batching.messages import Cancellation, InferRequest, TensorData
from runtime_service.batching.work import Work
from runtime_service.server import RuntimeServer
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.pb.inference.v2 import grpc_service_pb2 as pb
from shared_ir.pb.inference.v2.grpc_service_pb2_grpc import GRPCInferenceServiceStub
from shared_ir.service_kit.calls.lanes import ServerCall
from shared_ir.service_kit.http.message import HttpRequest
from shared_ir.service_kit.http1.arriving import Whole
from shared_ir.service_kit.rpc.call import RequestStream, RpcCall
from tests.runtime_service.toy_models import ToyModel, ToySource, running_server, scale_model, wait_until

pytestmark = pytest.mark.services
OF_REQUESTS = (
    InferRequest,
    TensorData,
    Work,
    Cancellation,
    RpcCall,
    ServerCall,
    RequestStream,
    HttpRequest,
    Whole,
    IngotError,
    ValueError,
)
ROWS = 1000
"""Too many to be quick: a request takes a thread."""


class Watched:
    """A model that knows what became of the arrays that it was given, and gave."""

    def __init__(self) -> None:
        self.arrays: list[weakref.ref[Array]] = []
        self.model: ToyModel

    def make(self) -> ToyModel:
        self.model = made = scale_model()
        inner = made.function

        def function(inputs: Mapping[str, Array]) -> dict[str, Array]:
            self.arrays += map(weakref.ref, inputs.values())
            first = float(inputs["x"][0, 0])
            if first < 0:
                raise ValueError("the model dislikes it") if first < -1 else _disliked()
            found = inner(inputs)
            self.arrays += map(weakref.ref, found.values())
            return found

        made.function = function
        return made

    @property
    def alive(self) -> int:
        return sum(each() is not None for each in self.arrays)


def _disliked() -> IngotError:
    return IngotError(ErrorCode.INVALID_ARGUMENT, "the model dislikes a value")


class Client:
    """Sends ``rows`` of a value, and may hang up."""

    def __init__(self, server: RuntimeServer) -> None:
        self.server = server

    def start(self, value: float, rows: int = ROWS, **parameters: int) -> Callable[[], None]:
        """Begin to ask; what is returned hangs up."""
        raise NotImplementedError

    def wait(self) -> None:
        """For the answer."""
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError


class HttpClient(Client):
    def start(self, value: float, rows: int = ROWS, **parameters: int) -> Callable[[], None]:
        self.connection = http.client.HTTPConnection(self.server.addresses["http"])
        data = np.full((rows, 4), value, np.float32).tobytes()
        said = {"binary_data_size": len(data)}
        entry = {"name": "x", "shape": [rows, 4], "datatype": "FP32", "parameters": said}
        text = json.dumps({"inputs": [entry], "parameters": parameters}).encode()
        self.connection.request(
            "POST", "/v2/models/m/infer", text + data, {"Inference-Header-Content-Length": str(len(text))}
        )
        return self.connection.close

    def wait(self) -> None:
        self.connection.getresponse().read()

    def close(self) -> None:
        self.connection.close()


class GrpcClient(Client):
    is_stream = False

    def __init__(self, server: RuntimeServer) -> None:
        super().__init__(server)
        self.channel = grpc.insecure_channel(server.addresses["grpc"])
        self.stub = GRPCInferenceServiceStub(self.channel)

    def start(self, value: float, rows: int = ROWS, **parameters: int) -> Callable[[], None]:
        request = pb.ModelInferRequest(model_name="m")
        request.inputs.add(name="x", datatype="FP32", shape=(rows, 4))
        request.raw_input_contents.append(np.full((rows, 4), value, np.float32).tobytes())
        for name, given in parameters.items():
            request.parameters[name].int64_param = given
        self.call: Any = self._called(request)
        return lambda: self.call.cancel() and None

    def _called(self, request: Any) -> Any:
        return self.stub.ModelInfer.future(request)

    def wait(self) -> None:
        with suppress(grpc.RpcError):
            self.call.result(20)

    def close(self) -> None:
        self.channel.close()


class StreamClient(GrpcClient):
    def _called(self, request: Any) -> Any:
        return self.stub.ModelStreamInfer(iter([request]))

    def wait(self) -> None:
        with suppress(grpc.RpcError):
            list(self.call)


CLIENTS: list[type[Client]] = [HttpClient, GrpcClient, StreamClient]


@pytest.fixture(scope="module")
def watched() -> Watched:
    return Watched()


@pytest.fixture(scope="module")
def server(watched: Watched) -> Iterator[RuntimeServer]:
    source = ToySource()
    source.publish("m", 1, watched.make, "stable")
    with running_server(source, models="m", max_queue_size=4) as running:
        yield running


@contextmanager
def uncollected() -> Iterator[None]:
    """NOTE: the log of the tests keeps tracebacks."""
    gc.collect()
    gc.disable()
    logging.disable()
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)
        gc.enable()


def left() -> Counter[str]:
    return Counter(type(each).__name__ for each in gc.get_objects() if type(each) in OF_REQUESTS)


def answered(client: Client, model: ToyModel) -> None:
    client.start(1.0)
    client.wait()


def small(client: Client, model: ToyModel) -> None:
    for _ in range(8):
        client.start(1.0, 1)
        client.wait()


def waited(client: Client, model: ToyModel) -> None:
    with blocked(client, model):
        client.start(1.0)
        wait_until(lambda: pending(client) == 1)
    client.wait()


def failed(client: Client, model: ToyModel) -> None:
    client.start(-1.0)
    client.wait()


def broken(client: Client, model: ToyModel) -> None:
    client.start(-2.0)
    client.wait()


def malformed(client: Client, model: ToyModel) -> None:
    client.start(1.0, priority=7)
    client.wait()


def late(client: Client, model: ToyModel) -> None:
    with blocked(client, model):
        client.start(1.0, timeout=30_000)
        client.wait()


def late_while_computed(client: Client, model: ToyModel) -> None:
    model.gate.clear()
    client.start(1.0, timeout=30_000)
    client.wait()
    model.gate.set()


def refused(client: Client, model: ToyModel) -> None:
    with blocked(client, model, waiting=4):
        client.start(1.0)
        client.wait()


def cancelled(client: Client, model: ToyModel) -> None:
    with blocked(client, model):
        hang_up = client.start(1.0)
        wait_until(lambda: pending(client) == 1)
        hang_up()
        wait_until(lambda: pending(client) == 0)


def cancelled_while_computed(client: Client, model: ToyModel) -> None:
    model.gate.clear()
    hang_up = client.start(1.0)
    wait_until(lambda: client.server.lifecycle.in_flight == 1)
    hang_up()
    wait_until(lambda: client.server.lifecycle.in_flight == 0)
    model.gate.set()


WAYS = [
    answered,
    small,
    waited,
    failed,
    broken,
    malformed,
    late,
    late_while_computed,
    refused,
    cancelled,
    cancelled_while_computed,
]


def pending(client: Client) -> int:
    return sum(len(served._batcher._waiting) for served in _served(client.server))


def _served(server: RuntimeServer) -> list[Any]:
    with server.dataplane._registry.acquire("m", "").held() as served:
        return [served]


@contextmanager
def blocked(client: Client, model: ToyModel, waiting: int = 0) -> Iterator[None]:
    """The instance computes for somebody else, and so many wait."""
    model.gate.clear()
    batcher = _served(client.server)[0]._batcher
    inputs = {"x": np.ones((1, 4), np.float32)}
    with ThreadPoolExecutor(1 + waiting) as pool:
        others: list[Future[Any]] = [pool.submit(batcher.run, inputs)]
        wait_until(lambda: not batcher._idle)
        others += [pool.submit(batcher.run, inputs) for _ in range(waiting)]
        wait_until(lambda: len(batcher._waiting) == waiting)
        try:
            yield
        finally:
            model.gate.set()
            for other in others:
                other.result(10)
    del inputs, others


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", CLIENTS)
def test_nothing_of_a_request_outlives_it(
    server: RuntimeServer, watched: Watched, kind: type[Client], way: Callable[[Client, ToyModel], None]
) -> None:
    client = kind(server)
    way(client, watched.model)
    client.close()
    wait_until(lambda: server.lifecycle.in_flight == 0)
    with uncollected():
        before = left()
        watched.arrays.clear()
        client = kind(server)
        way(client, watched.model)
        client.close()
        end = time.monotonic() + 3
        while (watched.alive or left() - before) and time.monotonic() < end:
            time.sleep(0.02)
        assert not left() - before
        assert not watched.alive
