"""Errors are of bounded length over both protocols, whatever clients send and however much there is to name."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import grpc
import pytest

from ingot import channel
from runtime_service.server import RuntimeServer
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.pb.inference.v2 import grpc_service_pb2 as pb
from shared_ir.pb.inference.v2.grpc_service_pb2_grpc import GRPCInferenceServiceStub
from shared_ir.pb.ingot.compiler.v1 import compiler_pb2 as error_pb
from tests.runtime_service.toy_models import ToySource, running_server, scale_model

pytestmark = pytest.mark.services
MODELS = 300


@pytest.fixture(scope="module")
def server() -> Iterator[RuntimeServer]:
    source = ToySource()
    for number in range(MODELS):
        source.publish(f"recommender-candidate-{number:04d}", 1, scale_model, "stable")
    with running_server(source, models="*") as running:
        yield running


@pytest.fixture
def stub(server: RuntimeServer) -> Iterator[Any]:
    with grpc.insecure_channel(server.addresses["grpc"]) as channel:
        yield GRPCInferenceServiceStub(channel)


@pytest.mark.parametrize("name", ["nowhere", "é" * 20_000])
def test_errors_arrive_whole_or_shortened(stub: Any, name: str) -> None:
    with pytest.raises(IngotError) as caught:
        channel.call("here", lambda: stub.ModelInfer(pb.ModelInferRequest(model_name=name)))
    assert caught.value.code is ErrorCode.NOT_FOUND
    cause: Any = caught.value.__cause__
    assert cause.code() is grpc.StatusCode.NOT_FOUND
    detail = dict(cause.trailing_metadata())["ingot-error-bin"]
    assert error_pb.ErrorDetail.FromString(detail).code == "NOT_FOUND"


WRONG = {"none": "x", "recommender-candidate-0000": "n" * 8000}


def over_grpc(model: str) -> pb.ModelInferRequest:
    made = pb.ModelInferRequest(model_name=model, raw_input_contents=[bytes(16)])
    made.inputs.add(name=WRONG[model], datatype="FP32", shape=[1, 4])
    return made


@pytest.mark.parametrize(
    ("model", "says"), [("none", f"and {MODELS - 12} more"), ("recommender-candidate-0000", "nnnn")]
)
def test_errors_arrive_whole_however_much_there_is_to_name(stub: Any, model: str, says: str) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        stub.ModelInfer(over_grpc(model))
    assert caught.value.code() in (grpc.StatusCode.NOT_FOUND, grpc.StatusCode.INVALID_ARGUMENT)
    assert says in (caught.value.details() or "")
    (answer,) = stub.ModelStreamInfer(iter([over_grpc(model)]))
    assert answer.error_message == caught.value.details()


@pytest.mark.parametrize("model", WRONG)
def test_errors_of_http_are_as_short(server: RuntimeServer, model: str) -> None:
    tensor = {"name": WRONG[model], "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]}
    url, body = f"http://{server.addresses['http']}/v2/models/{model}/infer", json.dumps({"inputs": [tensor]}).encode()
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(url, body)
    assert caught.value.code in (400, 404)
    assert len(caught.value.read()) < 5000
