"""A server that is flooded, full, slow or still loading answers in both protocols' own words."""

from __future__ import annotations

import threading
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from tritonclient.utils import InferenceServerException

from runtime_service.server import RuntimeServer
from shared_ir.pb.inference.v2 import grpc_service_pb2 as pb
from shared_ir.pb.inference.v2.grpc_service_pb2_grpc import GRPCInferenceServiceStub
from tests.runtime_service.toy_models import ToySource, running_server, sample, scale_model, tensor, wait_until

pytestmark = pytest.mark.services


@pytest.fixture
def source() -> ToySource:
    made = ToySource()
    made.publish("scale", 1, scale_model, "stable")
    return made


def test_requests_above_the_size_limit(source: ToySource) -> None:
    x = np.zeros((5000, 4), np.float32)
    with running_server(source, models="scale", max_request_bytes=10_000) as server:
        with pytest.raises(InferenceServerException, match="RESOURCE_EXHAUSTED"):
            triton_grpc.InferenceServerClient(server.addresses["grpc"]).infer(
                "scale", [tensor(triton_grpc, "x", x, "FP32")]
            )
        with pytest.raises(InferenceServerException, match="larger than 10000 bytes"):
            triton_http.InferenceServerClient(server.addresses["http"]).infer(
                "scale", [tensor(triton_http, "x", x, "FP32")]
            )
        refused = {"model": "scale", "version": "", "reason": "LIMIT_EXCEEDED"}
        assert sample(server, "ingot_inference_request_failure_total", **refused) == 1


def test_a_full_queue_is_429_and_resource_exhausted(source: ToySource) -> None:
    with running_server(source, models="scale@1", max_queue_size=1) as server, ThreadPoolExecutor(8) as pool:
        model = source.model("scale", 1)
        model.gate.clear()
        grpc_client = triton_grpc.InferenceServerClient(server.addresses["grpc"])
        inputs = [tensor(triton_grpc, "x", np.ones((1, 4), np.float32), "FP32")]
        waiting = [pool.submit(grpc_client.infer, "scale", inputs)]
        wait_until(lambda: server.lifecycle.in_flight == 1)
        waiting.append(pool.submit(grpc_client.infer, "scale", inputs))
        wait_until(lambda: sample(server, "ingot_inference_pending_requests", model="scale", version="1") == 1)
        with grpc.insecure_channel(server.addresses["grpc"]) as channel:
            request = pb.ModelInferRequest(model_name="scale", raw_input_contents=[bytes(16)])
            request.inputs.add(name="x", datatype="FP32", shape=[1, 4])
            with pytest.raises(grpc.RpcError) as caught:
                GRPCInferenceServiceStub(channel).ModelInfer(request)
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        metadata = {m.key: str(m.value) for m in caught.value.trailing_metadata()}
        assert metadata["grpc-retry-pushback-ms"] == "1000"
        status, headers = _post_scale(server)
        assert (status, headers["Retry-After"]) == (429, "1")
        model.gate.set()
        assert [f.result(10).as_numpy("y")[0, 0] for f in waiting] == [2.0, 2.0]
        wait_until(lambda: server.lifecycle.in_flight == 0)


def test_a_flooded_server_still_answers_health_checks(source: ToySource) -> None:
    with running_server(source, models="scale@1", max_in_flight=4) as server, ThreadPoolExecutor(40) as pool:
        model = source.model("scale", 1)
        model.gate.clear()
        client = triton_grpc.InferenceServerClient(server.addresses["grpc"])
        inputs = [tensor(triton_grpc, "x", np.ones((1, 4), np.float32), "FP32")]
        flood = [pool.submit(client.infer, "scale", inputs) for _ in range(40)]
        wait_until(lambda: sum(future.done() for future in flood) == 36)
        assert client.is_server_live()
        assert client.is_server_ready()
        assert server.lifecycle.in_flight == 4
        model.gate.set()
        refused = [future.exception(10) for future in flood]
        assert sum(error is None for error in refused) == 4
        assert all(error is None or "RESOURCE_EXHAUSTED" in str(error) for error in refused)


def test_a_loading_model_is_503_and_unavailable() -> None:
    release = threading.Event()

    def slow() -> Any:
        release.wait(10)
        return scale_model()

    slow_source = ToySource()
    slow_source.publish("scale", 1, slow, "stable")
    with running_server(slow_source, wait=False, models="scale") as server:
        client = triton_grpc.InferenceServerClient(server.addresses["grpc"])
        assert client.is_server_live()
        assert not client.is_server_ready()
        assert not client.is_model_ready("scale")
        with pytest.raises(InferenceServerException, match=r"UNAVAILABLE.*loading"):
            client.infer("scale", [tensor(triton_grpc, "x", np.ones((1, 4), np.float32), "FP32")])
        status, headers = _post_scale(server)
        assert (status, headers["Retry-After"]) == (503, "1")
        for path in ("/v2/health/ready", "/v2/models/scale/ready"):
            with pytest.raises(urllib.error.HTTPError) as caught:
                urllib.request.urlopen(f"http://{server.addresses['http']}{path}")
            assert caught.value.code == 503
        release.set()
        wait_until(client.is_server_ready)


def test_a_deadline_is_honoured_before_computing(source: ToySource) -> None:
    with running_server(source, models="scale@1") as server, ThreadPoolExecutor(2) as pool:
        model = source.model("scale", 1)
        runs = len(model.runs)
        model.gate.clear()
        client = triton_grpc.InferenceServerClient(server.addresses["grpc"])
        inputs = [tensor(triton_grpc, "x", np.ones((1, 4), np.float32), "FP32")]
        first = pool.submit(client.infer, "scale", inputs)
        wait_until(lambda: server.lifecycle.in_flight == 1)
        with pytest.raises(InferenceServerException, match=r"DEADLINE_EXCEEDED|Deadline Exceeded"):
            client.infer("scale", inputs, client_timeout=0.1)
        with pytest.raises(InferenceServerException, match="deadline of the request passed"):
            client.infer("scale", inputs, timeout=50_000)
        model.gate.set()
        first.result(10)
        assert len(model.runs) == runs + 1


def _post_scale(server: RuntimeServer) -> tuple[int, Any]:
    body = b'{"inputs":[{"name":"x","shape":[1,4],"datatype":"FP32","data":[1,2,3,4]}]}'
    request = urllib.request.Request(f"http://{server.addresses['http']}/v2/models/scale/infer", body)
    try:
        with urllib.request.urlopen(request) as response:
            return response.status, response.headers
    except urllib.error.HTTPError as error:
        return error.code, error.headers
