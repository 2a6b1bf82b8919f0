"""Both protocols through clients that nobody here wrote: tritonclient and plain gRPC stubs."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Iterator
from functools import partial
from types import ModuleType
from typing import Any

import grpc
import ml_dtypes
import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from tritonclient.utils import InferenceServerException

from ingot.endpoint import Endpoint
from runtime_service.server import RuntimeServer
from shared_ir.dtype import DType
from shared_ir.pb.inference.v2 import grpc_service_pb2 as pb
from shared_ir.pb.inference.v2.grpc_service_pb2_grpc import GRPCInferenceServiceStub
from tests.runtime_service.api import clients
from tests.runtime_service.toy_models import (
    ToySource,
    fixed_model,
    inputless_model,
    running_server,
    sample,
    scale_model,
    sum_model,
    tensor,
    typed_model,
)

pytestmark = pytest.mark.services
CLIENTS = {"grpc": triton_grpc, "http": triton_http}


@pytest.fixture(scope="module")
def source() -> ToySource:
    made = ToySource()
    made.publish("scale", 1, scale_model, "stable")
    made.publish("scale", 2, lambda: scale_model(3.0), "canary")
    made.publish("sum", 1, sum_model, "stable")
    made.publish("fixed", 4, fixed_model, "stable")
    made.publish("inputless", 1, inputless_model, "stable")
    for dtype in (DType.FLOAT16, DType.BOOL, DType.UINT8, DType.INT64, DType.BFLOAT16):
        made.publish(dtype.value, 1, partial(typed_model, dtype), "stable")
    return made


@pytest.fixture(scope="module")
def server(source: ToySource) -> Iterator[RuntimeServer]:
    with running_server(source, models="scale@stable+canary,*@stable") as running:
        yield running


@pytest.fixture(params=clients.CLIENTS)
def triton(request: pytest.FixtureRequest, server: RuntimeServer) -> Iterator[tuple[ModuleType, Any]]:
    client = clients.Triton(request.param, server)
    yield client.module, client
    client.close()


@pytest.fixture
def stub(server: RuntimeServer) -> Iterator[Any]:
    with grpc.insecure_channel(server.addresses["grpc"]) as channel:
        yield GRPCInferenceServiceStub(channel)


def test_infer_at_several_batch_sizes(triton: tuple[ModuleType, Any]) -> None:
    module, client = triton
    for rows in (1, 3, 200):
        x = np.random.default_rng(rows).standard_normal((rows, 4), np.float32)
        result = client.infer("scale", [tensor(module, "x", x, "FP32")], request_id=f"r{rows}")
        np.testing.assert_array_equal(result.as_numpy("y"), x * 2)
        response = result.get_response()
        found = response if isinstance(response, dict) else {f.name: v for f, v in response.ListFields()}
        assert (found["model_name"], found["model_version"], found["id"]) == ("scale", "1", f"r{rows}")


def test_two_inputs_and_chosen_outputs(triton: tuple[ModuleType, Any]) -> None:
    module, client = triton
    a, b = np.ones((2, 5), np.float32), np.arange(10, dtype=np.int64).reshape(2, 5)
    inputs = [tensor(module, "b", b, "INT64"), tensor(module, "a", a, "FP32")]
    result = client.infer("sum", inputs, outputs=[module.InferRequestedOutput("rows")])
    np.testing.assert_array_equal(result.as_numpy("rows"), [5.0, 5.0])
    assert result.as_numpy("total") is None
    np.testing.assert_array_equal(client.infer("sum", inputs).as_numpy("total"), a + b)


def test_versions_and_labels(triton: tuple[ModuleType, Any]) -> None:
    module, client = triton
    inputs = [tensor(module, "x", np.ones((1, 4), np.float32), "FP32")]
    for version, expected in (("", 2.0), ("1", 2.0), ("2", 3.0), ("canary", 3.0), ("stable", 2.0), ("latest", 3.0)):
        assert client.infer("scale", inputs, model_version=version).as_numpy("y")[0, 0] == expected
    with pytest.raises(InferenceServerException, match="no version '9'"):
        client.infer("scale", inputs, model_version="9")


DATATYPES = pytest.mark.parametrize(
    ("model", "datatype", "values"),
    [
        ("float16", "FP16", np.array([[1.5, -2]], np.float16)),
        ("bool", "BOOL", np.array([[True, False]])),
        ("uint8", "UINT8", np.array([[0, 255]], np.uint8)),
        ("int64", "INT64", np.array([[-(2**62), 3]], np.int64)),
        ("bfloat16", "BF16", np.array([[1.5, -2]], ml_dtypes.bfloat16)),
    ],
)


@DATATYPES
def test_datatypes(triton: tuple[ModuleType, Any], model: str, datatype: str, values: np.ndarray) -> None:
    module, client = triton
    np.testing.assert_array_equal(client.infer(model, [tensor(module, "x", values, datatype)]).as_numpy("y"), values)


@DATATYPES
@pytest.mark.parametrize("protocol", CLIENTS)
def test_datatypes_of_our_client(
    server: RuntimeServer, protocol: Any, model: str, datatype: str, values: np.ndarray
) -> None:
    endpoint = Endpoint(server.addresses[protocol], protocol)
    answer = endpoint.infer(model, {"x": values})["y"]
    assert (answer.dtype, [i.dtype for i in endpoint.inputs(model)]) == (values.dtype, [model])
    np.testing.assert_array_equal(answer, values)
    endpoint.close()


def test_health_and_metadata(triton: tuple[ModuleType, Any]) -> None:
    module, client = triton
    as_json = {"as_json": True} if module is triton_grpc else {}
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("scale")
    assert client.is_model_ready("scale", "2")
    if module is triton_http:
        assert not client.is_model_ready("nope")
    assert set(client.get_server_metadata(**as_json)["extensions"]) == {
        *("binary_tensor_data", "classification", "model_configuration", "model_repository", "parameters"),
        *("sequence", "statistics"),
    }
    metadata = client.get_model_metadata("scale", **as_json)
    assert metadata["versions"] == ["1", "2"]
    shapes = [int(extent) for extent in metadata["inputs"][0]["shape"]]
    assert (metadata["inputs"][0]["datatype"], shapes) == ("FP32", [-1, 4])
    config = client.get_model_config("scale", **as_json)
    config = config.get("config", config)
    assert config["max_batch_size"] == 64
    assert [int(extent) for extent in config["input"][0]["dims"]] == [4]
    fixed = client.get_model_config("fixed", **as_json)
    fixed = fixed.get("config", fixed)
    assert int(fixed.get("max_batch_size", 0)) == 0
    assert [int(extent) for extent in fixed["input"][0]["dims"]] == [2, 3]


def test_statistics_count_requests_rows_and_executions(triton: tuple[ModuleType, Any]) -> None:
    module, client = triton
    as_json = {"as_json": True} if module is triton_grpc else {}

    def read() -> dict[str, Any]:
        statistics: dict[str, Any] = client.get_inference_statistics("scale", "1", **as_json)["model_stats"][0]
        return statistics

    before = read()
    client.infer("scale", [tensor(module, "x", np.ones((3, 4), np.float32), "FP32")])
    with pytest.raises(InferenceServerException):
        client.infer("scale", [tensor(module, "x", np.ones((3, 5), np.float32), "FP32")])
    after = read()
    assert int(after["inference_count"]) - int(before.get("inference_count", 0)) == 3
    assert int(after["execution_count"]) - int(before.get("execution_count", 0)) == 1
    for outcome in ("success", "fail"):
        counts = [int(s["inference_stats"][outcome].get("count", 0)) for s in (before, after)]
        assert counts[1] - counts[0] == 1
    assert int(after["inference_stats"]["compute_infer"]["ns"]) > 0
    assert 3 in [int(batch["batch_size"]) for batch in after["batch_stats"]]
    assert int(after["last_inference"]) > 1_600_000_000_000
    everything = client.get_inference_statistics(**as_json)["model_stats"]
    assert {("scale", "1"), ("scale", "2"), ("fixed", "4")} <= {(s["name"], s["version"]) for s in everything}


def test_repository_index(triton: tuple[ModuleType, Any]) -> None:
    module, client = triton
    as_json = {"as_json": True} if module is triton_grpc else {}
    index = client.get_model_repository_index(**as_json)
    index = index["models"] if isinstance(index, dict) else index
    assert ("scale", "2", "READY") in [(m["name"], m["version"], m["state"]) for m in index]


@pytest.mark.parametrize("protocol", CLIENTS)
def test_load_and_unload(source: ToySource, protocol: str) -> None:
    module = CLIENTS[protocol]
    with running_server(source, wait=False, model_control="explicit") as server:
        client = module.InferenceServerClient(server.addresses[protocol])
        assert not client.is_server_ready()
        client.load_model("scale")
        assert client.is_server_ready()
        inputs = [tensor(module, "x", np.ones((1, 4), np.float32), "FP32")]
        assert client.infer("scale", inputs).as_numpy("y")[0, 0] == 2.0
        with pytest.raises(InferenceServerException, match="no model 'nope'"):
            client.load_model("nope")
        with pytest.raises(InferenceServerException, match="unknown parameter"):
            client.load_model("scale", config='{"max_batch_size": 1000}')
        client.unload_model("scale")
        with pytest.raises(InferenceServerException, match="no model 'scale'"):
            client.infer("scale", inputs)
        client.close()


@pytest.mark.parametrize("algorithm", ["gzip", "deflate"])
def test_compressed_requests(server: RuntimeServer, algorithm: str) -> None:
    client = triton_http.InferenceServerClient(server.addresses["http"])
    x = np.ones((3, 4), np.float32)
    inputs = [tensor(triton_http, "x", x, "FP32")]
    result = client.infer(
        "scale", inputs, request_compression_algorithm=algorithm, response_compression_algorithm=algorithm
    )
    np.testing.assert_array_equal(result.as_numpy("y"), x * 2)
    client.close()


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_a_model_without_inputs(server: RuntimeServer, protocol: Any) -> None:
    (y,) = Endpoint(server.addresses[protocol], protocol).infer("inputless", {}).values()
    assert y.tolist() == [1, 2, 3]
    client = CLIENTS[protocol].InferenceServerClient(server.addresses[protocol])
    assert client.infer("inputless", []).as_numpy("y").tolist() == [1, 2, 3]
    client.close()


def test_messages_of_grpc_are_not_compressed(server: RuntimeServer) -> None:
    """They would be as large as a message may be before anybody could count them."""
    client = triton_grpc.InferenceServerClient(server.addresses["grpc"])
    inputs = [tensor(triton_grpc, "x", np.ones((3, 4), np.float32), "FP32")]
    with pytest.raises(InferenceServerException, match="'gzip' is disabled"):
        client.infer("scale", inputs, compression_algorithm="gzip")
    client.infer("scale", inputs)
    client.close()


def test_json_tensors_over_http(server: RuntimeServer) -> None:
    client = triton_http.InferenceServerClient(server.addresses["http"])
    x = triton_http.InferInput("x", [1, 4], "FP32")
    x.set_data_from_numpy(np.ones((1, 4), np.float32), binary_data=False)
    result = client.infer("scale", [x], outputs=[triton_http.InferRequestedOutput("y", binary_data=False)])
    assert result.as_numpy("y").tolist() == [[2.0] * 4]
    client.close()


def test_typed_contents_are_answered_in_kind(stub: Any) -> None:
    request = pb.ModelInferRequest(model_name="scale", id="t")
    x = request.inputs.add(name="x", datatype="FP32", shape=[1, 4])
    x.contents.fp32_contents.extend([1, 2, 3, 4])
    response = stub.ModelInfer(request)
    assert list(response.outputs[0].contents.fp32_contents) == [2, 4, 6, 8]
    assert not response.raw_output_contents
    bfloat = pb.ModelInferRequest(model_name="uint8")
    bfloat.inputs.add(name="x", datatype="UINT8", shape=[1, 2]).contents.uint_contents.extend([1, 255])
    assert list(stub.ModelInfer(bfloat).outputs[0].contents.uint_contents) == [1, 255]


def bad_requests() -> dict[str, pb.ModelInferRequest]:
    def request(
        datatype: str = "FP32", shape: tuple[int, ...] = (1, 4), raw: bytes | None = bytes(16), **contents: Any
    ) -> pb.ModelInferRequest:
        made = pb.ModelInferRequest(model_name="scale")
        tensor = made.inputs.add(name="x", datatype=datatype, shape=shape)
        for name, values in contents.items():
            getattr(tensor.contents, name).extend(values)
        if raw is not None:
            made.raw_input_contents.append(raw)
        return made

    two = request()
    two.raw_input_contents.append(b"")
    unknown = request()
    unknown.outputs.add(name="z")
    shared = request()
    shared.inputs[0].parameters["shared_memory_region"].string_param = "r"
    sequence = request()
    sequence.parameters["sequence_id"].int64_param = 5
    return {
        "no inputs": pb.ModelInferRequest(model_name="scale"),
        "short raw": request(raw=bytes(15)),
        "raw for too many inputs": two,
        "raw and contents": request(fp32_contents=[1.0] * 4),
        "contents too short": request(raw=None, fp32_contents=[1.0] * 3),
        "contents of another type": request(raw=None, int64_contents=[1] * 4),
        "contents out of range": request("UINT8", raw=None, uint_contents=[1, 2, 3, 256]),
        "half precision without raw": request("FP16", raw=None),
        "bytes": request("BYTES", raw=None, bytes_contents=[b"a"] * 4),
        "bytes raw": request("BYTES"),
        "unknown datatype": request("FP12"),
        "negative shape": request(shape=(-1, 4)),
        "overflowing shape": request(shape=(2**62, 2**62)),
        "wrong rank": request(shape=(4,)),
        "unknown output": unknown,
        "shared memory": shared,
        "sequence": sequence,
    }


@pytest.mark.parametrize("what", bad_requests())
def test_client_mistakes_are_invalid_argument(stub: Any, what: str) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        stub.ModelInfer(bad_requests()[what])
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT, caught.value.details()
    assert len(caught.value.details() or "") > 20


def test_health_service_and_reflection(server: RuntimeServer) -> None:
    with grpc.insecure_channel(server.addresses["grpc"]) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        for service in ("", "liveness", "inference.GRPCInferenceService"):
            answer = health.Check(health_pb2.HealthCheckRequest(service=service))
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
        database = ProtoReflectionDescriptorDatabase(channel)
        assert {"inference.GRPCInferenceService", "grpc.health.v1.Health"} <= set(database.get_services())
        assert database.FindFileContainingSymbol("inference.ModelConfig").package == "inference"
        assert database.FindFileContainingSymbol("grpc.health.v1.Health").package == "grpc.health.v1"


def test_health_follows_readiness(source: ToySource) -> None:
    with (
        running_server(source, wait=False, model_control="explicit") as server,
        grpc.insecure_channel(server.addresses["grpc"]) as channel,
    ):
        health = health_pb2_grpc.HealthStub(channel)
        request = health_pb2.HealthCheckRequest()
        assert health.Check(request).status == health_pb2.HealthCheckResponse.NOT_SERVING
        live = health.Check(health_pb2.HealthCheckRequest(service="liveness"))
        assert live.status == health_pb2.HealthCheckResponse.SERVING
        watch = health.Watch(request)
        assert next(watch).status == health_pb2.HealthCheckResponse.NOT_SERVING
        server.dataplane.load("scale")
        assert next(watch).status == health_pb2.HealthCheckResponse.SERVING
        watch.cancel()


def test_health_of_each_model(source: ToySource) -> None:
    """By those who may know of it."""
    with (
        running_server(source, models="scale", model_control="explicit", token="secret") as server,
        grpc.insecure_channel(server.addresses["grpc"]) as channel,
    ):
        health, known = health_pb2_grpc.HealthStub(channel), (("authorization", "Bearer secret"),)
        scale = health_pb2.HealthCheckRequest(service="scale")
        assert health.Check(scale, metadata=known).status == health_pb2.HealthCheckResponse.SERVING
        for name, metadata in (("scale", ()), ("absent", known)):
            with pytest.raises(grpc.RpcError) as caught:
                health.Check(health_pb2.HealthCheckRequest(service=name), metadata=metadata)
            assert caught.value.code() is grpc.StatusCode.NOT_FOUND
        watch, blind = health.Watch(scale, metadata=known), health.Watch(scale)
        assert next(watch).status == health_pb2.HealthCheckResponse.SERVING
        assert next(blind).status == health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
        server.dataplane.unload("scale")
        assert next(watch).status == health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
        server.dataplane.load("scale")
        assert next(watch).status == health_pb2.HealthCheckResponse.SERVING
        watch.cancel()
        blind.cancel()


def test_token_over_grpc(source: ToySource) -> None:
    with (
        running_server(source, models="scale", token="secret") as server,
        grpc.insecure_channel(server.addresses["grpc"]) as channel,
    ):
        stub = GRPCInferenceServiceStub(channel)
        for metadata in ((), (("authorization", "Bearer wrong"),)):
            with pytest.raises(grpc.RpcError) as caught:
                stub.ServerReady(pb.ServerReadyRequest(), metadata=metadata)
            assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
        assert stub.ServerReady(pb.ServerReadyRequest(), metadata=(("authorization", "Bearer secret"),)).ready
        assert health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest()).status


def test_metrics_move(source: ToySource) -> None:
    with running_server(source, models="scale@1") as server:
        client = triton_grpc.InferenceServerClient(server.addresses["grpc"])
        client.infer("scale", [tensor(triton_grpc, "x", np.ones((3, 4), np.float32), "FP32")])
        with pytest.raises(InferenceServerException):
            client.infer("nope", [])
        model = {"model": "scale", "version": "1"}
        assert sample(server, "ingot_inference_request_success_total", **model) == 1
        assert sample(server, "ingot_inference_rows_total", **model) == 3
        assert sample(server, "ingot_inference_executions_total", **model) == 1
        assert sample(server, "ingot_inference_request_duration_seconds_count", **model) == 1
        assert sample(server, "ingot_inference_batch_release_total", reason="idle", **model) == 1
        assert sample(server, "ingot_model_state", state="READY", **model) == 1
        failures = {"model": "", "version": "", "reason": "NOT_FOUND"}
        assert sample(server, "ingot_inference_request_failure_total", **failures) == 1
        pages = [
            urllib.request.urlopen(f"http://{server.addresses[name]}/metrics").read().decode()
            for name in ("http", "metrics")
        ]
        assert all('ingot_inference_rows_total{model="scale",version="1"} 3\n' in page for page in pages)
