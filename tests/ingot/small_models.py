"""Models small enough to compile in a moment."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Array = np.ndarray[Any, Any]


def classifier(classes: int = 5) -> onnx.ModelProto:
    """``image`` float32[batch, 3, height, width] -> ``scores`` float32[batch, classes]: conv, relu, mean, matmul, softmax."""
    random = np.random.default_rng(classes)
    weights = {
        "filter": random.standard_normal((8, 3, 3, 3)).astype(np.float32) / 5,
        "filter_bias": random.standard_normal(8).astype(np.float32),
        "weight": random.standard_normal((8, classes)).astype(np.float32),
        "bias": random.standard_normal(classes).astype(np.float32),
    }
    nodes = [
        helper.make_node("Conv", ["image", "filter", "filter_bias"], ["conv"], "conv", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["conv"], ["relu"], "relu"),
        helper.make_node("GlobalAveragePool", ["relu"], ["pool"], "pool"),
        helper.make_node("Flatten", ["pool"], ["flat"], "flat"),
        helper.make_node("Gemm", ["flat", "weight", "bias"], ["logits"], "gemm"),
        helper.make_node("Softmax", ["logits"], ["scores"], "softmax", axis=1),
    ]
    inputs = [value("image", ["batch", 3, "height", "width"])]
    return model(nodes, inputs, [value("scores", ["batch", classes])], weights)


def expected_scores(proto: onnx.ModelProto, image: Array) -> Array:
    """What :func:`classifier` answers, computed with numpy."""
    weights = {tensor.name: numpy_helper.to_array(tensor) for tensor in proto.graph.initializer}
    padded = np.pad(image.astype(np.float64), ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    conv = np.einsum("bchwij,ocij->bohw", windows, weights["filter"]) + weights["filter_bias"][:, None, None]
    logits = np.maximum(conv, 0).mean(axis=(2, 3)) @ weights["weight"] + weights["bias"]
    exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(exponentials / exponentials.sum(axis=1, keepdims=True))


def scale(factor: float = 2.0) -> onnx.ModelProto:
    """``x`` float32[n, 4] -> ``y``, each element times ``factor``."""
    nodes = [helper.make_node("Mul", ["x", "factor"], ["y"], "mul")]
    return model(nodes, [value("x", ["n", 4])], [value("y", ["n", 4])], {"factor": np.float32(factor)})


def unsupported() -> onnx.ModelProto:
    """Two operators that no compiler knows: one of a foreign domain, and one that ONNX does not have."""
    nodes = [
        helper.make_node("Strange", ["x"], ["a"], "strange", domain="com.example"),
        helper.make_node("Relu", ["a"], ["y"], "relu"),
    ]
    proto = model(nodes, [value("x", ["n", 4])], [value("y", ["n", 4])])
    proto.opset_import.append(helper.make_opsetid("com.example", 1))
    return proto


def value(name: str, shape: list[int | str], dtype: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, shape)


def model(
    nodes: list[onnx.NodeProto],
    inputs: list[onnx.ValueInfoProto],
    outputs: list[onnx.ValueInfoProto],
    weights: dict[str, Any] | None = None,
    opset: int = 17,
) -> onnx.ModelProto:
    tensors = [numpy_helper.from_array(np.asarray(array), name) for name, array in (weights or {}).items()]
    graph = helper.make_graph(nodes, "small", inputs, outputs, tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
