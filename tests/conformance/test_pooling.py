"""Pools of images that are shorter than the window, beside ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from shared_ir.errors import ErrorCode, IngotError
from tests.cases import every
from tests.conformance.compiled import check_against_onnx_runtime, one_node, run_compiled, run_onnx_runtime

pytestmark = pytest.mark.slow


def pool(shape: list[int | str], kernel: int = 2, stride: int = 2) -> onnx.ModelProto:
    given = {"kernel_shape": [kernel, kernel], "strides": [stride, stride]}
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("MaxPool", ["r"], ["p", "places"], **given),
        helper.make_node("GlobalAveragePool", ["p"], ["y"]),
    ]
    outputs = [onnx.ValueInfoProto(name=n) for n in ("p", "places", "y")]
    graph = helper.make_graph(nodes, "pool", [helper.make_tensor_value_info("x", 1, shape)], outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 12)], ir_version=8)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize(("height", "width"), every([(1, 6), (1, 1), (2, 3), (5, 4)], quick={(1, 1), (2, 3)}))
def test_one_window_is_cut_off_where_the_image_is_shorter(dynamic: bool, height: int, width: int) -> None:
    x = np.random.default_rng(0).normal(size=(2, 3, height, width)).astype(np.float32)
    proto = pool(["n", 3, "h", "w"] if dynamic else list(x.shape))
    for found, expected in zip(run_compiled(proto, {"x": x}), run_onnx_runtime(proto, {"x": x}), strict=True):
        assert found.shape == expected.shape
        np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("op", "given"),
    [
        ("MaxPool", {"auto_pad": "SAME_UPPER", "strides": [2, 3]}),
        ("AveragePool", {"ceil_mode": 1, "strides": [2, 2], "pads": [1, 0, 0, 1]}),
        ("AveragePool", {"count_include_pad": 1, "pads": [1, 1, 1, 1]}),
        ("LpPool", {"p": 2, "strides": [1, 2]}),
    ],
)
def test_pools(op: str, given: dict[str, Any]) -> None:
    x = np.random.default_rng(0).normal(size=(2, 3, 7, 10)).astype(np.float32)
    proto = one_node(op, {"x": x}, kernel_shape=[3, 2], **given)
    check_against_onnx_runtime(proto, {"x": x}, rtol=1e-5)


def test_pools_of_regions() -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(2, 3, 12, 17)).astype(np.float32)
    corners = np.sort(rng.uniform(-4, 40, (9, 2, 2)), axis=1).reshape(9, 4)
    rois = np.concatenate([rng.integers(0, 2, (9, 1)), corners], axis=1).astype(np.float32)
    node = helper.make_node("MaxRoiPool", ["x", "rois"], ["y"], pooled_shape=[3, 2], spatial_scale=0.5)
    inputs = [
        helper.make_tensor_value_info("x", 1, ["n", 3, "h", "w"]),
        helper.make_tensor_value_info("rois", 1, ["r", 5]),
    ]
    graph = helper.make_graph([node], "regions", inputs, [onnx.ValueInfoProto(name="y")])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 16)], ir_version=8)
    feeds = {"x": x, "rois": rois}
    np.testing.assert_allclose(run_compiled(proto, feeds)[0], run_onnx_runtime(proto, feeds)[0], rtol=1e-6)


def test_an_image_without_pixels_is_refused_by_name() -> None:
    with pytest.raises(IngotError, match="h must be at least 1; expected 1, received 0") as caught:
        run_compiled(pool(["n", 3, "h", "w"]), {"x": np.zeros((1, 3, 0, 4), np.float32)})
    assert caught.value.code is ErrorCode.INVALID_ARGUMENT
