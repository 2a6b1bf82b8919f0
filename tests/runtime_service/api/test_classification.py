"""The classification extension, by Triton's clients."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
from tritonclient.utils import InferenceServerException

from runtime_service.arrays import Array
from runtime_service.extensions.classification import classified
from runtime_service.server import RuntimeServer
from shared_ir.arrays import storage_dtype
from shared_ir.dtype import DType
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.expr.dim import symbol
from shared_ir.plan.program import TensorSpec
from tests.runtime_service.api.clients import CLIENTS, Triton
from tests.runtime_service.toy_models import ToySource, fixed_model, running_server, scale_model, tensor, typed_model

pytestmark = pytest.mark.services
NUMBERS = [
    *(DType.INT8, DType.INT16, DType.INT32, DType.INT64, DType.UINT8, DType.UINT16, DType.UINT32, DType.UINT64),
    *(DType.FLOAT16, DType.BFLOAT16, DType.FLOAT32, DType.FLOAT64),
]


@pytest.fixture(scope="module")
def server() -> Iterator[RuntimeServer]:
    source = ToySource()
    source.publish("scale", 1, partial(scale_model, 1.0), "stable")
    source.publish("fixed", 1, fixed_model, "stable")
    for dtype in (DType.BOOL, DType.STRING):
        source.publish(dtype.value, 1, partial(typed_model, dtype), "stable")
    with running_server(source, models="*") as running:
        yield running


@pytest.fixture(params=CLIENTS)
def triton(request: pytest.FixtureRequest, server: RuntimeServer) -> Iterator[Triton]:
    client = Triton(request.param, server)
    yield client
    client.close()


def asked(triton: Triton, model: str, x: Array, datatype: str, count: int, **binary: bool) -> Any:
    wanted = triton.module.InferRequestedOutput("y", class_count=count, **binary)
    return triton.infer(model, [tensor(triton.module, "x", x, datatype)], outputs=[wanted])


def pairs(strings: Array) -> list[Any]:
    if strings.ndim > 1:
        return [pairs(row) for row in strings]
    return [(float(value), int(index)) for value, index in (bytes(text).decode().split(":") for text in strings)]


def test_the_highest_of_each_row(triton: Triton) -> None:
    x = np.array([[1, 5, 10, 4], [0.5, 0.25, -1, 0.5]], np.float32)
    result = asked(triton, "scale", x, "FP32", 2)
    assert pairs(result.as_numpy("y")) == [[(10, 2), (5, 1)], [(0.5, 0), (0.5, 3)]]
    everything = asked(triton, "scale", x, "FP32", 100).as_numpy("y")
    assert everything.shape == (2, 4)
    assert asked(triton, "scale", x, "FP32", 0).as_numpy("y").tolist() == x.tolist()


def test_a_model_of_one_shape_has_classes_together(triton: Triton) -> None:
    x = np.array([[1, 9, 3], [4, 5, 6]], np.int32)
    assert pairs(asked(triton, "fixed", x, "INT32", 3).as_numpy("y")) == [(10, 1), (7, 5), (6, 4)]


def test_strings_in_json(server: RuntimeServer) -> None:
    triton = Triton("http", server)
    x = np.array([[1, 5, 10, 4]], np.float32)
    result = asked(triton, "scale", x, "FP32", 1, binary_data=False)
    assert result.get_response()["outputs"] == [{"name": "y", "datatype": "BYTES", "shape": [1, 1], "data": ["10.0:2"]}]
    triton.close()


@pytest.mark.parametrize(("model", "datatype"), [("bool", "BOOL"), ("string", "BYTES")])
def test_what_has_no_order_has_no_classes(triton: Triton, model: str, datatype: str) -> None:
    x = np.zeros((1, 2), bool) if model == "bool" else np.array([[b"a", b"b"]], object)
    with pytest.raises(InferenceServerException, match=r"'y'.*numbers"):
        asked(triton, model, x, datatype, 1)


@pytest.mark.parametrize("count", [-1, 1 << 62])
def test_a_count_that_is_none_is_refused(triton: Triton, count: int) -> None:
    with pytest.raises(InferenceServerException, match="'classification' is missing or malformed"):
        asked(triton, "scale", np.zeros((1, 4), np.float32), "FP32", count)


@pytest.mark.parametrize("dtype", NUMBERS)
def test_values_are_those_of_the_output(dtype: DType) -> None:
    kept = storage_dtype(dtype)
    bits = np.random.default_rng(5).integers(0, 256, 300 * kept.itemsize, np.uint8).view(kept).reshape(3, 100)
    spec = TensorSpec("y", dtype, (symbol("batch"), 100))
    with np.errstate(invalid="ignore"):
        numbers = bits.astype(np.float64) if dtype.is_float else bits.astype(object)
    for at, strings in enumerate(classified(bits, spec, 7, lambda size: None)):
        row = [-np.inf if value != value else value for value in numbers[at]]
        pairs = [text.split(":") for text in strings]
        indices = [int(index) for _, index in pairs]
        assert indices == sorted(range(100), key=lambda i: (-row[i], i))[:7]
        values = np.array([float(v) if dtype.is_float else int(v) for v, _ in pairs], kept)
        np.testing.assert_array_equal(values, bits[at][indices])


@pytest.mark.parametrize("shape", [(0, 4), (3, 0), (2, 2, 3)])
def test_rows_of_any_shape(shape: tuple[int, ...]) -> None:
    array = np.arange(np.prod(shape), dtype=np.int32).reshape(shape)
    found = classified(array, TensorSpec("y", DType.INT32, (symbol("n"), *shape[1:])), 2, lambda size: None)
    assert found.shape == (shape[0], min(2, int(np.prod(shape[1:]))))


def test_classes_are_bounded_and_ask_for_memory() -> None:
    spec, taken = TensorSpec("y", DType.FLOAT32, (symbol("n"), 1000)), 0

    def take(size: int) -> None:
        nonlocal taken
        taken += size

    with pytest.raises(IngotError) as caught:
        classified(np.zeros((1001, 1000), np.float32), spec, 1000, take)
    assert (caught.value.code, taken) == (ErrorCode.INVALID_ARGUMENT, 0)
    classified(np.zeros((100, 1000), np.float32), spec, 50, take)
    assert taken > 100 * 50 * 64


@pytest.mark.parametrize("dtype", [DType.FLOAT16, DType.BFLOAT16])
def test_values_of_16_bits_are_the_shortest_that_read_back(dtype: DType) -> None:
    kept = storage_dtype(dtype)
    every = np.arange(1 << 16, dtype=np.uint16).view(kept).reshape(-1, 1)
    spec = TensorSpec("y", dtype, (symbol("batch"), 1))
    texts = [text.removesuffix(":0") for (text,) in classified(every, spec, 1, lambda size: None)]
    with np.errstate(over="ignore", invalid="ignore"):
        back = np.array([float(text) for text in texts]).astype(kept)
        np.testing.assert_array_equal(back.astype(np.float32), every[:, 0].astype(np.float32))
        for text, value in zip(texts, every[:, 0], strict=True):
            digits = len(text.partition("e")[0].replace(".", "").strip("-0"))
            if np.isfinite(float(text)) and digits > 1:
                assert kept.type(float(f"{float(value):.{digits - 2}e}")) != value
    some = dict(zip((0.1, 3.0, 1e4, -0.0, np.inf), ("0.1", "3.0", "10000.0", "-0.0", "inf"), strict=True))
    for number, text in some.items():
        (found,) = classified(np.array([[number]]).astype(kept), spec, 1, lambda size: None)[0]
        assert found == f"{text}:0"
