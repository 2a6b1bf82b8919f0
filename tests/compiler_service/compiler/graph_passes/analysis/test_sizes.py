"""Sizes that choose between legal layouts are compared, whatever their product comes to."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper, numpy_helper

import ingot
from runtime_service.loading.loader import load_model

RANK = 12


def test_a_tensor_with_many_free_axes_compiles() -> None:
    """If each were 64, int64 would not hold their product: the model is taken, and its answers are right."""
    backwards = np.arange(RANK)[::-1].astype(np.int64)
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "p"], ["t"]),
        helper.make_node("Reshape", ["x", "t"], ["r"]),
        helper.make_node("Transpose", ["r"], ["y"], perm=backwards.tolist()),
    ]
    graph = helper.make_graph(
        nodes,
        "many",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [f"n{k}" for k in range(RANK)])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None] * RANK)],
        [numpy_helper.from_array(backwards, "p")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    x = np.arange(2 * 3 * 2, dtype=np.float32).reshape((2, *[1] * 9, 3, 2))
    with load_model(ingot.compile(model.SerializeToString())) as loaded:
        (y,) = loaded.run({"x": x}).values()
    assert np.array_equal(y, x.reshape(x.shape[::-1]).transpose(backwards))
