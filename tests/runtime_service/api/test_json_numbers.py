"""Numbers as JSON, by Triton's clients and as plain text: exact both ways, or 400 with tensor, expected and received."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

from runtime_service.server import RuntimeServer
from shared_ir.dtype import DType
from shared_ir.wire.names import DTYPES
from tests.runtime_service.api.clients import Triton
from tests.runtime_service.toy_models import ToySource, running_server, typed_model

pytestmark = pytest.mark.services


@pytest.fixture(scope="module")
def server() -> Iterator[RuntimeServer]:
    source = ToySource()
    for name, dtype in DTYPES.items():
        if dtype is not DType.STRING:
            source.publish(name, 1, partial(typed_model, dtype), "stable")
    with running_server(source, models="*") as running:
        yield running


def sent(server: RuntimeServer, datatype: str, data: str) -> tuple[int, Any]:
    """The status and the answer to ``data``, which is JSON text."""
    body = f'{{"inputs": [{{"name": "x", "datatype": "{datatype}", "shape": [1, 2], "data": {data}}}]}}'
    url = f"http://{server.addresses['http']}/v2/models/{datatype}/infer"
    try:
        with urllib.request.urlopen(url, body.encode()) as answer:
            return answer.status, json.load(answer)["outputs"][0]["data"]
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


EXACT = [
    ("UINT64", [2**63, 2**64 - 1]),
    ("UINT64", [1, 2**63]),
    ("UINT64", [2**53 + 1, 0]),
    ("INT64", [-(2**63), 2**63 - 1]),
    ("INT64", [2**53 + 1, -(2**53) - 1]),
    ("UINT32", [0, 2**32 - 1]),
    ("INT8", [-128, 127]),
    ("FP64", [2.0**64, 5e-324]),
    ("FP64", [1.7976931348623157e308, -0.1]),
    ("FP32", [3.4028234663852886e38, 1.401298464324817e-45]),
    ("FP16", [65504.0, 5.960464477539063e-08]),
    ("BF16", [3.3895313892515355e38, -1.0]),
    ("BOOL", [True, False]),
]


@pytest.mark.parametrize(("datatype", "values"), EXACT)
def test_numbers_come_back_as_they_were(server: RuntimeServer, datatype: str, values: list[Any]) -> None:
    assert sent(server, datatype, json.dumps(values)) == (200, values)
    assert sent(server, datatype, json.dumps([values])) == (200, values)


REFUSED = [
    *[("UINT64", "[0, -1]"), ("UINT64", "[0, 18446744073709551616]"), ("INT64", "[0, 9223372036854775808]")],
    *[("INT64", "[0, 1.0]"), ("INT64", "[0, true]"), ("INT32", "[0, 2147483648]"), ("UINT8", "[0, 256]")],
    *[("INT8", "[0, -129]"), ("FP64", "[0, 1e400]"), ("FP64", f"[0, 1{'0' * 309}]"), ("FP32", "[0, 1e39]")],
    *[
        ("FP16", "[0, 1e6]"),
        ("FP16", "[0, -65520]"),
        ("BF16", "[0, 3.4e38]"),
        ("BOOL", "[0, 2]"),
        ("FP32", "[0, true]"),
    ],
    *[("INT32", "[0, NaN]"), ("INT32", '[0, "1"]'), ("FP32", "[0, null]")],
]


@pytest.mark.parametrize(("datatype", "data"), REFUSED)
def test_what_does_not_fit_is_refused_with_its_place(server: RuntimeServer, datatype: str, data: str) -> None:
    status, error = sent(server, datatype, data)
    assert (status, error["code"], error["tensor"]) == (400, "INVALID_ARGUMENT", "x")
    assert f"{datatype}[1, 2]" in error["expected"]
    assert "position 1" in error["received"]


@pytest.mark.parametrize("kind", ["http", "http.aio"])
@pytest.mark.parametrize(
    ("datatype", "values"),
    [
        ("UINT64", np.array([[2**63, 2**64 - 1]], np.uint64)),
        ("INT64", np.array([[-(2**63), 2**53 + 1]], np.int64)),
        ("FP64", np.array([[2.0**64, 0.1]])),
        ("FP32", np.array([[0.1, 3.4028235e38]], np.float32)),
    ],
)
def test_clients_that_send_json(server: RuntimeServer, kind: str, datatype: str, values: np.ndarray) -> None:
    triton = Triton(kind, server)
    x = triton.module.InferInput("x", [1, 2], datatype)
    x.set_data_from_numpy(values, binary_data=False)
    y = triton.module.InferRequestedOutput("y", binary_data=False)
    np.testing.assert_array_equal(triton.infer(datatype, [x], outputs=[y]).as_numpy("y"), values)
    triton.close()


ROUNDED = [
    ("FP32", "1.0000000596046447753906251", 1.0000001192092896),
    ("FP32", "1.0000000596046447753906249", 1.0),
    ("FP32", "1.000000059604644775390625", 1.0),  # half way: the even one
    ("FP32", "1.00000017881393432617187499", 1.0000001192092896),
    ("FP32", "3.40282356779733661637539395458142568447e38", 3.4028234663852886e38),
    ("FP32", str(2**60 + 2**36 + 1), 2.0**60 + 2.0**37),
    ("FP32", str(2**60 + 2**36 - 1), 2.0**60),
    (
        "FP32",
        "7.00649232162408535461864791644958065640130970938257885878534141944895541342930300743319094181060791015625001e-46",
        2**-149,
    ),
    ("FP16", "2049.0000000000000000001", 2050.0),
    ("FP16", "2049", 2048.0),
    ("FP16", "-2050.9999999999999999999", -2050.0),
    ("FP16", "65519.99999999999999999999", 65504.0),
    ("BF16", "257.00000000000000000001", 258.0),
    ("BF16", "2.5700000000000000000001e2", 258.0),
    ("BF16", "256.99999999999999999999", 256.0),
    ("FP64", "1.0000000596046447753906251", 1.0000000596046448),
]


@pytest.mark.parametrize(("datatype", "text", "nearest"), ROUNDED)
def test_numbers_are_rounded_once(server: RuntimeServer, datatype: str, text: str, nearest: float) -> None:
    assert sent(server, datatype, f"[0.5, {text}]") == (200, [0.5, nearest])
    assert sent(server, datatype, f"[[{text}], [NaN]]")[1][0] == nearest


def test_what_is_nearest_to_infinity_is_refused(server: RuntimeServer) -> None:
    assert sent(server, "FP16", "[0, 65520.0]")[0] == 400
    assert sent(server, "FP16", "[0, 65520.00000000000000000001]")[0] == 400
