"""REST routes without a socket: every client mistake is a 4xx that names it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http import HTTPStatus
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime_service.api.rest import AccessRules, RestApplication
from runtime_service.lifecycle import ServerPhase
from runtime_service.server import RuntimeServer
from shared_ir.dtype import DType
from shared_ir.service_kit.http.message import HttpRequest, HttpResponse
from shared_ir.wire.names import WIRE_NAMES
from tests.runtime_service.toy_models import (
    ToyModel,
    ToySource,
    fixed_model,
    running_server,
    scale_model,
    sum_model,
    typed_model,
)

DTYPES = [dtype for dtype in WIRE_NAMES if dtype is not DType.STRING]


@pytest.fixture(scope="module")
def server() -> Iterator[RuntimeServer]:
    source = ToySource()
    for name, make in {"scale": scale_model, "sum": sum_model, "fixed": fixed_model}.items():
        source.publish(name, 1, make, "stable")
    for dtype in DTYPES:
        source.publish(dtype.value, 1, partial(typed_model, dtype), "stable")
    source.publish("crash", 1, _crashing, "stable")
    with running_server(source, models="*", grpc_address="", http_address="", metrics_address="") as running:
        yield running


def _crashing() -> ToyModel:
    model = fixed_model()

    def function(inputs: Any) -> Any:
        if (inputs["x"] == 7).any():
            raise ZeroDivisionError("a bug of ours")
        return {"y": inputs["x"]}

    model.function = function
    return model


@pytest.fixture(scope="module")
def application(server: RuntimeServer) -> RestApplication:
    return RestApplication(server.dataplane, server.metrics.scrape)


def ask(application: RestApplication, request: HttpRequest) -> HttpResponse:
    admitted = application.admit(request)
    return admitted if isinstance(admitted, HttpResponse) else admitted.answer(request)


def post(
    application: RestApplication, document: Any, model: str = "scale", binary: bytes = b"", **headers: str
) -> tuple[HTTPStatus, dict[str, Any], HttpResponse]:
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    if binary:
        headers.setdefault("inference-header-content-length", str(len(body)))
    response = ask(application, HttpRequest("POST", f"/v2/models/{model}/infer", headers, body + binary))
    length = response.headers.get("Inference-Header-Content-Length")
    content = b"".join(response.parts)
    return response.status, json.loads(content[: int(length)] if length else content), response


def tensor(**changes: Any) -> dict[str, Any]:
    whole = {"name": "x", "shape": [1, 4], "datatype": "FP32", "data": [1, 2, 3, 4]} | changes
    return {key: value for key, value in whole.items() if value is not None}


def request(**changes: Any) -> dict[str, Any]:
    return {"inputs": [tensor(**changes)]}


def test_json_in_json_out(application: RestApplication) -> None:
    status, body, _ = post(application, request() | {"id": "7"})
    assert status == 200
    assert body == {
        "model_name": "scale",
        "model_version": "1",
        "id": "7",
        "outputs": [{"name": "y", "datatype": "FP32", "shape": [1, 4], "data": [2.0, 4.0, 6.0, 8.0]}],
    }
    assert post(application, request(data=[[1, 2, 3, 4]]))[1]["outputs"][0]["data"] == [2.0, 4.0, 6.0, 8.0]


def test_outputs_in_the_order_asked_for_each_as_it_was_asked_for(application: RestApplication) -> None:
    a, b = np.ones((2, 3), np.float32), np.arange(6, dtype=np.int64).reshape(2, 3)
    document = {
        "inputs": [
            {"name": "b", "shape": [2, 3], "datatype": "INT64", "parameters": {"binary_data_size": 48}},
            {"name": "a", "shape": [2, 3], "datatype": "FP32", "data": a.tolist()},
        ],
        "outputs": [{"name": "rows", "parameters": {"binary_data": True}}, {"name": "total"}],
    }
    status, body, response = post(application, document, "sum", b.tobytes())
    assert status == 200
    rows, total = body["outputs"]
    assert (rows["name"], rows["parameters"]) == ("rows", {"binary_data_size": 8})
    assert np.frombuffer(response.parts[1], np.float32).tolist() == [3.0, 3.0]
    assert total["data"] == (a + b).ravel().tolist()


def test_the_default_for_outputs_yields_to_the_output(application: RestApplication) -> None:
    document = request() | {"parameters": {"binary_data_output": True}}
    assert post(application, document)[1]["outputs"][0]["parameters"] == {"binary_data_size": 16}
    document["outputs"] = [{"name": "y", "parameters": {"binary_data": False}}]
    assert post(application, document)[1]["outputs"][0]["data"] == [2.0, 4.0, 6.0, 8.0]


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_datatype_both_ways(application: RestApplication, dtype: DType) -> None:
    size = 2 * dtype.itemsize
    item = {"name": "x", "shape": [1, 2], "datatype": _wire(dtype)}
    status, body, _ = post(application, {"inputs": [item | {"data": [0, 1]}]}, dtype.value)
    assert (status, body["outputs"][0]["data"]) == (200, [0, 1])
    raw = {"inputs": [item | {"parameters": {"binary_data_size": size}}], "parameters": {"binary_data_output": True}}
    content = bytes([1, 0] * dtype.itemsize)[:size] if dtype is DType.BOOL else bytes(range(1, size + 1))
    status, body, response = post(application, raw, dtype.value, content)
    assert (status, response.parts[1]) == (200, content)


def _wire(dtype: DType) -> str:
    return dtype.value.upper().replace("BFLOAT", "BF").replace("FLOAT", "FP")


def test_raw_request(application: RestApplication) -> None:
    headers = {"inference-header-content-length": "0"}
    body = np.arange(4, dtype=np.float32).tobytes()
    response = ask(application, HttpRequest("POST", "/v2/models/scale/infer", headers, body))
    assert response.status == 200
    assert np.frombuffer(response.parts[1], np.float32).tolist() == [0.0, 2.0, 4.0, 6.0]
    for model, wrong in (("scale", body[:-1]), ("scale", b""), ("sum", body), ("fixed", body)):
        response = ask(application, HttpRequest("POST", f"/v2/models/{model}/infer", headers, wrong))
        assert response.status == 400, model


BAD = {
    "not json": b"{",
    "not an object": [],
    "a number": 3,
    "deeply nested": b"[" * 100_000,
    "not utf-8": b"\xff\xfe",
    "no inputs": {},
    "inputs not a list": {"inputs": {}},
    "an input that is no object": {"inputs": [3]},
    "no name": request(name=None),
    "unknown input": request(name="z"),
    "missing input": {"inputs": []},
    "the same input twice": {"inputs": [tensor(), tensor()]},
    "no shape": request(shape=None),
    "shape of strings": request(shape=["1", "4"]),
    "negative shape": request(shape=[-1, 4]),
    "shape of booleans": request(shape=[True, 4]),
    "wrong count": request(shape=[2, 4]),
    "wrong extent": request(shape=[1, 5], data=[0] * 5),
    "wrong rank": request(shape=[4]),
    "huge shape": request(shape=[2**62, 2**62]),
    "huge shape without elements": request(shape=[0, 2**62, 2**62], data=[]),
    "large shape without elements": request(shape=[0] + [2**31 - 1] * 10, data=[]),
    "too many dims": request(shape=[1] * 99, data=[1]),
    "timeout of many digits": request() | {"parameters": {"timeout": 10**400}},
    "no datatype": request(datatype=None),
    "unknown datatype": request(datatype="FP12"),
    "wrong datatype": request(datatype="INT32"),
    "bytes": request(datatype="BYTES", data=["a", "b", "c", "d"]),
    "no data": request(data=None),
    "ragged data": request(data=[[1, 2], [3]]),
    "strings as data": request(data=["1", "2", "3", "4"]),
    "objects as data": request(data=[{}, {}, {}, {}]),
    "null as data": request(data=[None] * 4),
    "number as data": request(data=3),
    "parameters not an object": request(parameters=3),
    "binary size beyond the body": request(data=None, parameters={"binary_data_size": 16}),
    "binary size not a number": request(data=None, parameters={"binary_data_size": "16"}),
    "binary and data": request(parameters={"binary_data_size": 16}),
    "shared memory": request(parameters={"shared_memory_region": "r"}),
    "unknown output": request() | {"outputs": [{"name": "z"}]},
    "output twice": request() | {"outputs": [{"name": "y"}, {"name": "y"}]},
    "outputs not a list": request() | {"outputs": 3},
    "classification": request() | {"outputs": [{"name": "y", "parameters": {"classification": -2}}]},
    "sequence": request() | {"parameters": {"sequence_id": 4}},
    "timeout that is no number": request() | {"parameters": {"timeout": "soon"}},
    "negative timeout": request() | {"parameters": {"timeout": -1}},
    "infinite timeout": b'{"inputs": [], "parameters": {"timeout": Infinity}}',
    "id not a string": request() | {"id": 3},
}


@pytest.mark.parametrize("what", BAD)
def test_client_mistakes_are_400_and_say_what(application: RestApplication, what: str) -> None:
    status, body, _ = post(application, BAD[what])
    assert status == 400, body
    assert len(body["error"]) > 20


def test_the_error_names_tensor_expected_and_received(application: RestApplication) -> None:
    _, body, _ = post(application, request(shape=[1, 5], data=[0] * 5))
    assert "'x'" in body["error"]
    assert "FP32[batch, 4]" in body["error"]
    assert "FP32[1, 5]" in body["error"]


def test_one_symbol_has_one_size(application: RestApplication) -> None:
    inputs = [
        {"name": "a", "shape": [2, 3], "datatype": "FP32", "data": [0] * 6},
        {"name": "b", "shape": [2, 1], "datatype": "INT64", "data": [0] * 2},
    ]
    status, body, _ = post(application, {"inputs": inputs}, "sum")
    assert status == 400
    assert "width = 3 as in 'a'" in body["error"]


@pytest.mark.parametrize("data", [[1.5, 0], [300, 0], [-1, 0], [2**70, 0]])
def test_values_that_do_not_fit_the_datatype_are_refused(application: RestApplication, data: list[float]) -> None:
    document = {"inputs": [{"name": "x", "shape": [1, 2], "datatype": "UINT8", "data": data}]}
    assert post(application, document, "uint8")[0] == 400


@pytest.mark.parametrize("length", ["-1", "x", "9999", "1e3", "²", ""])
def test_a_wrong_length_header_is_refused(application: RestApplication, length: str) -> None:
    headers: dict[str, Any] = {"inference-header-content-length": length}
    assert post(application, request(), **headers)[0] == 400


def test_left_over_binary_data_is_refused(application: RestApplication) -> None:
    assert post(application, request(), binary=b"more")[0] == 400


def test_unknown_models_versions_and_paths_are_404(application: RestApplication) -> None:
    assert post(application, request(), "nope")[0] == 404
    assert post(application, request(), "scale/versions/9")[0] == 404
    assert post(application, request(), "scale/versions/stable")[0] == 200
    for path in ("/", "/v1", "/v2/models", "/v2/models/", "/v2/models/scale/x", "/v2/models/a/b/c", "/v2x", "//v2"):
        assert ask(application, HttpRequest("GET", path)).status == 404, path
    response = ask(application, HttpRequest("GET", "/v2/models/scale/infer"))
    assert (response.status, response.headers["Allow"]) == (405, "POST")


def test_a_fault_of_the_model_is_500_without_its_secrets(application: RestApplication) -> None:
    document = {"inputs": [{"name": "x", "shape": [2, 3], "datatype": "INT32", "data": [7] * 6}]}
    status, body, _ = post(application, document, "crash")
    assert status == 500
    assert "ZeroDivisionError" in body["error"]
    assert "bug of ours" not in body["error"]


def test_a_timeout_that_is_too_short_is_504(application: RestApplication) -> None:
    assert post(application, request() | {"parameters": {"timeout": 0.001}})[0] == 504
    assert post(application, request() | {"parameters": {"timeout": 10_000_000}})[0] == 200


def test_token(server: RuntimeServer) -> None:
    application = RestApplication(server.dataplane, server.metrics.scrape, AccessRules(token="secret"))
    assert ask(application, HttpRequest("GET", "/v2")).status == 401
    assert ask(application, HttpRequest("GET", "/v2", {"authorization": "Bearer wrong"})).status == 401
    assert ask(application, HttpRequest("GET", "/v2", {"authorization": "Bearer secret"})).status == 200
    assert ask(application, HttpRequest("GET", "/v2/health/ready")).status == 200
    assert ask(application, HttpRequest("GET", "/metrics")).status == 200


def test_health_is_a_status_and_a_document(server: RuntimeServer, application: RestApplication) -> None:
    """KServe's client parses what comes, and takes ``live`` and ``ready`` from it."""
    paths: dict[str, dict[str, Any]] = {"/v2/health/live": {"live": True}, "/v2/health/ready": {"ready": True}}
    paths["/v2/models/scale/ready"] = {"name": "scale", "ready": True}
    for path, expected in paths.items():
        answer = ask(application, HttpRequest("GET", path))
        assert (answer.status, json.loads(b"".join(answer.parts))) == (200, expected)
    server.lifecycle.enter(ServerPhase.DRAINING)
    try:
        answer = ask(application, HttpRequest("GET", "/v2/health/ready"))
    finally:
        server.lifecycle.enter(ServerPhase.SERVING)
    assert (answer.status, json.loads(b"".join(answer.parts))) == (503, {"ready": False})
    assert int(answer.headers["Retry-After"]) > 0


