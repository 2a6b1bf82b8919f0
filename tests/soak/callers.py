"""Good clients: each waits for its answer, compares it with what it must be, and counts what became of it."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import grpc
import numpy as np
from numpy.typing import NDArray

from shared_ir.pb.inference.v2 import grpc_service_pb2 as pb
from shared_ir.pb.inference.v2.grpc_service_pb2_grpc import GRPCInferenceServiceStub
from tests.soak.rig import FACTORS, STEADY, SWAPPED, WIDTH, Rig

Array = NDArray[np.float32]
Ask = Callable[[str, Array], tuple[str, Array]]
"""From model and x to the version that answered, and y."""
_SECONDS = 20.0


@dataclass
class Tally:
    """Requests that were answered, those of them that were answered wrongly, and those that were not answered."""

    answered: int = 0
    wrong: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)

    def ask(self, name: str, model: str, x: Array, ask: Ask) -> None:
        try:
            version, y = ask(model, x)
        except (OSError, grpc.RpcError, http.client.HTTPException, ValueError, KeyError) as error:
            text = f"{error.code()} {error.details()}" if isinstance(error, grpc.RpcError) else repr(error)
            self.failed.append(f"{name}: {model}: {text}"[:500])
            return
        self.answered += 1
        factor = FACTORS[model].get(int(version))
        if factor is None or not np.array_equal(y, x * np.float32(factor)):
            self.wrong.append(f"{name}: version {version} of {model}: {y.tolist()} for {x.tolist()}"[:500])


def grpc_caller(rig: Rig) -> Ask:
    options = [("grpc.use_local_subchannel_pool", 1)]
    stub = GRPCInferenceServiceStub(grpc.insecure_channel(rig.addresses["grpc"], options=options))

    def ask(model: str, x: Array) -> tuple[str, Array]:
        request = pb.ModelInferRequest(model_name=model, raw_input_contents=[x.tobytes()])
        request.inputs.add(name="x", datatype="FP32", shape=x.shape)
        answer = stub.ModelInfer(request, timeout=_SECONDS)
        return answer.model_version, _array(answer.raw_output_contents[0], answer.outputs[0].shape)

    return ask


def binary_caller(rig: Rig) -> Ask:
    post = _poster(rig)

    def ask(model: str, x: Array) -> tuple[str, Array]:
        data = x.tobytes()
        tensor = _tensor(x) | {"parameters": {"binary_data_size": len(data)}}
        head = json.dumps({"inputs": [tensor], "parameters": {"binary_data_output": True}}).encode()
        answer, body = post(model, head + data, {"Inference-Header-Content-Length": str(len(head))})
        length = int(answer.headers["Inference-Header-Content-Length"])
        document = json.loads(body[:length])
        return document["model_version"], _array(body[length:], document["outputs"][0]["shape"])

    return ask


def json_caller(rig: Rig) -> Ask:
    post = _poster(rig)

    def ask(model: str, x: Array) -> tuple[str, Array]:
        document = json.loads(post(model, json.dumps({"inputs": [_tensor(x) | {"data": x.tolist()}]}).encode(), {})[1])
        output = document["outputs"][0]
        return document["model_version"], np.array(output["data"], np.float32).reshape(output["shape"])

    return ask


def _poster(rig: Rig) -> Callable[[str, bytes, dict[str, str]], tuple[http.client.HTTPResponse, bytes]]:
    connection = http.client.HTTPConnection(rig.addresses["http"], timeout=_SECONDS)

    def post(model: str, body: bytes, headers: dict[str, str]) -> tuple[http.client.HTTPResponse, bytes]:
        try:
            connection.request("POST", f"/v2/models/{model}/infer", body, headers)
            answer = connection.getresponse()
            data = answer.read()
        except (OSError, http.client.HTTPException):
            connection.close()
            raise
        if answer.status != 200:
            raise ValueError(f"{answer.status} {data[:300]!r}")
        return answer, data

    return post


CALLERS: dict[str, Callable[[Rig], Ask]] = {"grpc": grpc_caller, "binary": binary_caller, "json": json_caller}


class Caller:
    """A thread that asks the models that are always there, as fast as it can or a share of that."""

    def __init__(self, rig: Rig, kind: str, seed: int, running: threading.Event, over: threading.Event) -> None:
        self.tally = Tally()
        self.pause = 0.0
        """Seconds from the beginning of a request to that of the next one; 0: none is waited for."""
        self._kind, self._ask, self._draw = kind, CALLERS[kind](rig), np.random.default_rng(seed)
        self._running, self._over = running, over
        self.thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        due = time.monotonic()
        while not self._over.is_set():
            if not self._running.wait(0.1):
                due = time.monotonic()
                continue
            model = STEADY if self._draw.random() < 0.5 else SWAPPED
            self.tally.ask(self._kind, model, rows(self._draw), self._ask)
            due = max(due + self.pause, time.monotonic() - 1.0)
            time.sleep(max(0.0, due - time.monotonic()))


def rows(draw: np.random.Generator) -> Array:
    x: Array = draw.standard_normal((int(draw.integers(1, 9)), WIDTH)).astype(np.float32)
    return x


def _tensor(x: Array) -> dict[str, Any]:
    return {"name": "x", "datatype": "FP32", "shape": list(x.shape)}


def _array(data: bytes, shape: Any) -> Array:
    return np.frombuffer(data, np.float32).reshape(tuple(shape))