def test_malformed_load_requests(application: RestApplication) -> None:
    path = "/v2/repository/models/scale/load"
    for body in (b"[]", b"{", b'{"parameters": 3}', b'{"parameters": {"config": "{}"}}', b""):
        assert ask(application, HttpRequest("POST", path, body=body)).status == 400, body


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(["name", "shape", "datatype", "data", "parameters"]), JSON), JSON)
@settings(max_examples=200, deadline=None)
def test_no_document_is_a_fault_of_the_server(
    application: RestApplication, changes: dict[str, Any], parameters: Any
) -> None:
    document = {"inputs": [{**tensor(), **changes}], "parameters": parameters}
    assert post(application, document)[0] in (200, 400, 504)


@given(st.binary(max_size=200), st.sampled_from(["", "0", "10", "200"]))
@settings(max_examples=200, deadline=None)
def test_no_bytes_are_a_fault_of_the_server(application: RestApplication, body: bytes, length: str) -> None:
    headers = {"inference-header-content-length": length} if length else {}
    response = ask(application, HttpRequest("POST", "/v2/models/scale/infer", headers, body))
    assert response.status in (200, 400)


@pytest.mark.parametrize(
    ("unit", "what"),
    [(b"{},", "objects and arrays"), (b"[],", "objects and arrays"), (b"1,", "values"), (b'"a",', "values")],
)
def test_a_document_is_counted_before_it_is_parsed(
    application: RestApplication, monkeypatch: pytest.MonkeyPatch, unit: bytes, what: str
) -> None:
    """49 kB of gzip are 48 MB of such a document, and those took 1.4 GB."""
    monkeypatch.setattr("json.loads", lambda _: pytest.fail("it was parsed"))
    data = b'{"inputs":[{"name":"x","shape":[1,4],"datatype":"FP32","data":[' + unit * 5_000_000 + b"1]}]}"
    response = ask(application, HttpRequest("POST", "/v2/models/scale/infer", {}, data))
    assert response.status == 400
    assert what in response.parts[0].decode()


def test_large_documents_are_parsed_one_after_the_other(application: RestApplication) -> None:
    rows = 100_000
    document = {"inputs": [{"name": "x", "shape": [rows, 4], "datatype": "FP32", "data": [0.5] * (4 * rows)}]}
    body = json.dumps(document).encode()
    with ThreadPoolExecutor(4) as pool:
        requests = [HttpRequest("POST", "/v2/models/scale/infer", {}, body)] * 4
        assert [r.status for r in pool.map(partial(ask, application), requests)] == [200] * 4
    assert ask(application, HttpRequest("POST", "/v2/models/scale/infer", {}, body[:-1])).status == 400
    assert (
        ask(application, HttpRequest("POST", "/v2/models/scale/infer", {}, body)).status == 200
    )  # nobody holds the turn
